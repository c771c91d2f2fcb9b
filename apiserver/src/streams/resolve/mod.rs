//! From a Workspace to the one machine or pod that is its own, by UIDs.
//!
//! Our rights reach every machine; the caller's reach one Workspace. So a name is never enough: each
//! step from Workspace to VirtualMachine to VirtualMachineInstance to pod, or to StatefulSet,
//! ReplicaSet and pod, is proved by the controller's UID, before the dial and again after it.
//!
//! **Architecture Invariant:** this module decides over objects it is given; [`fetch`] only gets them.

pub mod fetch;
mod machine;
mod pod;
mod workspace;

pub use machine::{Machine, cause, features, is_over, machine};
pub use pod::{Container, Pods, container, own_pods};
pub use workspace::{Kind, Workspace};

use apiserver_generic::{ApiError, Object};

use super::{close::CloseReason, ssh::hostkeys::Root};

/// A resolved upstream, by every UID on the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A virtual machine.
    Machine(Machine),
    /// A container.
    Container(Container),
}

impl Target {
    /// UID of the pod that runs it.
    pub fn pod_uid(&self) -> &str {
        match self {
            Self::Machine(machine) => &machine.pod_uid,
            Self::Container(container) => &container.pod_uid,
        }
    }
}

/// A target, and what it has to offer at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// What must be the same before and after the dial.
    pub target: Target,
    /// What may change without it becoming another.
    pub features: Features,
}

/// What a target has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// A serial line.
    pub serial: bool,
    /// A display.
    pub graphics: bool,
    /// Whether its CPUs are stopped.
    pub paused: bool,
    /// The address that KubeVirt would dial; the guest's agent may have said it.
    pub reported_address: Option<String>,
    /// Whether its pod is on the node's own network.
    pub host_network: bool,
    /// A machine's root disk, which its host keys live as long as.
    pub root: Option<Root>,
}

/// Seconds after which a client should ask again while something starts.
const STARTING_RETRY: u32 = 2;

/// Why there is nothing to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unresolved {
    /// The workspace is being deleted.
    Deleting,
    /// The workspace is stopped.
    Stopped,
    /// It will be there soon; what it is doing.
    Starting(String),
    /// It ended by itself.
    Failed(String),
    /// The machine has no serial line.
    NoSerial,
    /// The machine has no display.
    NoDisplay,
    /// The machine's CPUs are stopped, and the stream needs them.
    Paused,
    /// Something carries the name and belongs to somebody else.
    Foreign(String),
}

impl Unresolved {
    /// As the caller reads it. Clients that wait do so on 400 only, hence no 409 or 503 for a start.
    pub fn into_error(self, workspace: &str) -> ApiError {
        let conflict =
            |why: &str| ApiError::conflict("kubeworkspaces.io", "workspaces", workspace, why);
        match self {
            Self::Deleting => conflict("the workspace is being deleted"),
            Self::Stopped => conflict(&format!(
                "the workspace is stopped; start it with: kubectl workspace start {workspace}"
            )),
            Self::Starting(doing) => ApiError::bad_request(format!(
                "workspace \"{workspace}\" is not running yet: {doing}; try again in a moment"
            ))
            .retry_after(STARTING_RETRY),
            Self::Failed(how) => conflict(&format!(
                "{how}; kubectl describe workspace {workspace} may say why, and a stop and start begins anew"
            )),
            Self::NoSerial => conflict(
                "the machine has no serial console (autoattachSerialConsole is false); use vnc or ssh",
            ),
            Self::NoDisplay => conflict(
                "the machine has no display (autoattachGraphicsDevice is false); use console or ssh",
            ),
            Self::Paused => conflict(&format!(
                "the machine is paused and answers nothing; resume it with: virtctl unpause vm {workspace}"
            )),
            Self::Foreign(what) => conflict(&format!(
                "{what} does not belong to this workspace; rename one of the two"
            )),
        }
    }
}

impl Unresolved {
    /// As the reason of a close, for a workspace that is not to run any more.
    pub fn into_close(self) -> CloseReason {
        match self {
            Self::Deleting => CloseReason::Deleted,
            Self::Stopped => CloseReason::Stopped,
            _ => CloseReason::GuestGone,
        }
    }
}

/// Name and UID of the controlling owner of this group and kind.
fn controller<'a>(object: &'a Object, group: &str, kind: &str) -> Option<(&'a str, &'a str)> {
    let owners = object.pointer("/metadata/ownerReferences")?.as_array()?;
    let owner = owners.iter().find(|o| {
        o["controller"] == true
            && o["kind"] == kind
            && o["apiVersion"]
                .as_str()
                .and_then(|v| v.split_once('/'))
                .is_some_and(|(g, _)| g == group)
    })?;
    Some((owner["name"].as_str()?, owner["uid"].as_str()?))
}

/// Whether the object's controller is this one.
pub(crate) fn controlled_by(object: &Object, group: &str, kind: &str, uid: &str) -> bool {
    !uid.is_empty() && controller(object, group, kind).is_some_and(|(_, owner)| owner == uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_clients_get_400_and_a_time_and_others_409() {
        let cases = [
            (Unresolved::Deleting, 409, None),
            (Unresolved::Stopped, 409, None),
            (Unresolved::Starting("Scheduling".into()), 400, Some(2)),
            (Unresolved::Failed("it failed".into()), 409, None),
            (Unresolved::NoSerial, 409, None),
            (Unresolved::NoDisplay, 409, None),
            (Unresolved::Paused, 409, None),
            (Unresolved::Foreign("the pod".into()), 409, None),
        ];
        for (unresolved, code, retry) in cases {
            let error = unresolved.into_error("demo");
            assert_eq!(error.reason.code(), code, "{}", error.message);
            let seconds = error.details.and_then(|d| d.retry_after_seconds);
            assert_eq!(seconds, retry);
        }
    }
}
