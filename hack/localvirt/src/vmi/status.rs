//! What is said about an instance: labels and `status` of the VirtualMachineInstance.
//!
//! Mirrors what KubeVirt's virt-controller and virt-handler write between them, from the launcher's Pod and from
//! what the launcher itself says. VirtualMachineInstance has no status subresource, so this is an ordinary patch.

use k8s_openapi::{
    api::core::v1::{Pod, PodStatus},
    jiff::Timestamp,
};
use serde_json::{Value, json};

use super::spec::mac_address;
use crate::{
    api::{Condition, Instance, Phase, PhaseTransition, VolumeSource, set_condition},
    guestless::{Script, pod::node_of},
    launcher::protocol,
};

/// What is known about an instance beside its own object.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Its launcher, if there is one.
    pub pod: Option<Pod>,
    /// The other launcher of a migration, as long as there is one.
    pub other: Option<Pod>,
    /// What the launcher said, if it answered.
    pub launcher: Option<protocol::Status>,
    /// Why no launcher could be made.
    pub failure: Option<String>,
}

/// The merge patch that brings the object up to date; `None` if it is.
pub fn patch(vmi: &Instance, seen: &Observed, now: Timestamp) -> Option<Value> {
    let phase = next_phase(vmi, seen);
    let now = now.to_string();
    let pod = seen.pod.as_ref();
    let node = pod.and_then(node_of);
    let mut status = json!({
        "phase": phase.as_str(),
        "phaseTransitionTimestamps": transitions(vmi, phase, &now),
        "conditions": conditions(vmi, seen, phase, &now),
        "volumeStatus": volumes(vmi),
        "qosClass": pod.and_then(|p| p.status.as_ref()?.qos_class.clone()),
        "runtimeUser": 107,
        "machine": vmi.spec["domain"]["machine"],
        "currentCPUTopology": topology(vmi),
    });
    if let Some(pod) = pod.filter(|_| !phase.is_final()) {
        status["activePods"] = active_pods(pod, seen.other.as_ref());
        status["interfaces"] = json!(interfaces(vmi, pod.status.as_ref(), phase));
        status["launcherContainerImageVersion"] = json!(
            pod.spec
                .as_ref()
                .and_then(|s| s.containers.first()?.image.clone())
        );
        status["memory"] = json!({ "guestAtBoot": vmi.guest_memory, "guestCurrent": vmi.guest_memory, "guestRequested": vmi.guest_memory });
    }
    if let Some(node) = node.as_ref().filter(|_| phase >= Phase::Scheduled) {
        status["nodeName"] = json!(node);
    }
    let mut patch = json!({ "status": changed(&vmi.status, status) });
    let labelled = vmi
        .meta
        .labels
        .as_ref()
        .and_then(|l| l.get("kubevirt.io/nodeName"));
    if phase >= Phase::Scheduled && node.is_some() && labelled != node.as_ref() {
        patch["metadata"] = json!({ "labels": { "kubevirt.io/nodeName": node } });
    }
    let nothing = patch["status"]
        .as_object()
        .is_none_or(serde_json::Map::is_empty);
    (!nothing || patch.get("metadata").is_some()).then_some(patch)
}

/// Launchers by UID, with their nodes: two while a guest is being moved, until the one that it left is gone.
fn active_pods(pod: &Pod, other: Option<&Pod>) -> Value {
    let ended = |p: &&Pod| {
        let phase = p.status.as_ref().and_then(|s| s.phase.as_deref());
        matches!(phase, Some("Succeeded" | "Failed"))
    };
    let pods = std::iter::once(pod).chain(other.filter(|p| !ended(p)));
    let entry = |p: &Pod| {
        let uid = p.metadata.uid.clone().unwrap_or_default();
        (uid, json!(node_of(p).unwrap_or_default()))
    };
    Value::Object(pods.map(entry).collect())
}

/// Keeps what differs. Maps whose keys come and go (`activePods`) are nulled key by key, as merge patch wants it.
fn changed(old: &Value, mut new: Value) -> Value {
    if let (Some(fields), Some(pods)) = (new.as_object_mut(), old["activePods"].as_object()) {
        let now = fields.entry("activePods").or_insert_with(|| json!({}));
        for gone in pods.keys() {
            if now.get(gone).is_none() {
                now[gone] = Value::Null;
            }
        }
    }
    if let Some(fields) = new.as_object_mut() {
        fields.retain(|key, value| !same(&old[key], value));
    }
    new
}

fn same(old: &Value, new: &Value) -> bool {
    old == new || (old.is_null() && (*new == json!({}) || *new == json!([])))
}

/// Where the instance is now. A phase never goes back, and a final one never changes.
pub fn next_phase(vmi: &Instance, seen: &Observed) -> Phase {
    if vmi.phase.is_final() {
        return vmi.phase;
    }
    let Some(pod) = &seen.pod else {
        // A launcher that was there and is not any more was killed; one that never was is still to come.
        let lost = vmi.phase > Phase::Pending;
        return if lost { Phase::Failed } else { Phase::Pending };
    };
    let status = pod.status.as_ref();
    let now = match status.and_then(|s| s.phase.as_deref()) {
        Some("Succeeded") => Phase::Succeeded,
        Some("Failed") => Phase::Failed,
        Some("Running") if seen.launcher.as_ref().is_some_and(guest_runs) => Phase::Running,
        Some("Running") => Phase::Scheduled,
        _ => Phase::Scheduling,
    };
    now.max(vmi.phase)
}

fn guest_runs(status: &protocol::Status) -> bool {
    use protocol::Phase::{Paused, Running, ShuttingDown, Starting};
    match status.phase {
        Running | Paused | ShuttingDown => true,
        Starting => false,
    }
}

fn transitions(vmi: &Instance, phase: Phase, now: &str) -> Vec<PhaseTransition> {
    let mut list = vmi.transitions.clone();
    if !list.iter().any(|t| t.phase == phase) {
        list.push(PhaseTransition {
            phase,
            phase_transition_timestamp: now.to_owned(),
        });
    }
    list
}

fn conditions(vmi: &Instance, seen: &Observed, phase: Phase, now: &str) -> Vec<Condition> {
    let wanted = [
        Some(ready(seen, phase)),
        Some(migratable(vmi)),
        synchronized(seen, phase),
        unscheduled(seen),
        presence(seen, "AgentConnected", |s| s.agent_connected),
        presence(seen, "Paused", |s| s.phase == protocol::Phase::Paused),
        presence(seen, "SoftwareEmulation", |s| s.accelerator == "tcg"),
    ];
    let wanted: Vec<Condition> = wanted.into_iter().flatten().collect();
    // What the launcher would say is kept while it does not answer, until its guest is gone.
    let kept =
        |kind: &str| !phase.is_final() && seen.launcher.is_none() && LAUNCHERS.contains(&kind);
    let mut list = vmi.conditions.clone();
    list.retain(|c| wanted.iter().any(|w| w.kind == c.kind) || kept(&c.kind));
    for condition in wanted {
        set_condition(&mut list, condition, now);
    }
    list
}

/// Conditions that come from the launcher.
const LAUNCHERS: [&str; 3] = ["AgentConnected", "Paused", "SoftwareEmulation"];

/// A condition that is there or not, and never False.
fn presence(
    seen: &Observed,
    kind: &str,
    holds: impl Fn(&protocol::Status) -> bool,
) -> Option<Condition> {
    let (reason, message) = match kind {
        "Paused" => ("PausedByUser", "VMI was paused by user"),
        "SoftwareEmulation" => (
            "SoftwareEmulation",
            "the guest runs on TCG, without hardware virtualization",
        ),
        _ => ("", ""),
    };
    let present = seen.launcher.as_ref().is_some_and(holds);
    present.then(|| Condition::new(kind, true, reason, message))
}

fn ready(seen: &Observed, phase: Phase) -> Condition {
    let no = |reason: &str, message: &str| Condition::new("Ready", false, reason, message);
    let Some(pod) = &seen.pod else {
        return no(
            "PodNotExists",
            "virt-launcher pod has not yet been scheduled",
        );
    };
    if pod.metadata.deletion_timestamp.is_some() {
        return no("PodTerminating", "virt-launcher pod is terminating");
    }
    if phase != Phase::Running {
        return no("GuestNotRunning", "Guest VM is not reported as running");
    }
    match pod_condition(pod.status.as_ref(), "Ready") {
        Some(("True", ..)) => Condition::new("Ready", true, "", ""),
        Some((_, reason, message)) => no(reason, message),
        None => no(
            "PodConditionMissing",
            "virt-launcher pod is missing the Ready condition",
        ),
    }
}

fn migratable(vmi: &Instance) -> Condition {
    if Script::of(vmi).is_some() {
        return Condition::new("LiveMigratable", true, "", "");
    }
    let message =
        "localvirt moves machines without a guest only: a guest in QEMU stays on the one node";
    Condition::new("LiveMigratable", false, "MigrationNotSupported", message)
}

/// False with what keeps the launcher from starting; KubeVirt has the condition only then, or when all is well.
fn synchronized(seen: &Observed, phase: Phase) -> Option<Condition> {
    if let Some(why) = &seen.failure {
        return Some(Condition::new("Synchronized", false, "FailedCreate", why));
    }
    if phase != Phase::Scheduling {
        return None;
    }
    let status = seen.pod.as_ref()?.status.as_ref()?;
    let waiting = status
        .container_statuses
        .iter()
        .flatten()
        .find_map(|c| c.state.as_ref()?.waiting.as_ref())?;
    let reason = waiting.reason.as_deref().unwrap_or_default();
    let stuck = matches!(
        reason,
        "ErrImagePull" | "ImagePullBackOff" | "CreateContainerConfigError" | "CreateContainerError"
    );
    stuck.then(|| {
        Condition::new(
            "Synchronized",
            false,
            reason,
            waiting.message.as_deref().unwrap_or_default(),
        )
    })
}

fn unscheduled(seen: &Observed) -> Option<Condition> {
    let status = seen.pod.as_ref()?.status.as_ref();
    match pod_condition(status, "PodScheduled") {
        Some(("False", reason, message)) => {
            Some(Condition::new("PodScheduled", false, reason, message))
        }
        _ => None,
    }
}

fn pod_condition<'a>(
    status: Option<&'a PodStatus>,
    kind: &str,
) -> Option<(&'a str, &'a str, &'a str)> {
    let conditions = status?.conditions.as_deref()?;
    let condition = conditions.iter().find(|c| c.type_ == kind)?;
    let text = |t: &'a Option<String>| t.as_deref().unwrap_or_default();
    Some((
        &condition.status,
        text(&condition.reason),
        text(&condition.message),
    ))
}

/// The first interface answers on the Pod's addresses; there is one once the guest's network is up.
fn interfaces(vmi: &Instance, status: Option<&PodStatus>, phase: Phase) -> Vec<Value> {
    let Some(nic) = vmi.interfaces.first().filter(|_| phase == Phase::Running) else {
        return Vec::new();
    };
    let ips: Vec<String> = status
        .and_then(|s| s.pod_ips.clone())
        .unwrap_or_default()
        .into_iter()
        .map(|ip| ip.ip)
        .collect();
    vec![json!({
        "name": nic.name,
        "mac": mac_address(vmi),
        "ipAddress": ips.first(),
        "ipAddresses": ips,
        "infoSource": "domain",
        "podInterfaceName": "eth0",
        "linkState": "up",
        "queueCount": 1,
    })]
}

fn volumes(vmi: &Instance) -> Vec<Value> {
    let target = |index: usize| {
        format!(
            "vd{}",
            char::from(b'a' + u8::try_from(index % 26).unwrap_or_default())
        )
    };
    vmi.disks
        .iter()
        .enumerate()
        .map(|(index, disk)| {
            let mut status = json!({ "name": disk.name, "target": target(index) });
            let volume = vmi.volumes.iter().find(|v| v.name == disk.name);
            if let Some(VolumeSource::Claim(claim)) = volume.map(|v| &v.source) {
                status["persistentVolumeClaimInfo"] = json!({ "claimName": claim });
            }
            status
        })
        .collect()
}

fn topology(vmi: &Instance) -> Value {
    let (sockets, cores, threads) = vmi.topology();
    json!({ "sockets": sockets, "cores": cores, "threads": threads })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::instance;

    fn now() -> Timestamp {
        "2026-11-30T12:00:00Z".parse().unwrap()
    }

    fn vmi(status: Value) -> Instance {
        let spec = json!({"domain": {"memory": {"guest": "256Mi"}, "machine": {"type": "q35"},
            "devices": {"interfaces": [{"name": "default", "macAddress": "02:00:00:00:00:07", "masquerade": {}}], "disks": [{"name": "root"}]}}});
        instance(spec, status)
    }

    fn pod(phase: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"uid": "pod-uid"},
            "spec": {"nodeName": "node1", "containers": [{"name": "compute", "image": "example.test/launcher:1"}]},
            "status": {"phase": phase, "podIP": "10.1.0.9", "podIPs": [{"ip": "10.1.0.9"}, {"ip": "fd00::9"}],
                       "conditions": [{"type": "Ready", "status": "True"}]}
        }))
        .unwrap()
    }

    fn launcher(phase: protocol::Phase) -> Option<protocol::Status> {
        Some(protocol::Status {
            phase,
            accelerator: "tcg".into(),
            agent_connected: false,
            console_active: false,
            vnc_active: false,
        })
    }

    fn seen(pod: Option<Pod>, launcher: Option<protocol::Status>) -> Observed {
        Observed {
            pod,
            launcher,
            ..Observed::default()
        }
    }

    #[test]
    fn phases_follow_the_pod_and_the_launcher_and_never_go_back() {
        use protocol::Phase as L;
        let cases = [
            ("Pending", seen(None, None), Phase::Pending),
            (
                "Pending",
                seen(Some(pod("Pending")), None),
                Phase::Scheduling,
            ),
            (
                "Scheduling",
                seen(Some(pod("Running")), None),
                Phase::Scheduled,
            ),
            (
                "Scheduled",
                seen(Some(pod("Running")), launcher(L::Starting)),
                Phase::Scheduled,
            ),
            (
                "Scheduled",
                seen(Some(pod("Running")), launcher(L::Running)),
                Phase::Running,
            ),
            (
                "Scheduled",
                seen(Some(pod("Running")), launcher(L::Paused)),
                Phase::Running,
            ),
            ("Running", seen(Some(pod("Running")), None), Phase::Running),
            (
                "Running",
                seen(Some(pod("Succeeded")), None),
                Phase::Succeeded,
            ),
            ("Running", seen(Some(pod("Failed")), None), Phase::Failed),
            ("Running", seen(None, None), Phase::Failed),
            ("Succeeded", seen(None, None), Phase::Succeeded),
        ];
        for (from, seen, want) in cases {
            assert_eq!(
                next_phase(&vmi(json!({ "phase": from })), &seen),
                want,
                "{from} {:?}",
                seen.launcher
            );
        }
    }

    #[test]
    fn a_running_instance_says_where_it_is_and_how_to_reach_it() {
        let patch = patch(
            &vmi(json!({"phase": "Scheduled"})),
            &seen(Some(pod("Running")), launcher(protocol::Phase::Running)),
            now(),
        )
        .unwrap();
        let status = &patch["status"];
        assert_eq!(status["phase"], "Running");
        assert_eq!(status["nodeName"], "node1");
        assert_eq!(status["activePods"], json!({"pod-uid": "node1"}));
        assert_eq!(status["interfaces"][0]["ipAddress"], "10.1.0.9");
        assert_eq!(status["interfaces"][0]["mac"], "02:00:00:00:00:07");
        assert_eq!(patch["metadata"]["labels"]["kubevirt.io/nodeName"], "node1");
        let kinds: Vec<_> = status["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| (c["type"].as_str().unwrap(), c["status"].as_str().unwrap()))
            .collect();
        assert_eq!(
            kinds,
            [
                ("Ready", "True"),
                ("LiveMigratable", "False"),
                ("SoftwareEmulation", "True")
            ]
        );
    }

    #[test]
    fn an_instance_that_is_up_to_date_is_not_written() {
        let seen = seen(Some(pod("Running")), launcher(protocol::Phase::Running));
        let mut old = vmi(json!({"phase": "Scheduled"}));
        let mut status = patch(&old, &seen, now()).unwrap()["status"].clone();
        status["phase"] = json!("Running");
        old = vmi(status);
        old.meta.labels = Some([("kubevirt.io/nodeName".to_owned(), "node1".to_owned())].into());
        assert_eq!(
            patch(&old, &seen, "2026-11-30T13:00:00Z".parse().unwrap()),
            None
        );
    }

    #[test]
    fn pods_that_are_gone_leave_the_active_ones() {
        let old = vmi(json!({"phase": "Running", "activePods": {"pod-uid": "node1"}}));
        let patch = patch(&old, &seen(Some(pod("Failed")), None), now()).unwrap();
        assert_eq!(patch["status"]["activePods"], json!({"pod-uid": null}));
        assert_eq!(patch["status"]["phase"], "Failed");
    }

    #[test]
    fn both_launchers_of_a_migration_are_active_until_one_is_over() {
        let mut target = pod("Running");
        target.metadata.uid = Some("target-uid".into());
        target.spec.as_mut().unwrap().node_name = Some("node2".into());
        let mut seen = seen(Some(pod("Running")), launcher(protocol::Phase::Running));
        seen.other = Some(target.clone());
        let old = vmi(json!({"phase": "Running"}));
        let status = |seen: &Observed| patch(&old, seen, now()).unwrap()["status"].clone();
        let both = json!({"pod-uid": "node1", "target-uid": "node2"});
        assert_eq!(status(&seen)["activePods"], both);
        assert_eq!(status(&seen)["nodeName"], "node1");
        std::mem::swap(&mut seen.pod, &mut seen.other);
        assert_eq!(status(&seen)["activePods"], both);
        assert_eq!(status(&seen)["nodeName"], "node2");
        seen.other.as_mut().unwrap().status.as_mut().unwrap().phase = Some("Failed".into());
        assert_eq!(status(&seen)["activePods"], json!({"target-uid": "node2"}));
    }

    #[test]
    fn paused_is_there_or_not_and_stays_while_the_launcher_is_silent() {
        let paused =
            vmi(json!({"phase": "Running", "conditions": [{"type": "Paused", "status": "True"}]}));
        let has = |vmi: &Instance, seen: &Observed| {
            conditions(vmi, seen, Phase::Running, "t")
                .iter()
                .any(|c| c.kind == "Paused")
        };
        assert!(has(&paused, &seen(Some(pod("Running")), None)));
        assert!(!has(
            &paused,
            &seen(Some(pod("Running")), launcher(protocol::Phase::Running))
        ));
        assert!(has(
            &vmi(json!({})),
            &seen(Some(pod("Running")), launcher(protocol::Phase::Paused))
        ));
    }

    #[test]
    fn what_keeps_a_launcher_from_starting_is_said() {
        let mut stuck = pod("Pending");
        stuck.status.as_mut().unwrap().container_statuses = serde_json::from_value(json!([{"name": "compute", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}])).unwrap();
        let list = conditions(
            &vmi(json!({"phase": "Scheduling"})),
            &seen(Some(stuck), None),
            Phase::Scheduling,
            "t",
        );
        let synchronized = list.iter().find(|c| c.kind == "Synchronized").unwrap();
        assert_eq!(
            (synchronized.reason.as_str(), synchronized.message.as_str()),
            ("ErrImagePull", "no such image")
        );
    }
}
