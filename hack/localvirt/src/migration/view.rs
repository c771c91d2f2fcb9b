//! The view of a VirtualMachineInstanceMigration.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DynamicObject;
use serde::{Deserialize, Serialize};

/// `status.phase`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Phase {
    /// Nothing has looked at it yet.
    #[default]
    #[serde(rename = "")]
    Unset,
    /// It waits.
    Pending,
    /// There is a target Pod.
    Scheduling,
    /// The target Pod runs.
    Scheduled,
    /// The target makes ready.
    PreparingTarget,
    /// The target is ready.
    TargetReady,
    /// The guest is moving.
    Running,
    /// The guest has moved.
    Succeeded,
    /// It stays where it was.
    Failed,
}

/// A migration as localvirt reads it. What it has no code for is not read.
#[derive(Clone, Debug, Default)]
pub struct Migration {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// The instance to move.
    pub vmi_name: String,
    /// How far it is.
    pub phase: Phase,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Raw {
    spec: RawSpec,
    status: Option<RawStatus>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawSpec {
    vmi_name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawStatus {
    phase: Phase,
}

impl Migration {
    /// Reads the view.
    ///
    /// # Errors
    /// When the object does not have the shape of its schema.
    pub fn read(object: &DynamicObject) -> Result<Self, serde_json::Error> {
        let raw = Raw::deserialize(&object.data)?;
        Ok(Self {
            meta: object.metadata.clone(),
            vmi_name: raw.spec.vmi_name,
            phase: raw.status.unwrap_or_default().phase,
        })
    }

    /// Its UID.
    pub fn uid(&self) -> &str {
        self.meta.uid.as_deref().unwrap_or_default()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.meta.name.as_deref().unwrap_or_default()
    }

    /// Whether it is over.
    pub fn is_final(&self) -> bool {
        self.phase >= Phase::Succeeded
    }
}
