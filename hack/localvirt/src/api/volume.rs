//! Disks of a VirtualMachineInstance and the volumes behind them.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::LocalObjectReference, apimachinery::pkg::api::resource::Quantity,
};
use serde::Deserialize;
use serde_json::Value;

/// How a disk appears to the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskTarget {
    /// A hard disk.
    Disk,
    /// A CD-ROM.
    Cdrom,
    /// A SCSI LUN.
    Lun,
}

/// `spec.domain.devices.disks[]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Disk {
    /// Name of the volume behind it.
    pub name: String,
    disk: Option<Value>,
    cdrom: Option<Value>,
    lun: Option<Value>,
    /// Seen in the guest under `/dev/disk/by-id`.
    pub serial: Option<String>,
    /// 1 boots first.
    pub boot_order: Option<u32>,
}

impl Disk {
    /// What it is; a disk if nothing is said.
    pub fn target(&self) -> DiskTarget {
        match (&self.cdrom, &self.lun) {
            (Some(_), _) => DiskTarget::Cdrom,
            (None, Some(_)) => DiskTarget::Lun,
            (None, None) => DiskTarget::Disk,
        }
    }

    /// The bus it asks for.
    pub fn bus(&self) -> Option<&str> {
        [&self.disk, &self.cdrom, &self.lun]
            .into_iter()
            .flatten()
            .find_map(|t| t["bus"].as_str())
    }
}

/// Where cloud-init's data comes from: inline, or a Secret with the keys `userdata` and `networkdata`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CloudInit {
    /// Inline user data.
    pub user_data: Option<String>,
    /// The same in base64.
    pub user_data_base64: Option<String>,
    /// A Secret with `userdata`.
    #[serde(alias = "userDataSecretRef")]
    pub secret_ref: Option<LocalObjectReference>,
    /// Inline network data.
    pub network_data: Option<String>,
    /// The same in base64.
    pub network_data_base64: Option<String>,
    /// A Secret with `networkdata`.
    pub network_data_secret_ref: Option<LocalObjectReference>,
}

/// What a volume is made of. Anything that localvirt has no code for is `Other`.
#[derive(Clone, Debug)]
pub enum VolumeSource {
    /// A disk image inside a container image; changes are lost at the end.
    ContainerDisk {
        /// The container image.
        image: String,
        /// The file in it, else the only file in `/disk`.
        path: Option<String>,
        /// `Always`, `IfNotPresent`, `Never`.
        pull_policy: Option<String>,
        /// Credentials for the registry.
        pull_secret: Option<String>,
    },
    /// cloud-init's NoCloud or ConfigDrive seed.
    CloudInit(Box<CloudInit>),
    /// An empty disk that lives as long as the instance.
    EmptyDisk {
        /// Its size.
        capacity: Quantity,
    },
    /// A claim, or a DataVolume, whose claim has the same name.
    Claim(String),
    /// The key of a source without code here.
    Other(String),
}

/// `spec.volumes[]`.
#[derive(Clone, Debug)]
pub struct Volume {
    /// Its name.
    pub name: String,
    /// What it is made of.
    pub source: VolumeSource,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawVolume {
    name: String,
    container_disk: Option<RawContainerDisk>,
    cloud_init_no_cloud: Option<CloudInit>,
    cloud_init_config_drive: Option<CloudInit>,
    empty_disk: Option<RawEmptyDisk>,
    persistent_volume_claim: Option<RawClaim>,
    data_volume: Option<RawDataVolume>,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawContainerDisk {
    image: String,
    path: Option<String>,
    image_pull_policy: Option<String>,
    image_pull_secret: Option<String>,
}

#[derive(Debug, Deserialize)]
struct RawEmptyDisk {
    capacity: Quantity,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawClaim {
    claim_name: String,
}

#[derive(Debug, Deserialize)]
struct RawDataVolume {
    name: String,
}

impl From<RawVolume> for Volume {
    fn from(raw: RawVolume) -> Self {
        let cloud_init = raw.cloud_init_no_cloud.or(raw.cloud_init_config_drive);
        let source = if let Some(c) = raw.container_disk {
            VolumeSource::ContainerDisk {
                image: c.image,
                path: c.path,
                pull_policy: c.image_pull_policy,
                pull_secret: c.image_pull_secret,
            }
        } else if let Some(c) = cloud_init {
            VolumeSource::CloudInit(Box::new(c))
        } else if let Some(e) = raw.empty_disk {
            VolumeSource::EmptyDisk {
                capacity: e.capacity,
            }
        } else if let Some(c) = raw.persistent_volume_claim {
            VolumeSource::Claim(c.claim_name)
        } else if let Some(d) = raw.data_volume {
            VolumeSource::Claim(d.name)
        } else {
            VolumeSource::Other(raw.rest.into_keys().next().unwrap_or_default())
        };
        Self {
            name: raw.name,
            source,
        }
    }
}
