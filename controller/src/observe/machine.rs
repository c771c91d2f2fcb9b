//! State of a VirtualMachine, with its instance and launcher pod.

use apiserver_generic::Object;
use apiservice::v1alpha1::Phase;

use super::pod;
use super::verdict::Verdict;
use crate::plan::RunState;

/// What of a machine was found.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Parts<'a> {
    pub(crate) machine: Option<&'a Object>,
    pub(crate) instance: Option<&'a Object>,
    pub(crate) launcher: Option<&'a Object>,
}

/// The verdict about a vm workspace.
pub(crate) fn verdict(run: RunState, parts: Parts<'_>) -> Verdict {
    if run == RunState::Stopped {
        return stopped(parts);
    }
    let Some(machine) = parts.machine else {
        return Verdict::not_created();
    };
    if machine.deletion_timestamp().is_some() {
        let what = "the VirtualMachine is being deleted; it is made again once it is gone";
        return Verdict::not_ready(Phase::Pending, "MachineDeleted", what);
    }
    if let Some(why) = failure(machine) {
        return Verdict::not_ready(Phase::Failed, "MachineRefused", why);
    }
    match parts.instance {
        None => by_printable_status(machine),
        Some(instance) => by_instance(machine, instance, parts.launcher),
    }
}

fn stopped(parts: Parts<'_>) -> Verdict {
    let ended = |instance: &&Object| matches!(phase(instance), "Succeeded" | "Failed");
    let alive = parts.instance.filter(|instance| !ended(instance));
    if alive.is_some() || parts.launcher.is_some() {
        return Verdict::stopping();
    }
    Verdict::stopped()
}

/// KubeVirt accepts machines that it then cannot start; this condition alone says so.
fn failure(machine: &Object) -> Option<&str> {
    let failure = pod::condition(machine, "Failure").filter(|c| c["status"] == "True")?;
    Some(
        failure["message"]
            .as_str()
            .unwrap_or("KubeVirt gave no message"),
    )
}

fn by_instance(machine: &Object, instance: &Object, launcher: Option<&Object>) -> Verdict {
    match phase(instance) {
        "Running" => running(instance, launcher),
        "Failed" => Verdict::not_ready(Phase::Failed, "GuestFailed", "the guest crashed"),
        "Succeeded" => {
            let what = "the guest powered itself off; it is started again";
            Verdict::not_ready(Phase::Starting, "GuestPoweredOff", what)
        }
        "" | "Pending" | "Scheduling" | "Scheduled" | "WaitingForSync" => launcher
            .and_then(|launcher| pod::stuck(launcher).or_else(|| pod::unschedulable(launcher)))
            .unwrap_or_else(|| by_printable_status(machine)),
        _ => Verdict::not_ready(
            Phase::Unknown,
            "NodeUnreachable",
            "the node of the machine does not report",
        ),
    }
}

fn running(instance: &Object, launcher: Option<&Object>) -> Verdict {
    let paused = pod::condition(instance, "Paused").is_some_and(|c| c["status"] == "True");
    if paused {
        let what = "the machine is paused; unpause it, as with virtctl unpause";
        return Verdict::not_ready(Phase::Running, "Paused", what);
    }
    if launcher.is_some_and(pod::is_ready) {
        return Verdict::ready("the guest runs");
    }
    let what = "the guest runs and its launcher pod is not ready yet";
    Verdict::not_ready(Phase::Running, "LauncherNotReady", what)
}

/// `status.printableStatus` of the machine, as virt-controller derives it
/// (`pkg/virt-controller/watch/vm/vm.go`).
fn by_printable_status(machine: &Object) -> Verdict {
    let printable = machine
        .str_at("/status/printableStatus")
        .unwrap_or_default();
    let (phase, what) = match printable {
        "" | "Stopped" | "Starting" | "Running" | "Migrating" => {
            return Verdict::not_ready(Phase::Starting, "Starting", "the machine is being started");
        }
        "Stopping" | "Terminating" => (Phase::Stopping, "the machine is shutting down"),
        "Provisioning" => (Phase::Starting, "a disk is being imported"),
        "WaitingForVolumeBinding" => (Phase::Pending, "a volume is not bound yet"),
        "ErrorUnschedulable" => (Phase::Pending, "no node has room for the machine"),
        "ErrImagePull" | "ImagePullBackOff" => {
            (Phase::Failed, "the image of the root disk cannot be pulled")
        }
        "ErrorPvcNotFound" | "DataVolumeError" => (Phase::Failed, "a disk is missing or broken"),
        "CrashLoopBackOff" => (Phase::Failed, "the machine ends soon after each start"),
        "Paused" => (Phase::Running, "the machine is paused"),
        _ => (Phase::Unknown, "KubeVirt does not know the machine's state"),
    };
    Verdict::not_ready(phase, printable, what)
}

/// Whether this is the instance of the machine, and not one that merely has its name.
pub(crate) fn owns_instance(machine: &Object, instance: &Object) -> bool {
    let owner = super::controller_of(instance);
    owner.is_some_and(|owner| Some(owner.uid) == machine.uid())
}

/// Whether this is a launcher pod of the instance. While a machine migrates there are two: the one
/// on the instance's node counts.
pub(crate) fn owns_launcher(instance: &Object, pod: &Object) -> bool {
    let owned = super::controller_of(pod).is_some_and(|owner| Some(owner.uid) == instance.uid());
    let uid = pod.uid().unwrap_or_default();
    let active = instance
        .pointer("/status/activePods")
        .and_then(serde_json::Value::as_object)
        .filter(|active| !active.is_empty());
    let node = instance
        .str_at("/status/nodeName")
        .filter(|node| !node.is_empty());
    owned
        && active.is_none_or(|active| active.contains_key(uid))
        && node.is_none_or(|node| pod.str_at("/spec/nodeName").is_none_or(|on| on == node))
}

fn phase(instance: &Object) -> &str {
    instance.str_at("/status/phase").unwrap_or_default()
}
