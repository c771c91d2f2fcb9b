//! What a pod says about itself, and which pod is the workspace's.

use apiserver_generic::Object;
use apiservice::v1alpha1::Phase;
use serde_json::Value;

use super::verdict::Verdict;

/// Waiting reasons that do not pass by themselves.
const STUCK: [&str; 8] = [
    "CrashLoopBackOff",
    "ErrImagePull",
    "ImagePullBackOff",
    "ErrImageNeverPull",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
];

/// Of several pods the one that counts: one that is not going away before one that is, then the
/// newest, then the greatest UID so that the choice is stable.
pub(crate) fn current<'a>(pods: impl Iterator<Item = &'a Object>) -> Option<&'a Object> {
    pods.max_by_key(|pod| {
        (
            pod.deletion_timestamp().is_none(),
            pod.str_at("/metadata/creationTimestamp")
                .unwrap_or_default(),
            pod.uid().unwrap_or_default(),
        )
    })
}

/// State of a workload by its pod.
pub(crate) fn verdict(pod: &Object) -> Verdict {
    let status = |field: &str| pod.str_at(&format!("/status/{field}")).unwrap_or_default();
    if pod.deletion_timestamp().is_some() {
        return Verdict::not_ready(Phase::Starting, "PodReplaced", "the pod is being replaced");
    }
    if let Some(stuck) = stuck(pod) {
        return stuck;
    }
    match status("phase") {
        "Running" if is_ready(pod) => Verdict::ready("the pod is ready"),
        "Running" => Verdict::not_ready(
            Phase::Running,
            "ContainersNotReady",
            message_of(pod, "Ready").unwrap_or("a container is not ready yet"),
        ),
        "Failed" | "Succeeded" => Verdict::not_ready(
            Phase::Failed,
            Some(status("reason"))
                .filter(|r| !r.is_empty())
                .unwrap_or("PodEnded"),
            Some(status("message"))
                .filter(|m| !m.is_empty())
                .unwrap_or("the pod has ended"),
        ),
        "" | "Pending" => pending(pod),
        _ => Verdict::not_ready(
            Phase::Unknown,
            "NodeUnreachable",
            "the node of the pod does not report",
        ),
    }
}

/// Whether the pod's Ready condition is true.
pub(crate) fn is_ready(pod: &Object) -> bool {
    condition(pod, "Ready").is_some_and(|ready| ready["status"] == "True")
}

/// A container that waits for something which does not come by itself.
pub(crate) fn stuck(pod: &Object) -> Option<Verdict> {
    for list in ["initContainerStatuses", "containerStatuses"] {
        let statuses = pod
            .pointer(&format!("/status/{list}"))
            .and_then(Value::as_array);
        for status in statuses.into_iter().flatten() {
            let waiting = &status["state"]["waiting"];
            let reason = waiting["reason"].as_str().unwrap_or_default();
            if STUCK.contains(&reason) {
                let container = status["name"].as_str().unwrap_or_default();
                let why = waiting["message"]
                    .as_str()
                    .unwrap_or("no message was given");
                let message = format!("container {container}: {why}{}", last_exit(status));
                return Some(Verdict::not_ready(Phase::Failed, reason, message));
            }
        }
    }
    None
}

/// A pod that has no place yet.
pub(crate) fn unschedulable(pod: &Object) -> Option<Verdict> {
    let scheduled = condition(pod, "PodScheduled").filter(|c| c["status"] == "False")?;
    let why = scheduled["message"].as_str().unwrap_or("no node fits");
    Some(Verdict::not_ready(Phase::Pending, "Unschedulable", why))
}

/// State of one container: `containerStatuses[name].state`.
pub(crate) fn container_state<'a>(pod: &'a Object, container: &str) -> Option<&'a Value> {
    let statuses = pod.pointer("/status/containerStatuses")?.as_array()?;
    let status = statuses.iter().find(|status| status["name"] == container)?;
    status.get("state")
}

/// `status.podIPs`, the first of which is the pod's address.
pub(crate) fn addresses(pod: &Object) -> Vec<String> {
    let list = pod.pointer("/status/podIPs").and_then(Value::as_array);
    let entries = list.into_iter().flatten();
    entries
        .filter_map(|entry| entry["ip"].as_str().map(str::to_owned))
        .collect()
}

/// The condition of a type, of any object.
pub(crate) fn condition<'a>(object: &'a Object, kind: &str) -> Option<&'a Value> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    conditions
        .iter()
        .find(|condition| condition["type"] == kind)
}

fn message_of<'a>(pod: &'a Object, kind: &str) -> Option<&'a str> {
    condition(pod, kind)?["message"]
        .as_str()
        .filter(|m| !m.is_empty())
}

fn pending(pod: &Object) -> Verdict {
    unschedulable(pod).unwrap_or_else(|| {
        Verdict::not_ready(
            Phase::Starting,
            "ContainerCreating",
            "images are pulled and containers made",
        )
    })
}

fn last_exit(status: &Value) -> String {
    let ended = &status["lastState"]["terminated"];
    match (ended["exitCode"].as_i64(), ended["reason"].as_str()) {
        (Some(code), Some(reason)) => format!(" (it last ended with exit code {code}, {reason})"),
        (Some(code), None) => format!(" (it last ended with exit code {code})"),
        _ => String::new(),
    }
}
