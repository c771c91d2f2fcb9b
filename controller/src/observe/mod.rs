//! The status of a Workspace, from what its children show. Entry point: [`status`].
//!
//! **Architecture Invariant:** a function of its arguments; equal observations give an equal
//! status, so that nothing is written when nothing changed.

mod conditions;
mod machine;
mod pod;
mod verdict;
mod workload;

#[cfg(test)]
mod tests;

use apiserver_generic::Object;
use apiservice::v1alpha1::{Condition, Phase, ResolvedImage, WorkspaceStatus, WorkspaceType};
use jiff::Timestamp;
use serde_json::Value;

use crate::plan::{Plan, RunState, Severity, Workspace};
use conditions::Fact;
use verdict::Verdict;

/// Container of the launcher pod in which the guest runs.
const COMPUTE: &str = "compute";

/// Live objects of a workspace. Whether they really are its own is judged here.
#[derive(Clone, Debug, Default)]
pub struct Observed<'a> {
    /// The VirtualMachine, StatefulSet or Deployment that the workspace owns.
    pub workload: Option<&'a Object>,
    /// VirtualMachineInstances of the machine's name.
    pub instance: Option<&'a Object>,
    /// Pods that bear the workspace's label.
    pub pods: Vec<&'a Object>,
}

/// Why the children could not be brought into their planned form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// One word, as `NameConflict`.
    pub reason: &'static str,
    /// What happened and what to do.
    pub message: String,
}

/// Everything that a status is made from.
pub struct Situation<'a> {
    /// The workspace.
    pub workspace: &'a Workspace,
    /// What should exist.
    pub plan: &'a Plan,
    /// Whether KubeVirt's kinds are served.
    pub kubevirt: bool,
    /// What went wrong while applying the plan.
    pub failure: Option<&'a Failure>,
    /// What exists.
    pub observed: Observed<'a>,
    /// The catalog entry on record.
    pub image: Option<ResolvedImage>,
}

/// The status to write; the one before gives the times of what did not change.
pub fn status(situation: &Situation<'_>, before: &[Condition], now: Timestamp) -> WorkspaceStatus {
    let workspace = situation.workspace;
    let found = find(workspace, &situation.observed);
    let verdict = match &workspace.ending {
        Some(finalizers) => Verdict::terminating(finalizers),
        None => overruled(situation, judge(workspace, &found)),
    };
    let addresses = found
        .pod
        .filter(|pod| pod.deletion_timestamp().is_none())
        .map(pod::addresses)
        .unwrap_or_default();
    WorkspaceStatus {
        observed_generation: workspace.generation,
        phase: Some(verdict.phase),
        conditions: conditions::stamp(
            facts(situation, &found, &verdict),
            before,
            workspace.generation,
            now,
        ),
        ready_replicas: i32::from(verdict.ready),
        container_state: container_state(workspace, found.pod),
        address: addresses.first().cloned(),
        addresses,
        node_name: found
            .pod
            .and_then(|pod| pod.str_at("/spec/nodeName"))
            .map(str::to_owned),
        image: situation.image.clone(),
        ssh: None,
    }
}

/// The objects that really are the workspace's.
struct Found<'a> {
    workload: Option<&'a Object>,
    instance: Option<&'a Object>,
    pod: Option<&'a Object>,
}

fn find<'a>(workspace: &Workspace, observed: &Observed<'a>) -> Found<'a> {
    let own = |object: &&Object| is_owned(object, &workspace.owner.uid);
    let workload = observed.workload.filter(own);
    let instance = observed
        .instance
        .filter(|instance| workload.is_some_and(|vm| machine::owns_instance(vm, instance)));
    let pods = observed.pods.iter().copied();
    let pod =
        match workspace.kind {
            WorkspaceType::Vm => pod::current(pods.filter(|pod| {
                instance.is_some_and(|instance| machine::owns_launcher(instance, pod))
            })),
            WorkspaceType::Container | WorkspaceType::Scratch => {
                pod::current(pods.filter(|pod| workload.is_some_and(|w| workload::owns(w, pod))))
            }
        };
    Found {
        workload,
        instance,
        pod,
    }
}

fn judge(workspace: &Workspace, found: &Found<'_>) -> Verdict {
    match workspace.kind {
        WorkspaceType::Vm => machine::verdict(
            workspace.run,
            machine::Parts {
                machine: found.workload,
                instance: found.instance,
                launcher: found.pod,
            },
        ),
        WorkspaceType::Container | WorkspaceType::Scratch => {
            workload::verdict(workspace.run, found.workload, found.pod)
        }
    }
}

/// A workload that is not ready because it could not be made says that, not that it is missing.
fn overruled(situation: &Situation<'_>, verdict: Verdict) -> Verdict {
    if verdict.ready {
        return verdict;
    }
    if let Some(failure) = situation.failure {
        return Verdict::not_ready(Phase::Failed, failure.reason, failure.message.clone());
    }
    let blocker = situation.plan.blocker();
    match blocker.filter(|_| situation.workspace.run == RunState::Running) {
        Some(problem) => {
            let phase = match problem.severity {
                Severity::Waiting => Phase::Pending,
                Severity::Refused | Severity::Ignored => Phase::Failed,
            };
            Verdict::not_ready(phase, problem.cause.as_str(), problem.message.clone())
        }
        None => verdict,
    }
}

fn facts(situation: &Situation<'_>, found: &Found<'_>, verdict: &Verdict) -> Vec<Fact> {
    let mut facts = vec![
        Fact::new("Ready", verdict.ready, &verdict.reason, &verdict.message),
        reconciled(situation),
    ];
    if situation.workspace.ending.is_none() {
        facts.push(fully_applied(situation.plan));
    }
    if situation.workspace.kind == WorkspaceType::Vm {
        facts.push(kubevirt(situation.kubevirt));
        facts.extend(found.instance.map(agent));
        facts.extend(found.workload.and_then(restart_required));
    }
    facts
}

fn reconciled(situation: &Situation<'_>) -> Fact {
    if situation.workspace.ending.is_some() {
        let why = "children of a workspace that is being deleted are left to the garbage collector";
        return Fact::new("Reconciled", false, "Terminating", why);
    }
    if let Some(failure) = situation.failure {
        return Fact::new("Reconciled", false, failure.reason, &failure.message);
    }
    match situation.plan.blocker() {
        Some(problem) => Fact::new(
            "Reconciled",
            false,
            problem.cause.as_str(),
            &problem.message,
        ),
        None => Fact::new(
            "Reconciled",
            true,
            "Applied",
            "every child is as it should be",
        ),
    }
}

fn fully_applied(plan: &Plan) -> Fact {
    let messages: Vec<&str> = plan.problems.iter().map(|p| p.message.as_str()).collect();
    match plan.problems.first() {
        Some(worst) => Fact::new(
            "FullyApplied",
            false,
            worst.cause.as_str(),
            &messages.join("; "),
        ),
        None => Fact::new(
            "FullyApplied",
            true,
            "Supported",
            "everything asked for is supported",
        ),
    }
}

fn kubevirt(installed: bool) -> Fact {
    if installed {
        return Fact::new(
            "KubeVirtAvailable",
            true,
            "Installed",
            "KubeVirt's kinds are served",
        );
    }
    let how = "KubeVirt is not installed in this cluster: install it, and machines are made";
    Fact::new("KubeVirtAvailable", false, "KubeVirtNotInstalled", how)
}

/// KubeVirt removes this condition from the instance when the agent goes away.
fn agent(instance: &Object) -> Fact {
    if pod::condition(instance, "AgentConnected").is_some_and(|c| c["status"] == "True") {
        return Fact::new(
            "AgentConnected",
            true,
            "Connected",
            "the guest agent answers",
        );
    }
    let how =
        "no guest agent answers; install and start qemu-guest-agent in the guest if you want one";
    Fact::new("AgentConnected", false, "NotConnected", how)
}

fn restart_required(machine: &Object) -> Option<Fact> {
    let condition = pod::condition(machine, "RestartRequired").filter(|c| c["status"] == "True")?;
    let why = condition["message"].as_str().unwrap_or_default();
    let message = format!("a change takes effect after the machine is stopped and started: {why}");
    Some(Fact::new("RestartRequired", true, "Changed", &message))
}

fn container_state(workspace: &Workspace, pod: Option<&Object>) -> serde_json::Map<String, Value> {
    let container = match workspace.kind {
        WorkspaceType::Vm => COMPUTE,
        _ => workspace.main_container()["name"]
            .as_str()
            .unwrap_or_default(),
    };
    pod.and_then(|pod| pod::container_state(pod, container))
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default()
}

/// The controller reference of an object.
pub(crate) struct Controller<'a> {
    pub(crate) kind: &'a str,
    pub(crate) name: &'a str,
    pub(crate) uid: &'a str,
}

/// Who controls an object.
pub(crate) fn controller_of(object: &Object) -> Option<Controller<'_>> {
    let references = object.pointer("/metadata/ownerReferences")?.as_array()?;
    let reference = references.iter().find(|r| r["controller"] == true)?;
    Some(Controller {
        kind: reference["kind"].as_str()?,
        name: reference["name"].as_str()?,
        uid: reference["uid"].as_str()?,
    })
}

/// Whether a workspace of this UID controls the object.
pub(crate) fn is_owned(object: &Object, uid: &str) -> bool {
    controller_of(object).is_some_and(|owner| owner.kind == "Workspace" && owner.uid == uid)
}
