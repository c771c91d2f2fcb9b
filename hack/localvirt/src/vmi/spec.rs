//! VirtualMachineInstance → what its launcher runs ([`Spec`]).

use std::path::PathBuf;

use super::names;
use crate::{
    api::{self, DiskTarget, Instance, VolumeSource},
    launcher::spec::{
        AcceleratorChoice, Bus, CloudInit, DISKS_DIR, Device, Disk, DiskKind, DiskSource,
        Interface, Port, Protocol, SEEDS_DIR, SeedSource, Spec, SpecError,
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
    /// cloud-init's inline data is no text.
    #[error("cloud-init: {0}")]
    CloudInit(String),
    /// The launcher would refuse it.
    #[error(transparent)]
    Spec(#[from] SpecError),
}

/// The launcher's spec.
///
/// # Errors
/// When the instance asks for what no guest can have.
pub fn launcher_spec(vmi: &Instance, control_port: u16) -> Result<Spec, RunError> {
    let hostname = vmi
        .hostname
        .clone()
        .unwrap_or_else(|| names::hostname(vmi.name()));
    let mut disks = Vec::new();
    for disk in &vmi.disks {
        let volume = vmi.volumes.iter().find(|v| v.name == disk.name);
        if let Some(volume) = volume
            && let Some(source) = source(&disk.name, &volume.source)?
        {
            disks.push(launcher_disk(disk, source));
        }
    }
    let cloud_init = seed_of(vmi)
        .map(|data| seed(vmi, data, &hostname))
        .transpose()?;
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
        log_serial_console: vmi.log_serial,
        graphics: vmi.has_graphics,
        devices: devices(vmi),
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

/// What the guest finds on its buses beside disks and network.
fn devices(vmi: &Instance) -> Vec<Device> {
    let tablet = vmi.has_tablet.then_some(Device::Tablet);
    let sound = vmi.has_sound.then_some(Device::Sound);
    let gpus = std::iter::repeat_n(Device::Gpu, vmi.host_devices);
    tablet.into_iter().chain(sound).chain(gpus).collect()
}

/// The instance's one cloud-init volume; KubeVirt refuses a second.
pub fn seed_of(vmi: &Instance) -> Option<&api::CloudInit> {
    vmi.volumes.iter().find_map(|v| match &v.source {
        VolumeSource::CloudInit(data) => Some(&**data),
        _ => None,
    })
}

/// Where the Secret with the user data is mounted.
pub fn user_seed_dir() -> PathBuf {
    PathBuf::from(SEEDS_DIR).join("user")
}

/// Where a Secret of its own for the network data is mounted.
pub fn network_seed_dir() -> PathBuf {
    PathBuf::from(SEEDS_DIR).join("network")
}

fn seed(vmi: &Instance, data: &api::CloudInit, hostname: &str) -> Result<CloudInit, RunError> {
    let user = inline("userdata", &data.user_data, &data.user_data_base64)?;
    let mounted = data.secret_ref.is_some();
    let user = user.or_else(|| mounted.then(|| SeedSource::Mounted(user_seed_dir())));
    let network = inline("networkdata", &data.network_data, &data.network_data_base64)?;
    let network = network.or_else(|| match &data.network_data_secret_ref {
        Some(_) => Some(SeedSource::Mounted(network_seed_dir())),
        // One Secret may hold both; only a reference of its own makes its absence an error.
        None => mounted.then(|| SeedSource::MountedIfThere(user_seed_dir())),
    });
    Ok(CloudInit {
        user_data: user.unwrap_or_else(|| SeedSource::Text(String::new())),
        network_data: network,
        hostname: hostname.to_owned(),
        // KubeVirt derives it from the firmware's UUID: a machine that is restarted is no new cloud-init instance.
        instance_id: vmi.spec["domain"]["firmware"]["uuid"]
            .as_str()
            .unwrap_or(vmi.uid())
            .to_owned(),
    })
}

fn inline(
    key: &str,
    text: &Option<String>,
    base64: &Option<String>,
) -> Result<Option<SeedSource>, RunError> {
    use base64::Engine as _;
    let Some(encoded) = base64.as_ref().filter(|_| text.is_none()) else {
        return Ok(text.clone().map(SeedSource::Text));
    };
    let bytes = base64::engine::general_purpose::STANDARD.decode(encoded);
    let bytes = bytes.map_err(|_| RunError::CloudInit(format!("the inline {key} is no base64")))?;
    let text = String::from_utf8(bytes);
    let text = text.map_err(|_| RunError::CloudInit(format!("{key} is no UTF-8 text")))?;
    Ok(Some(SeedSource::Text(text)))
}

#[cfg(test)]
mod tests {
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

    fn run(volume: Value) -> Result<Spec, RunError> {
        launcher_spec(&instance(spec(volume), json!({})), 49186)
    }

    fn seed_from(source: Value) -> CloudInit {
        let spec = run(json!({"name": "x", "cloudInitNoCloud": source}));
        spec.unwrap().cloud_init.unwrap()
    }

    #[test]
    fn the_launcher_is_told_the_domain() {
        let spec = run(json!({"name": "x", "emptyDisk": {"capacity": "1Gi"}})).unwrap();
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
    fn devices_are_those_of_the_domain() {
        let with = |devices: Value| {
            let domain = json!({"memory": {"guest": "256Mi"}, "devices": devices});
            let vmi = instance(json!({ "domain": domain }), json!({}));
            let spec = launcher_spec(&vmi, 49186).unwrap();
            (spec.devices, spec.log_serial_console)
        };
        assert_eq!(with(json!({})), (vec![], false));
        let all = json!({
            "inputs": [{"name": "t", "type": "tablet", "bus": "usb"}], "sound": {"name": "s", "model": "ich9"},
            "gpus": [{"name": "g", "deviceName": "nvidia.com/TU104"}], "logSerialConsole": true,
        });
        assert_eq!(
            with(all),
            (vec![Device::Tablet, Device::Sound, Device::Gpu], true)
        );
    }

    #[test]
    fn inline_user_data_is_the_same_in_both_spellings() {
        for source in [
            json!({"userData": "#cloud-config"}),
            json!({"userDataBase64": "I2Nsb3VkLWNvbmZpZw=="}),
        ] {
            let seed = seed_from(source.clone());
            let text = SeedSource::Text("#cloud-config".into());
            assert_eq!(seed.user_data, text, "{source}");
            assert_eq!(
                (seed.instance_id.as_str(), seed.hostname.as_str()),
                ("firm", "demo")
            );
            assert_eq!(seed.network_data, None);
        }
        let wrong = run(json!({"name": "x", "cloudInitNoCloud": {"userDataBase64": "%"}}));
        assert!(wrong.unwrap_err().to_string().contains("no base64"));
    }

    #[test]
    fn secrets_are_named_and_never_read() {
        let one = seed_from(json!({"secretRef": {"name": "s"}}));
        assert_eq!(one.user_data, SeedSource::Mounted("/seeds/user".into()));
        assert_eq!(
            one.network_data,
            Some(SeedSource::MountedIfThere("/seeds/user".into()))
        );
        let two =
            seed_from(json!({"secretRef": {"name": "s"}, "networkDataSecretRef": {"name": "n"}}));
        assert_eq!(
            two.network_data,
            Some(SeedSource::Mounted("/seeds/network".into()))
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
