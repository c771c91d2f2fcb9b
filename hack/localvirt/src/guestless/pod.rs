//! The Pod of a guestless machine: an object with a launcher's owner and labels that nothing runs.
//!
//! Its scheduler does not exist, so a kubelet never sees it; quota, admission and owners are as for any Pod. Its status
//! is written here, and its condition messages say by whom. Where there is no node at all it is bound to one of
//! [`NODES`](super::NODES), as whoever compares `spec.nodeName` expects; beside real nodes it stays unbound, for the Pod
//! garbage collector removes Pods of nodes that do not exist.

use std::net::IpAddr;

use k8s_openapi::{
    api::core::v1::{
        Capabilities, Container, Pod, PodSecurityContext, PodSpec, SeccompProfile, SecurityContext,
    },
    jiff::Timestamp,
};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::{ANNOTATION, IMAGE, Script};
use crate::{api::Instance, vmi::pod::launcher_meta};

/// On the Pod: which of [`super::NODES`] it would be on.
pub const NODE_ANNOTATION: &str = "localvirt.kubeworkspaces.io/node";
/// Whether such Pods name their node in their spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// There is no real node, nor a collector of Pods without one.
    Bound,
    /// There are real nodes.
    Unbound,
}

/// Nobody schedules for it.
const SCHEDULER: &str = "localvirt-guestless";
/// Why the status of such a Pod is what it is.
const WORDS: &str = "written by localvirt: a guestless machine has no kubelet and no containers";

/// The Pod called `name`, on the node called `node`.
pub fn pod(vmi: &Instance, script: Script, name: &str, node: &str, binding: Binding) -> Pod {
    let mut meta = launcher_meta(vmi, name);
    meta.annotations.get_or_insert_default().extend([
        (NODE_ANNOTATION.to_owned(), node.to_owned()),
        (ANNOTATION.to_owned(), script.as_str().to_owned()),
    ]);
    Pod {
        metadata: meta,
        spec: Some(PodSpec {
            containers: vec![Container {
                name: "compute".into(),
                image: Some(format!("{IMAGE}:{}", script.as_str())),
                security_context: Some(SecurityContext {
                    allow_privilege_escalation: Some(false),
                    capabilities: Some(Capabilities {
                        drop: Some(vec!["ALL".into()]),
                        add: None,
                    }),
                    ..SecurityContext::default()
                }),
                ..Container::default()
            }],
            scheduler_name: Some(SCHEDULER.into()),
            node_name: (binding == Binding::Bound).then(|| node.to_owned()),
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            security_context: Some(PodSecurityContext {
                run_as_non_root: Some(true),
                seccomp_profile: Some(SeccompProfile {
                    type_: "RuntimeDefault".into(),
                    localhost_profile: None,
                }),
                ..PodSecurityContext::default()
            }),
            ..PodSpec::default()
        }),
        status: None,
    }
}

/// The node that the Pod is on: a real one, or the one that is written on it.
pub fn node_of(pod: &Pod) -> Option<String> {
    let real = pod.spec.as_ref().and_then(|s| s.node_name.clone());
    real.or_else(|| pod.annotations().get(NODE_ANNOTATION).cloned())
}

/// The patch that makes a new Pod one that runs; `None` once it has a phase of its own. A test that sets the phase to
/// `Failed` or `Succeeded` is the end of the machine.
pub fn running(pod: &Pod, addresses: &[IpAddr], now: Timestamp) -> Option<Value> {
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    if !matches!(phase, None | Some("Pending")) {
        return None;
    }
    let now = now.to_string();
    let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"].map(|kind| {
        json!({ "type": kind, "status": "True", "lastTransitionTime": now, "reason": "Guestless", "message": WORDS })
    });
    let image = pod
        .spec
        .as_ref()
        .and_then(|s| s.containers.first()?.image.clone());
    Some(json!({ "status": {
        "phase": "Running",
        "message": WORDS,
        "startTime": now,
        "podIP": addresses.first(),
        "podIPs": addresses.iter().map(|ip| json!({ "ip": ip })).collect::<Vec<_>>(),
        "conditions": conditions,
        "containerStatuses": [{
            "name": "compute", "image": image, "imageID": "", "ready": true, "started": true, "restartCount": 0,
            "state": { "running": { "startedAt": now } },
        }],
    } }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::is_controlled_by,
        guestless::{ADDRESS, NODES},
        testing::instance,
    };

    fn made() -> (Instance, Pod) {
        let vmi = instance(json!({"domain": {}}), json!({}));
        let pod = pod(
            &vmi,
            Script::Echo,
            "virt-launcher-demo-x",
            NODES[0],
            Binding::Unbound,
        );
        (vmi, pod)
    }

    #[test]
    fn the_pod_belongs_to_its_instance_and_no_scheduler_takes_it() {
        let (vmi, pod) = made();
        assert!(is_controlled_by(&pod.metadata, vmi.uid()));
        assert_eq!(pod.labels()["kubevirt.io/created-by"], vmi.uid());
        let spec = pod.spec.clone().unwrap();
        assert_eq!(spec.scheduler_name.as_deref(), Some(SCHEDULER));
        assert_eq!(spec.security_context.unwrap().run_as_non_root, Some(true));
        assert_eq!(spec.node_name, None);
        assert_eq!(node_of(&pod).as_deref(), Some(NODES[0]));
        let bound = super::pod(&vmi, Script::Echo, "p", NODES[1], Binding::Bound);
        assert_eq!(bound.spec.unwrap().node_name.as_deref(), Some(NODES[1]));
    }

    #[test]
    fn its_status_is_written_once_and_says_by_whom() {
        let (_, mut pod) = made();
        let patch = running(&pod, &[ADDRESS], Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(patch["status"]["podIPs"], json!([{"ip": "192.0.2.1"}]));
        assert_eq!(patch["status"]["conditions"][3]["message"], WORDS);
        pod.status = serde_json::from_value(patch["status"].clone()).unwrap();
        assert_eq!(running(&pod, &[ADDRESS], Timestamp::UNIX_EPOCH), None);
    }
}
