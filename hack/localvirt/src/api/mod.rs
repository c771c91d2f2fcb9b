//! KubeVirt's objects as localvirt reads them.
//!
//! Objects travel as [`DynamicObject`]s, so that nothing is lost when they are copied or patched, and a
//! malformed one is one failed reconciliation rather than a broken watch. The structs here are read-only
//! views of the fields that localvirt acts on. Source: `staging/src/kubevirt.io/api/core/v1/types.go`.

mod condition;
mod migration_state;
mod vm;
mod vmi;
mod volume;

pub use condition::{Condition, set as set_condition};
pub use migration_state::MigrationState;
pub use vm::{Machine, RunStrategy, StartFailure, StateChange, VmStatus};
pub use vmi::{Instance, Interface, Phase, PhaseTransition};
pub use volume::{CloudInit, Disk, DiskTarget, Volume, VolumeSource};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};

/// KubeVirt's API group.
pub const GROUP: &str = "kubevirt.io";
/// Group and version of everything read and written here.
pub const API_VERSION: &str = "kubevirt.io/v1";
/// Held on a VirtualMachine until its instance is gone.
pub const VM_FINALIZER: &str = "kubevirt.io/virtualMachineControllerFinalize";
/// Held on a VirtualMachineInstance until its launcher is gone.
pub const VMI_FINALIZER: &str = "kubevirt.io/foregroundDeleteVirtualMachine";

/// An object of KubeVirt's that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// A field has a type that its schema forbids, which only an object older than the schema can have.
    #[error("{kind} {namespace}/{name} cannot be read: {source}")]
    Malformed {
        /// Kind of the object.
        kind: &'static str,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// What serde found.
        #[source]
        source: serde_json::Error,
    },
}

/// `virtualmachines`.
pub fn vm_resource() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1", "VirtualMachine"))
}

/// `virtualmachineinstances`.
pub fn vmi_resource() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(
        GROUP,
        "v1",
        "VirtualMachineInstance",
    ))
}

/// `virtualmachineinstancemigrations`.
pub fn migration_resource() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(
        GROUP,
        "v1",
        "VirtualMachineInstanceMigration",
    ))
}

/// The reference that a controller leaves on what it creates.
pub fn controller_of(owner: &ObjectMeta, kind: &str) -> OwnerReference {
    OwnerReference {
        api_version: API_VERSION.to_owned(),
        kind: kind.to_owned(),
        name: owner.name.clone().unwrap_or_default(),
        uid: owner.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Whether the object is controlled by exactly this owner (by UID: names come back, UIDs do not).
pub fn is_controlled_by(meta: &ObjectMeta, owner_uid: &str) -> bool {
    meta.owner_references
        .iter()
        .flatten()
        .any(|r| r.controller == Some(true) && r.uid == owner_uid)
}

fn malformed(kind: &'static str, object: &DynamicObject, source: serde_json::Error) -> ObjectError {
    ObjectError::Malformed {
        kind,
        namespace: object.metadata.namespace.clone().unwrap_or_default(),
        name: object.metadata.name.clone().unwrap_or_default(),
        source,
    }
}
