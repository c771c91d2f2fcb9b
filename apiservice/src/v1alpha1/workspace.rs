//! Workspace: a virtual machine, a container or a scratch pod that a user works in.

use k8s_openapi::{api::core::v1::PodSpec, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::SshStatus;
use crate::schema;

/// Workspace is a virtual machine, a container or a scratch pod that a user works in.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Workspace {
    /// Standard object metadata.
    #[schemars(schema_with = "schema::any_object")]
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What should run.
    pub spec: WorkspaceSpec,
    /// What runs, as observed by the controller.
    #[serde(default)]
    pub status: WorkspaceStatus,
}

/// What a workspace should run.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceSpec {
    /// How the workspace runs: `container` (a StatefulSet of one pod), `scratch` (a Deployment), or
    /// `vm` (a KubeVirt VirtualMachine). Cannot be changed once set.
    #[serde(default, rename = "type")]
    pub workspace_type: WorkspaceType,
    /// The pod, in the shape of a PodSpec for all types; for a vm the first container's image is the
    /// guest's root disk, and its resources and ports are the guest's.
    pub template: WorkspaceTemplate,
    /// Disks and CD-ROMs to attach to the guest (type vm only).
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[serde(default)]
    pub volume_mounts: Vec<GuestMount>,
}

/// How a workspace runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WorkspaceType {
    /// A StatefulSet of one pod.
    #[default]
    Container,
    /// A Deployment of one pod.
    Scratch,
    /// A KubeVirt VirtualMachine.
    Vm,
}

impl WorkspaceType {
    /// As `spec.type` spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Container => "container",
            Self::Scratch => "scratch",
            Self::Vm => "vm",
        }
    }
}

/// The pod of a workspace.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceTemplate {
    /// Metadata of the pod: labels and annotations. Other fields are accepted as in every
    /// PodTemplateSpec, and have no effect. A change reaches the pod when the workspace is started the
    /// next time.
    #[schemars(schema_with = "schema::pod_template_metadata")]
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The pod's specification.
    #[schemars(schema_with = "schema::pod_spec_schema")]
    pub spec: PodSpec,
}

/// A disk or CD-ROM of the guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GuestMount {
    /// Name of the WorkspaceVolume (a DataVolume of the same name).
    pub name: String,
    /// Where the guest mounts a disk, as `/data`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount_path: Option<String>,
    /// `disk` (default) or `cdrom`.
    #[serde(default, rename = "type")]
    pub mount_type: MountType,
    /// Bus; disks default to virtio, CD-ROMs to sata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus: Option<DiskBus>,
    /// Whether the guest may write; CD-ROMs are always read-only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
}

/// What a guest mount is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MountType {
    /// A block device.
    #[default]
    Disk,
    /// An optical drive.
    Cdrom,
}

/// The bus of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum DiskBus {
    Virtio,
    Scsi,
    Sata,
    Usb,
}

/// What a workspace runs, as observed by the controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceStatus {
    /// The generation that this status describes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub observed_generation: i64,
    /// Where the workspace is in its life.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Ready, and what stands in its way.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// 1 when the workspace can be used, else 0.
    #[serde(default)]
    pub ready_replicas: i32,
    /// State of the main container.
    #[schemars(schema_with = "schema::any_object")]
    #[serde(default)]
    pub container_state: Map<String, Value>,
    /// The workspace's address on the pod network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// All addresses on the pod network.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// Node that the workspace runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// The catalog entry that the workspace was made from, resolved once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ResolvedImage>,
    /// The host keys of the guest's SSH server, as they were at the first contact. Written by the
    /// server alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh: Option<SshStatus>,
}

// serde asks for a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(value: &i64) -> bool {
    *value == 0
}

/// Where a workspace is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub enum Phase {
    Pending,
    Starting,
    Running,
    Stopping,
    Stopped,
    Failed,
    Terminating,
    Unknown,
}

impl Phase {
    /// As `status.phase` spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Starting => "Starting",
            Self::Running => "Running",
            Self::Stopping => "Stopping",
            Self::Stopped => "Stopped",
            Self::Failed => "Failed",
            Self::Terminating => "Terminating",
            Self::Unknown => "Unknown",
        }
    }
}

/// One aspect of a workspace's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// `Ready`, `KubeVirtAvailable` and the like.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why, in one word that can be acted on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When `status` last changed (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<String>,
    /// When it was last looked at (RFC 3339); kept for existing manifests, not written by us.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_probe_time: Option<String>,
    /// The generation that it describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// A catalog entry as it was when the workspace was made from it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResolvedImage {
    /// Name of the Image; empty when none matches the main container's image.
    #[serde(default)]
    pub name: String,
    /// UID of the Image.
    #[serde(default)]
    pub uid: String,
    /// Generation of the Image.
    #[serde(default)]
    pub generation: i64,
    /// The settings taken over from it, without credentials.
    #[schemars(schema_with = "schema::any_object")]
    #[serde(default)]
    pub settings: Map<String, Value>,
}
