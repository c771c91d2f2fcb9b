//! VirtualMachineInstance → what its launcher runs ([`Spec`]).

use std::path::PathBuf;

use k8s_openapi::api::core::v1::Secret;

use super::names;
use crate::{
    api::{self, DiskTarget, Instance, VolumeSource},
    launcher::spec::{
        AcceleratorChoice, Bus, CloudInit, DISKS_DIR, Disk, DiskKind, DiskSource, Interface, Port,
        Protocol, Spec, SpecError,
    },
    quantity,
};

/// Where the file system of a claim is mounted; the disk image in it is `disk.img`, as in KubeVirt.
pub const CLAIMS_DIR: &str = "/claims";

/// Why an instance cannot be run. It becomes the reason of its failure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// A number is out of range.
    #[error("{field}: {problem}")]
    Field {
        /// Path in the instance.
        field: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// cloud-init's data is not there or no text.
    #[error("cloud-init: {0}")]
    CloudInit(String),
    /// The launcher would refuse it.
    #[error(transparent)]
    Spec(#[from] SpecError),
}

/// The launcher's spec. `secrets` holds the Secrets that cloud-init volumes refer to.
///
/// # Errors
/// When the instance asks for what no guest can have.
pub fn launcher_spec(
    vmi: &Instance,
    secrets: &[Secret],
    control_port: u16,
) -> Result<Spec, RunError> {
    let hostname = vmi
        .hostname
        .clone()
        .unwrap_or_else(|| names::hostname(vmi.name()));
    let mut disks = Vec::new();
    let mut cloud_init = None;
    for disk in &vmi.disks {
        let Some(volume) = vmi.volumes.iter().find(|v| v.name == disk.name) else {
            continue;
        };
        match (&volume.source, source(&disk.name, &volume.source)?) {
            (VolumeSource::CloudInit(data), _) => {
                cloud_init = Some(seed(vmi, data, &hostname, secrets)?)
            }
            (_, Some(source)) => disks.push(launcher_disk(disk, source)),
            (_, None) => {}
        }
    }
    let spec = Spec {
        name: vmi.name().to_owned(),
        namespace: vmi.namespace().to_owned(),
        uid: vmi.uid().to_owned(),
        memory_mib: memory_mib(vmi)?,
        cpus: u8::try_from(vmi.vcpus()).map_err(|_| RunError::Field {
            field: "spec.domain.cpu",
            problem: format!("{} processors are more than 255", vmi.vcpus()),
        })?,
        disks,
        cloud_init,
        interface: interface(vmi),
        serial_console: vmi.has_serial,
        log_serial_console: false,
        graphics: vmi.has_graphics,
        devices: Vec::new(),
        start_paused: vmi.starts_paused,
        accelerator: AcceleratorChoice::Auto,
        grace_period_seconds: u32::try_from(vmi.grace_seconds.max(0)).unwrap_or(u32::MAX),
        control_port,
    };
    spec.check()?;
    Ok(spec)
}

/// The guest's memory in MiB.
///
/// # Errors
/// When none is asked for, or more than 4 PiB.
pub fn memory_mib(vmi: &Instance) -> Result<u32, RunError> {
    let memory = vmi.guest_memory.as_ref().ok_or_else(|| RunError::Field {
        field: "spec.domain.memory.guest",
        problem: "no memory is requested".into(),
    })?;
    quantity::bytes(memory)
        .and_then(|bytes| u32::try_from(bytes >> 20).ok())
        .ok_or_else(|| RunError::Field {
            field: "spec.domain.memory.guest",
            problem: format!("{:?} is no amount of memory", memory.0),
        })
}

fn source(name: &str, volume: &VolumeSource) -> Result<Option<DiskSource>, RunError> {
    Ok(match volume {
        VolumeSource::ContainerDisk { path, .. } => Some(DiskSource::ContainerDisk {
            root: PathBuf::from(DISKS_DIR).join(name),
            path: path.as_ref().map(PathBuf::from),
        }),
        VolumeSource::EmptyDisk { capacity } => Some(DiskSource::Empty {
            bytes: quantity::bytes(capacity).ok_or_else(|| RunError::Field {
                field: "spec.volumes.emptyDisk.capacity",
                problem: format!("{:?} is no size", capacity.0),
            })?,
        }),
        VolumeSource::Claim(_) => Some(DiskSource::Raw {
            file: PathBuf::from(CLAIMS_DIR).join(name).join("disk.img"),
        }),
        VolumeSource::CloudInit(_) | VolumeSource::Other(_) => None,
    })
}

fn launcher_disk(disk: &api::Disk, source: DiskSource) -> Disk {
    let kind = match disk.target() {
        DiskTarget::Cdrom => DiskKind::Cdrom,
        DiskTarget::Disk | DiskTarget::Lun => DiskKind::Disk,
    };
    let bus = match disk.bus() {
        Some("virtio") => Bus::Virtio,
        Some("scsi") => Bus::Scsi,
        Some("usb") => Bus::Usb,
        _ => Bus::Sata,
    };
    Disk {
        name: disk.name.clone(),
        source,
        kind,
        bus,
        read_only: kind == DiskKind::Cdrom,
        serial: disk.serial.clone(),
        boot_order: disk.boot_order,
    }
}

fn interface(vmi: &Instance) -> Option<Interface> {
    let nic = vmi.interfaces.first()?;
    let ports = nic.ports.iter().map(|p| Port {
        port: p.port,
        protocol: if p.protocol.as_deref() == Some("UDP") {
            Protocol::Udp
        } else {
            Protocol::Tcp
        },
    });
    let unspecified = [
        std::net::Ipv4Addr::UNSPECIFIED.into(),
        std::net::Ipv6Addr::UNSPECIFIED.into(),
    ];
    Some(Interface {
        mac: mac_address(vmi),
        ports: ports.collect(),
        listen: unspecified.to_vec(),
    })
}

/// The first interface's address: the one asked for, else one made from the UID (locally administered, unicast).
pub fn mac_address(vmi: &Instance) -> String {
    if let Some(mac) = vmi.interfaces.first().and_then(|i| i.mac_address.clone()) {
        return mac;
    }
    use sha2::{Digest as _, Sha256};
    let hash = Sha256::digest(vmi.uid().as_bytes());
    format!(
        "02:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}",
        hash[0], hash[1], hash[2], hash[3], hash[4]
    )
}

/// Names of the Secrets that must be read before [`launcher_spec`].
pub fn referenced_secrets(vmi: &Instance) -> Vec<String> {
    let seeds = vmi.volumes.iter().filter_map(|v| match &v.source {
        VolumeSource::CloudInit(data) => Some(data),
        _ => None,
    });
    let names = seeds.flat_map(|d| [&d.secret_ref, &d.network_data_secret_ref]);
    let mut names: Vec<String> = names.flatten().map(|r| r.name.clone()).collect();
    names.sort();
    names.dedup();
    names
}

fn seed(
    vmi: &Instance,
    data: &api::CloudInit,
    hostname: &str,
    secrets: &[Secret],
) -> Result<CloudInit, RunError> {
    let user = text(
        &data.user_data,
        &data.user_data_base64,
        &data.secret_ref,
        "userdata",
        secrets,
    )?;
    let reference = data
        .network_data_secret_ref
        .as_ref()
        .or(data.secret_ref.as_ref())
        .cloned();
    let network = match (
        &data.network_data,
        &data.network_data_base64,
        &data.network_data_secret_ref,
    ) {
        // One Secret may hold both; only a reference of its own makes its absence an error.
        (None, None, None) => {
            text(&None, &None, &reference, "networkdata", secrets).unwrap_or_default()
        }
        (inline, base64, secret) => text(inline, base64, secret, "networkdata", secrets)?,
    };
    Ok(CloudInit {
        user_data: user.unwrap_or_default(),
        network_data: network,
        hostname: hostname.to_owned(),
        // KubeVirt derives it from the firmware's UUID: a machine that is restarted is no new cloud-init instance.
        instance_id: vmi.spec["domain"]["firmware"]["uuid"]
            .as_str()
            .unwrap_or(vmi.uid())
            .to_owned(),
    })
}

fn text(
    inline: &Option<String>,
    base64: &Option<String>,
    secret: &Option<k8s_openapi::api::core::v1::LocalObjectReference>,
    key: &str,
    secrets: &[Secret],
) -> Result<Option<String>, RunError> {
    use base64::Engine as _;
    let bytes = match (inline, base64, secret) {
        (Some(text), _, _) => return Ok(Some(text.clone())),
        (None, Some(encoded), _) => base64::engine::general_purpose::STANDARD
            .decode(encoded)
            .map_err(|_| RunError::CloudInit(format!("the inline {key} is no base64")))?,
        (None, None, Some(reference)) => secret_key(&reference.name, key, secrets)?,
        (None, None, None) => return Ok(None),
    };
    String::from_utf8(bytes)
        .map(Some)
        .map_err(|_| RunError::CloudInit(format!("{key} is no UTF-8 text")))
}

fn secret_key(name: &str, key: &str, secrets: &[Secret]) -> Result<Vec<u8>, RunError> {
    let secret = secrets
        .iter()
        .find(|s| s.metadata.name.as_deref() == Some(name))
        .ok_or_else(|| RunError::CloudInit(format!("secret {name:?} not found")))?;
    let data = secret.data.as_ref();
    // KubeVirt takes both spellings.
    [key.to_owned(), key.replace("data", "Data")]
        .iter()
        .find_map(|k| data?.get(k))
        .map(|bytes| bytes.0.clone())
        .ok_or_else(|| RunError::CloudInit(format!("secret {name:?} has no key {key:?}")))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::ByteString;
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::instance;

    fn spec(volume: Value) -> Value {
        json!({
            "domain": {
                "memory": {"guest": "256Mi"},
                "cpu": {"cores": 2},
                "firmware": {"uuid": "firm"},
                "devices": {
                    "disks": [{"name": "root", "disk": {"bus": "virtio"}, "serial": "R-1"}, {"name": "x", "disk": {"bus": "virtio"}}],
                    "interfaces": [{"name": "default", "macAddress": "02:00:00:00:00:07", "ports": [{"port": 80}, {"port": 53, "protocol": "UDP"}]}]
                }
            },
            "volumes": [{"name": "root", "containerDisk": {"image": "example.test/g:1"}}, volume]
        })
    }

    fn secret(data: &[(&str, &str)]) -> Secret {
        let bytes = |v: &str| ByteString(v.as_bytes().to_vec());
        let mut secret = Secret {
            data: Some(
                data.iter()
                    .map(|(k, v)| ((*k).into(), bytes(v)))
                    .collect::<BTreeMap<_, _>>(),
            ),
            ..Secret::default()
        };
        secret.metadata.name = Some("s".into());
        secret
    }

    fn run(volume: Value, secrets: &[Secret]) -> Result<Spec, RunError> {
        launcher_spec(&instance(spec(volume), json!({})), secrets, 49186)
    }

    #[test]
    fn the_launcher_is_told_the_domain() {
        let spec = run(json!({"name": "x", "emptyDisk": {"capacity": "1Gi"}}), &[]).unwrap();
        assert_eq!((spec.memory_mib, spec.cpus), (256, 2));
        assert_eq!(spec.disks.len(), 2);
        assert_eq!(spec.disks[0].serial.as_deref(), Some("R-1"));
        assert_eq!(spec.disks[1].source, DiskSource::Empty { bytes: 1 << 30 });
        let nic = spec.interface.unwrap();
        assert_eq!(nic.mac, "02:00:00:00:00:07");
        assert_eq!(
            nic.ports[1],
            Port {
                port: 53,
                protocol: Protocol::Udp
            }
        );
    }

    #[test]
    fn user_data_is_the_same_from_all_three_sources() {
        let cases = [
            json!({"userData": "#cloud-config"}),
            json!({"userDataBase64": "I2Nsb3VkLWNvbmZpZw=="}),
            json!({"secretRef": {"name": "s"}}),
        ];
        for source in cases {
            let spec = run(
                json!({"name": "x", "cloudInitNoCloud": source}),
                &[secret(&[("userdata", "#cloud-config")])],
            );
            let seed = spec.unwrap().cloud_init.unwrap();
            assert_eq!(seed.user_data, "#cloud-config", "{source}");
            assert_eq!(
                (seed.instance_id.as_str(), seed.hostname.as_str()),
                ("firm", "demo")
            );
            assert_eq!(seed.network_data, None);
        }
    }

    #[test]
    fn one_secret_may_hold_the_network_data_too() {
        let both = secret(&[("userdata", "u"), ("networkdata", "n")]);
        let spec = run(
            json!({"name": "x", "cloudInitNoCloud": {"secretRef": {"name": "s"}}}),
            &[both],
        )
        .unwrap();
        assert_eq!(spec.cloud_init.unwrap().network_data.as_deref(), Some("n"));
    }

    #[test]
    fn missing_cloud_init_data_is_named_and_never_shown() {
        let volume = json!({"name": "x", "cloudInitNoCloud": {"secretRef": {"name": "s"}}});
        let absent = run(volume.clone(), &[]).unwrap_err().to_string();
        assert!(absent.contains("\"s\" not found"), "{absent}");
        let other = run(volume, &[secret(&[("password", "hunter2")])])
            .unwrap_err()
            .to_string();
        assert!(
            other.contains("no key \"userdata\"") && !other.contains("hunter2"),
            "{other}"
        );
    }

    #[test]
    fn a_made_up_mac_address_is_local_unicast_and_stable() {
        let vmi = instance(json!({"domain": {}}), json!({}));
        let mac = mac_address(&vmi);
        assert!(mac.starts_with("02:") && mac.len() == 17, "{mac}");
        assert_eq!(mac, mac_address(&vmi));
    }
}
