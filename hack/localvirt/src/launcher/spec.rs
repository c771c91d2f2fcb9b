//! What the VM controller tells a launcher: one JSON document, in the Secret that is mounted at [`CONFIG_DIR`].
//!
//! It is a Secret because cloud-init's user data is one. Entry point: [`Spec`]. The controller writes it, the launcher
//! checks it with [`Spec::check`] before anything is started.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Where the launcher's Secret is mounted.
pub const CONFIG_DIR: &str = "/etc/localvirt";
/// Key of the Secret, and name of the file, that holds the [`Spec`].
pub const SPEC_FILE: &str = "spec.json";
/// Key of the launcher's serving certificate (PEM); its one name is [`super::protocol::server_name`].
pub const CERT_FILE: &str = "tls.crt";
/// Key of the private key that belongs to [`CERT_FILE`] (PEM).
pub const KEY_FILE: &str = "tls.key";
/// Key of the CA (PEM) that issues both this launcher's certificate and localvirt's client certificate.
pub const CA_FILE: &str = "ca.crt";
/// An emptyDir: sockets, overlays and the NoCloud image. Short, since a unix socket's path has 107 bytes.
pub const RUN_DIR: &str = "/run/vm";
/// Each containerDisk is an image volume mounted whole at `DISKS_DIR/<volume name>`.
pub const DISKS_DIR: &str = "/disks";
/// Secrets of cloud-init are mounted in here.
pub const SEEDS_DIR: &str = "/seeds";
/// The control port when a spec names none.
pub const CONTROL_PORT: u16 = 49186;
/// The port of sshd, which is forwarded whether or not it is declared.
pub const SSH_PORT: u16 = 22;

/// q35 has 31 slots on its root bus, and the other devices need some.
const MAX_DISKS: usize = 20;

/// One virtual machine, as its launcher runs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Spec {
    /// Name of the VirtualMachineInstance; the guest's default host name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its UID; part of the name in the serving certificate.
    pub uid: String,
    /// Guest memory.
    pub memory_mib: u32,
    /// Virtual processors.
    #[serde(default = "one")]
    pub cpus: u8,
    /// Disks in the order in which the guest sees them; the first bootable one without `bootOrder` boots.
    pub disks: Vec<Disk>,
    /// NoCloud input; without it the guest boots as its image is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud_init: Option<CloudInit>,
    /// The one network card; without it the guest has no network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<Interface>,
    /// A serial line that `console` opens.
    #[serde(default = "yes")]
    pub serial_console: bool,
    /// Copies the console's output to standard output, for `kubectl logs` (KubeVirt's `logSerialConsole`).
    #[serde(default)]
    pub log_serial_console: bool,
    /// A display that `vnc` and `screendump` show.
    #[serde(default = "yes")]
    pub graphics: bool,
    /// Further devices.
    #[serde(default)]
    pub devices: Vec<Device>,
    /// Whether the processor stands still until `unpause` (KubeVirt's `startStrategy: Paused`).
    #[serde(default)]
    pub start_paused: bool,
    /// Which accelerator to use.
    #[serde(default)]
    pub accelerator: AcceleratorChoice,
    /// Seconds between the power button and the plug, after SIGTERM.
    #[serde(default = "half_a_minute")]
    pub grace_period_seconds: u32,
    /// TCP port of the control endpoint ([`super::protocol`]).
    #[serde(default = "control_port")]
    pub control_port: u16,
}

/// A device that a template asks for beside disks and network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Device {
    /// A USB tablet (`inputs`).
    Tablet,
    /// A sound card (`sound`), whose samples go nowhere.
    Sound,
    /// A PCI device that stands in for a passed-through GPU (`gpus`): the guest finds it, and can compute nothing on it.
    Gpu,
}

/// One disk or CD-ROM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Disk {
    /// The volume's name: a DNS label, unique in the spec.
    pub name: String,
    /// Where its bytes come from.
    pub source: DiskSource,
    /// What the guest sees it as.
    #[serde(default)]
    pub kind: DiskKind,
    /// What it hangs on.
    #[serde(default)]
    pub bus: Bus,
    /// The guest cannot write to it.
    #[serde(default)]
    pub read_only: bool,
    /// Serial number; virtio shows the guest its first 20 characters only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Place in the boot order, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_order: Option<u32>,
}

/// Where a disk's bytes come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum DiskSource {
    /// The file system of a containerDisk image; writes go to an overlay that ends with the pod.
    ContainerDisk {
        /// Where the image is mounted.
        root: PathBuf,
        /// Path of the disk inside the image, when it is not the only file in `/disk`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<PathBuf>,
    },
    /// A new blank disk that ends with the pod.
    Empty {
        /// Its size.
        bytes: u64,
    },
    /// A raw image file (or a block device) on a volume; writes stay.
    Raw {
        /// Its path in the launcher's container.
        file: PathBuf,
    },
}

/// What the guest sees a disk as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DiskKind {
    /// A hard disk.
    #[default]
    Disk,
    /// A CD-ROM drive with its medium in it.
    Cdrom,
}

/// What a disk hangs on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bus {
    /// virtio-blk.
    #[default]
    Virtio,
    /// virtio-scsi.
    Scsi,
    /// AHCI.
    Sata,
    /// usb-storage on xHCI.
    Usb,
}

/// NoCloud input, as the guest gets it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CloudInit {
    /// The user data, unchanged.
    pub user_data: SeedSource,
    /// `network-config`, unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_data: Option<SeedSource>,
    /// `local-hostname` of the metadata.
    pub hostname: String,
    /// `instance-id` of the metadata: a new one makes the guest run its once-per-instance parts again.
    pub instance_id: String,
}

/// Where a text of NoCloud input comes from.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum SeedSource {
    /// From the instance itself.
    Text(String),
    /// From a Secret that is mounted in this directory; only the kubelet has read it.
    Mounted(PathBuf),
    /// The same, where a Secret without the key is as good as none.
    MountedIfThere(PathBuf),
}

/// Says where a text is and not what it is.
impl std::fmt::Debug for SeedSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(_) => f.write_str("Text(..)"),
            Self::Mounted(dir) => f.debug_tuple("Mounted").field(dir).finish(),
            Self::MountedIfThere(dir) => f.debug_tuple("MountedIfThere").field(dir).finish(),
        }
    }
}

/// The network card, and what of it answers on the pod's addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Interface {
    /// MAC address, `xx:xx:xx:xx:xx:xx`.
    pub mac: String,
    /// Declared ports; 22/TCP is added. KubeVirt forwards every port when none is declared, we then forward 22 alone.
    #[serde(default)]
    pub ports: Vec<Port>,
    /// Where the ports listen: all addresses of the pod, so that `kubectl port-forward` (pod loopback) works as well.
    #[serde(default = "all_addresses")]
    pub listen: Vec<IpAddr>,
}

/// A port of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Port {
    /// Number, the same inside and outside.
    pub port: u16,
    /// Protocol.
    #[serde(default)]
    pub protocol: Protocol,
}

/// Transport of a [`Port`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP, over IPv4 only.
    Udp,
}

/// Which accelerator to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AcceleratorChoice {
    /// KVM where it is proved to work, else TCG.
    #[default]
    Auto,
    /// TCG without a probe.
    Tcg,
}

/// Why a spec cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// The document is no spec.
    #[error("the launcher's spec is not valid JSON of this version: {0}")]
    Json(String),
    /// A value that no guest can have.
    #[error("the launcher's spec says {field}: {problem}")]
    Field {
        /// Path of the field.
        field: &'static str,
        /// What is wrong with it.
        problem: String,
    },
}

impl Spec {
    /// Reads and checks a spec.
    pub fn from_json(json: &[u8]) -> Result<Self, SpecError> {
        let spec: Self =
            serde_json::from_slice(json).map_err(|e| SpecError::Json(e.to_string()))?;
        spec.check()?;
        Ok(spec)
    }

    /// Refuses what QEMU would misread: a comma in a value ends it on QEMU's command line.
    pub fn check(&self) -> Result<(), SpecError> {
        require(self.memory_mib >= 32, "memoryMib", || {
            format!("{} is less than 32", self.memory_mib)
        })?;
        require(self.cpus >= 1, "cpus", || "a machine needs one".into())?;
        require(self.disks.len() <= MAX_DISKS, "disks", || {
            format!("{} disks, at most {MAX_DISKS}", self.disks.len())
        })?;
        for (index, disk) in self.disks.iter().enumerate() {
            disk.check()?;
            let twin = self.disks[..index]
                .iter()
                .any(|other| other.name == disk.name);
            require(!twin, "disks.name", || {
                format!("{} is there twice", disk.name)
            })?;
        }
        match &self.interface {
            Some(interface) => interface.check(self.control_port),
            None => Ok(()),
        }
    }
}

impl Disk {
    fn check(&self) -> Result<(), SpecError> {
        let label = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let named = !self.name.is_empty() && self.name.len() <= 63 && self.name.chars().all(label);
        require(named, "disks.name", || {
            format!("{:?} is no DNS label", self.name)
        })?;
        let serial = self.serial.as_deref().unwrap_or_default();
        let plain = |c: char| c.is_ascii_alphanumeric() || "_.+-".contains(c);
        require(serial.chars().all(plain), "disks.serial", || {
            format!("{serial:?} has other characters than A-Za-z0-9_.+-")
        })?;
        let odd = self.kind == DiskKind::Cdrom && self.bus == Bus::Virtio;
        require(!odd, "disks.bus", || {
            format!("{}: a CD-ROM cannot be virtio", self.name)
        })
    }
}

impl Interface {
    fn check(&self, control_port: u16) -> Result<(), SpecError> {
        let octets: Vec<&str> = self.mac.split(':').collect();
        let hex = |o: &&str| o.len() == 2 && o.chars().all(|c| c.is_ascii_hexdigit());
        require(
            octets.len() == 6 && octets.iter().all(hex),
            "interface.mac",
            || format!("{:?} is no MAC address", self.mac),
        )?;
        for port in &self.ports {
            require(port.port != 0, "interface.ports", || "0 is no port".into())?;
            let taken = port.port == control_port && port.protocol == Protocol::Tcp;
            require(!taken, "interface.ports", || {
                format!("{control_port} is the launcher's control port")
            })?;
        }
        Ok(())
    }

    /// The ports to forward: the declared ones and 22/TCP, each once, in order.
    pub fn forwarded(&self) -> Vec<Port> {
        let ssh = Port {
            port: SSH_PORT,
            protocol: Protocol::Tcp,
        };
        let mut ports: Vec<Port> = self.ports.iter().copied().chain([ssh]).collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }
}

fn require(
    holds: bool,
    field: &'static str,
    problem: impl FnOnce() -> String,
) -> Result<(), SpecError> {
    if holds {
        Ok(())
    } else {
        Err(SpecError::Field {
            field,
            problem: problem(),
        })
    }
}

fn one() -> u8 {
    1
}

fn yes() -> bool {
    true
}

fn half_a_minute() -> u32 {
    30
}

fn control_port() -> u16 {
    CONTROL_PORT
}

fn all_addresses() -> Vec<IpAddr> {
    vec![Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(json: &str) -> Result<Spec, SpecError> {
        let base = r#"{"name":"demo","namespace":"ns","uid":"u","memoryMib":128,"disks":[]"#;
        Spec::from_json(format!("{base}{json}}}").as_bytes())
    }

    #[test]
    fn what_is_left_out_has_the_documented_default() {
        let spec = spec(r#","interface":{"mac":"02:00:00:00:00:01"}"#).unwrap();
        assert_eq!(
            (spec.cpus, spec.grace_period_seconds, spec.control_port),
            (1, 30, CONTROL_PORT)
        );
        assert!(spec.serial_console && spec.graphics && !spec.start_paused);
        assert_eq!(spec.interface.unwrap().listen, all_addresses());
    }

    #[test]
    fn a_spec_that_qemu_would_misread_is_refused_with_its_field() {
        let cases = [
            (r#","cpus":0"#.to_owned(), "cpus"),
            (
                r#","interface":{"mac":"02:00:00:00:00:01,x=y"}"#.to_owned(),
                "interface.mac",
            ),
            (
                r#","interface":{"mac":"02:00:00:00:00:01","ports":[{"port":49186}]}"#.to_owned(),
                "interface.ports",
            ),
            (
                r#","interface":{"mac":"02:00:00:00:00:01","ports":[{"port":0}]}"#.to_owned(),
                "interface.ports",
            ),
        ];
        for (json, expected) in cases {
            let error = spec(&json).unwrap_err();
            assert!(
                matches!(error, SpecError::Field { field, .. } if field == expected),
                "{json}: {error}"
            );
        }
        assert!(matches!(spec(r#","bogus":1"#), Err(SpecError::Json(_))));
    }

    #[test]
    fn disks_are_named_once_with_plain_serials() {
        let empty = |name: &str, serial: &str| Disk {
            name: name.into(),
            source: DiskSource::Empty { bytes: 1 },
            kind: DiskKind::Disk,
            bus: Bus::Virtio,
            read_only: false,
            serial: Some(serial.into()),
            boot_order: None,
        };
        let with = |disks: Vec<Disk>| {
            Spec {
                disks,
                ..spec("").unwrap()
            }
            .check()
        };
        assert_eq!(with(vec![empty("a", "S-1"), empty("b", "")]), Ok(()));
        for bad in [
            vec![empty("a", ""), empty("a", "")],
            vec![empty("a,b", "")],
            vec![empty("a", "x,y")],
            vec![empty("", "")],
        ] {
            assert!(with(bad.clone()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn ssh_is_forwarded_once_whether_or_not_it_is_declared() {
        let tcp = |port| Port {
            port,
            protocol: Protocol::Tcp,
        };
        let interface = |ports| Interface {
            mac: String::new(),
            ports,
            listen: vec![],
        };
        assert_eq!(interface(vec![]).forwarded(), [tcp(22)]);
        assert_eq!(
            interface(vec![tcp(80), tcp(22), tcp(80)]).forwarded(),
            [tcp(22), tcp(80)]
        );
    }

    #[test]
    fn debug_output_has_no_user_data() {
        let init = CloudInit {
            user_data: SeedSource::Text("hunter2".into()),
            network_data: None,
            hostname: "h".into(),
            instance_id: "i".into(),
        };
        assert!(!format!("{init:?}").contains("hunter2"));
    }
}
