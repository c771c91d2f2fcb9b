//! State of a StatefulSet or Deployment of one pod.

use apiserver_generic::Object;
use apiservice::v1alpha1::Phase;

use super::pod;
use super::verdict::Verdict;
use crate::plan::RunState;

/// The verdict about a container or scratch workspace.
pub(crate) fn verdict(run: RunState, workload: Option<&Object>, pod: Option<&Object>) -> Verdict {
    match (run, workload, pod) {
        (RunState::Stopped, _, Some(_)) => Verdict::stopping(),
        (RunState::Stopped, _, None) => Verdict::stopped(),
        (RunState::Running, None, _) => Verdict::not_created(),
        (RunState::Running, Some(_), Some(pod)) => pod::verdict(pod),
        (RunState::Running, Some(workload), None) => no_pod(workload),
    }
}

/// A Deployment says why it makes no pod; a StatefulSet says it in events only.
fn no_pod(workload: &Object) -> Verdict {
    let failure = pod::condition(workload, "ReplicaFailure").filter(|c| c["status"] == "True");
    match failure.and_then(|failure| failure["message"].as_str()) {
        Some(why) => Verdict::not_ready(Phase::Failed, "PodRefused", why),
        None => Verdict::not_ready(
            Phase::Pending,
            "PodNotCreated",
            "the pod is not there yet; the events of the StatefulSet or Deployment say why if it \
             stays so",
        ),
    }
}

/// Whether a pod belongs to a StatefulSet (by UID) or to a Deployment (through a ReplicaSet of its
/// own name and the pod's template hash).
pub(crate) fn owns(workload: &Object, pod: &Object) -> bool {
    let Some(owner) = super::controller_of(pod) else {
        return false;
    };
    if owner.kind == "ReplicaSet" {
        let hash = pod.label("pod-template-hash").unwrap_or_default();
        return owner.name == format!("{}-{hash}", workload.name());
    }
    workload.uid() == Some(owner.uid)
}
