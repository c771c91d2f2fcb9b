//! The view of a VirtualMachineInstance.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Affinity, Toleration},
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta},
};
use kube::core::DynamicObject;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Condition, Disk, MigrationState, ObjectError, Volume, malformed, volume::RawVolume};

/// `status.phase`, in the order in which an instance goes through them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Phase {
    /// Just created; nothing has looked at it yet.
    #[default]
    #[serde(rename = "")]
    Unset,
    /// No launcher yet.
    Pending,
    /// The launcher is being placed and its images are being pulled.
    Scheduling,
    /// The launcher runs; the guest does not yet.
    Scheduled,
    /// The guest runs.
    Running,
    /// The guest powered itself off.
    Succeeded,
    /// The guest or its launcher died.
    Failed,
}

impl Phase {
    /// Whether nothing follows.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }

    /// The word in `status.phase`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unset => "",
            Self::Pending => "Pending",
            Self::Scheduling => "Scheduling",
            Self::Scheduled => "Scheduled",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }
}

/// When a phase was reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PhaseTransition {
    /// Which.
    pub phase: Phase,
    /// When, RFC 3339.
    pub phase_transition_timestamp: String,
}

/// A port that masquerade forwards.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Port {
    /// Its number.
    pub port: u16,
    /// `TCP` (default) or `UDP`.
    pub protocol: Option<String>,
}

/// `spec.domain.devices.interfaces[]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Interface {
    /// Name of the network behind it.
    pub name: String,
    /// Its address, else the launcher's choice.
    pub mac_address: Option<String>,
    /// Forwarded ports; empty forwards what the launcher can forward.
    pub ports: Vec<Port>,
    /// Set for the masquerade binding.
    pub masquerade: Option<Value>,
}

/// `cpu.sockets`, `.cores`, `.threads`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Cpu {
    sockets: Option<u32>,
    cores: Option<u32>,
    threads: Option<u32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Memory {
    guest: Option<Quantity>,
}

/// Requests and limits of the domain.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Resources {
    /// Asked of the scheduler.
    pub requests: BTreeMap<String, Quantity>,
    /// Never exceeded.
    pub limits: BTreeMap<String, Quantity>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Domain {
    cpu: Cpu,
    memory: Memory,
    resources: Resources,
    devices: Devices,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Devices {
    disks: Vec<Disk>,
    interfaces: Vec<Interface>,
    autoattach_serial_console: Option<bool>,
    autoattach_graphics_device: Option<bool>,
    video: Option<Value>,
    inputs: Vec<Value>,
    sound: Option<Value>,
    gpus: Vec<Value>,
    host_devices: Vec<Value>,
    log_serial_console: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    domain: Domain,
    volumes: Vec<RawVolume>,
    hostname: Option<String>,
    start_strategy: Option<String>,
    termination_grace_period_seconds: Option<i64>,
    node_selector: BTreeMap<String, String>,
    affinity: Option<Affinity>,
    tolerations: Vec<Toleration>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: Phase,
    migration_state: Option<MigrationState>,
    node_name: Option<String>,
    conditions: Vec<Condition>,
    phase_transition_timestamps: Vec<PhaseTransition>,
    active_pods: BTreeMap<String, String>,
    interfaces: Vec<InterfaceStatus>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct InterfaceStatus {
    ip_address: Option<String>,
}

/// A VirtualMachineInstance as localvirt reads it.
#[derive(Clone, Debug)]
pub struct Instance {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// Its spec as written.
    pub spec: Value,
    /// Its status as written.
    pub status: Value,
    /// Where it is.
    pub phase: Phase,
    /// The node of its launcher.
    pub node_name: Option<String>,
    /// Its conditions.
    pub conditions: Vec<Condition>,
    /// The phases so far.
    pub transitions: Vec<PhaseTransition>,
    /// Launcher pods by UID, with their nodes.
    pub active_pods: BTreeMap<String, String>,
    /// The last migration.
    pub migration: Option<MigrationState>,
    /// The first interface's address; `Some("")` if there is one without an address.
    pub first_address: Option<String>,
    /// Disks, in the order of the spec.
    pub disks: Vec<Disk>,
    /// Volumes, in the order of the spec.
    pub volumes: Vec<Volume>,
    /// Network interfaces.
    pub interfaces: Vec<Interface>,
    /// Requests and limits.
    pub resources: Resources,
    /// `memory.guest`.
    pub guest_memory: Option<Quantity>,
    /// `cpu`.
    pub cpu: Cpu,
    /// The guest's host name, else the instance's name.
    pub hostname: Option<String>,
    /// Whether the guest starts with its vCPUs stopped.
    pub starts_paused: bool,
    /// How long the guest may take to power off.
    pub grace_seconds: i64,
    /// Whether there is a serial console.
    pub has_serial: bool,
    /// Whether there is a display.
    pub has_graphics: bool,
    /// `video.type`, if `video` is there (empty if it is without a type).
    pub video: Option<String>,
    /// Whether there is a tablet (`inputs`).
    pub has_tablet: bool,
    /// Whether there is a sound card.
    pub has_sound: bool,
    /// How many GPUs and other host devices there are.
    pub host_devices: usize,
    /// Whether the console's output goes to the launcher's log too.
    pub log_serial: bool,
    /// Where the launcher may run.
    pub node_selector: BTreeMap<String, String>,
    /// The same, in more words.
    pub affinity: Option<Affinity>,
    /// Taints that do not matter.
    pub tolerations: Vec<Toleration>,
}

/// KubeVirt's own default for `terminationGracePeriodSeconds`.
const DEFAULT_GRACE_SECONDS: i64 = 30;

impl Instance {
    /// Reads the view.
    ///
    /// # Errors
    /// When the object does not have the shape of its schema.
    pub fn read(object: &DynamicObject) -> Result<Self, ObjectError> {
        let fail = |e| malformed("VirtualMachineInstance", object, e);
        let spec = Spec::deserialize(&object.data["spec"]).map_err(fail)?;
        let status = Option::<Status>::deserialize(&object.data["status"]).map_err(fail)?;
        Ok(Self::assemble(object, spec, status.unwrap_or_default()))
    }

    fn assemble(object: &DynamicObject, spec: Spec, status: Status) -> Self {
        let Domain {
            cpu,
            memory,
            resources,
            devices,
        } = spec.domain;
        let video = devices
            .video
            .map(|v| v["type"].as_str().unwrap_or_default().to_owned());
        Self {
            meta: object.metadata.clone(),
            spec: object.data["spec"].clone(),
            status: object.data["status"].clone(),
            phase: status.phase,
            node_name: status.node_name,
            conditions: status.conditions,
            transitions: status.phase_transition_timestamps,
            active_pods: status.active_pods,
            migration: status.migration_state,
            first_address: status
                .interfaces
                .into_iter()
                .next()
                .map(|i| i.ip_address.unwrap_or_default()),
            disks: devices.disks,
            volumes: spec.volumes.into_iter().map(Volume::from).collect(),
            interfaces: devices.interfaces,
            resources,
            guest_memory: memory.guest,
            cpu,
            hostname: spec.hostname,
            starts_paused: spec.start_strategy.as_deref() == Some("Paused"),
            grace_seconds: spec
                .termination_grace_period_seconds
                .unwrap_or(DEFAULT_GRACE_SECONDS),
            has_serial: devices.autoattach_serial_console != Some(false),
            has_graphics: devices.autoattach_graphics_device != Some(false),
            video,
            has_tablet: !devices.inputs.is_empty(),
            has_sound: devices.sound.is_some(),
            host_devices: devices.gpus.len() + devices.host_devices.len(),
            log_serial: devices.log_serial_console == Some(true),
            node_selector: spec.node_selector,
            affinity: spec.affinity,
            tolerations: spec.tolerations,
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.meta.name.as_deref().unwrap_or_default()
    }

    /// Its namespace.
    pub fn namespace(&self) -> &str {
        self.meta.namespace.as_deref().unwrap_or_default()
    }

    /// Its UID.
    pub fn uid(&self) -> &str {
        self.meta.uid.as_deref().unwrap_or_default()
    }

    /// Whether it is on its way out.
    pub fn is_deleted(&self) -> bool {
        self.meta.deletion_timestamp.is_some()
    }

    /// The condition of this type.
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|c| c.kind == kind)
    }

    /// Whether it ever reached `Running`.
    pub fn ever_ran(&self) -> bool {
        self.transitions.iter().any(|t| t.phase == Phase::Running)
    }

    /// vCPUs: sockets × cores × threads, at least one.
    pub fn vcpus(&self) -> u32 {
        let Cpu {
            sockets,
            cores,
            threads,
        } = self.cpu;
        [sockets, cores, threads]
            .into_iter()
            .map(|n| n.unwrap_or(1).max(1))
            .product()
    }

    /// Sockets, cores and threads, each at least one.
    pub fn topology(&self) -> (u32, u32, u32) {
        let at_least_one = |n: Option<u32>| n.unwrap_or(1).max(1);
        (
            at_least_one(self.cpu.sockets),
            at_least_one(self.cpu.cores),
            at_least_one(self.cpu.threads),
        )
    }
}
