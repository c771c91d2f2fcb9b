//! QEMU's command line, as a pure function of what the machine is.
//!
//! Devices and block nodes are given as JSON, so that no value can end early at a comma. QEMU dials the sockets for the
//! serial line and QMP on which the launcher listens already: no byte of the boot is lost, and nothing polls.
//! Entry point: [`arguments`].

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::container_disk::{Format, Kernel};
use super::spec::{Bus, Device, DiskKind, Interface, Port, Protocol};

/// The program, found by PATH.
pub const PROGRAM: &str = "qemu-system-x86_64";
/// Id of the guest agent's port, by which QMP's VSERPORT_CHANGE names it.
pub const AGENT_ID: &str = "agent";

/// What QEMU is to run.
#[derive(Clone, Debug)]
pub struct Machine {
    /// For people who look at process lists.
    pub name: String,
    /// Guest memory.
    pub memory_mib: u32,
    /// Virtual processors.
    pub cpus: u8,
    /// What runs them.
    pub accelerator: Accelerator,
    /// Start this instead of the boot disk's loader.
    pub kernel: Option<Kernel>,
    /// Disks in the guest's order.
    pub disks: Vec<PreparedDisk>,
    /// The network card.
    pub interface: Option<Interface>,
    /// Whether there is a serial line.
    pub serial_console: bool,
    /// Whether there is a display.
    pub graphics: bool,
    /// Further devices.
    pub devices: Vec<Device>,
    /// Whether the processors wait.
    pub start_paused: bool,
}

/// What runs the guest's processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    /// The kernel's virtualization.
    Kvm,
    /// QEMU's translator.
    Tcg,
}

/// A disk whose file is there.
#[derive(Clone, Debug)]
pub struct PreparedDisk {
    /// The file.
    pub file: PathBuf,
    /// Its format.
    pub format: Format,
    /// What the guest sees.
    pub kind: DiskKind,
    /// What it hangs on.
    pub bus: Bus,
    /// The guest cannot write.
    pub read_only: bool,
    /// Serial number.
    pub serial: Option<String>,
    /// QEMU's boot index.
    pub boot_index: Option<u32>,
}

/// The sockets of one machine.
#[derive(Clone, Debug)]
pub struct Sockets {
    /// Serial line; the launcher listens.
    pub serial: PathBuf,
    /// QMP; the launcher listens.
    pub qmp: PathBuf,
    /// Guest agent; QEMU listens.
    pub agent: PathBuf,
    /// VNC; QEMU listens.
    pub vnc: PathBuf,
}

impl Sockets {
    /// The sockets in `dir`.
    pub fn in_dir(dir: &Path) -> Self {
        let socket = |name| dir.join(name);
        Self {
            serial: socket("serial"),
            qmp: socket("qmp"),
            agent: socket("agent"),
            vnc: socket("vnc"),
        }
    }
}

impl Accelerator {
    /// `kvm` or `tcg`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }

    /// Never `kvm:tcg`: a KVM that starts and then fails leaves nothing to fall back to. TCG's cache of translated code
    /// takes 1 GiB unless told otherwise; too little ruins a large guest, so it goes with the memory.
    fn arguments(self, memory_mib: u32) -> [String; 2] {
        let value = match self {
            Self::Kvm => "kvm".into(),
            Self::Tcg => format!("tcg,tb-size={}", (memory_mib / 4).clamp(32, 256)),
        };
        ["-accel".into(), value]
    }
}

/// The arguments for [`PROGRAM`].
pub fn arguments(machine: &Machine, sockets: &Sockets) -> Vec<String> {
    let mut args = Args::default();
    args.words("-nodefaults -no-user-config -machine q35 -display none -rtc base=utc");
    args.words("-sandbox on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny");
    args.pair("-name", machine.name.replace(',', ",,"));
    args.0
        .extend(machine.accelerator.arguments(machine.memory_mib));
    args.pair("-m", machine.memory_mib.to_string());
    args.pair("-smp", machine.cpus.to_string());
    args.kernel(machine.kernel.as_ref());
    args.channels(machine, sockets);
    args.disks(&machine.disks);
    if let Some(interface) = &machine.interface {
        args.network(interface);
    }
    args.devices(&machine.devices);
    if machine.start_paused {
        args.words("-S");
    }
    args.0
}

#[derive(Default)]
struct Args(Vec<String>);

impl Args {
    fn words(&mut self, words: &str) {
        self.0.extend(words.split(' ').map(str::to_owned));
    }

    fn pair(&mut self, flag: &str, value: impl Into<String>) {
        self.0.extend([flag.to_owned(), value.into()]);
    }

    fn device(&mut self, device: Value) {
        self.pair("-device", device.to_string());
    }

    fn kernel(&mut self, kernel: Option<&Kernel>) {
        if let Some(Kernel {
            image,
            initrd,
            cmdline,
        }) = kernel
        {
            self.pair("-kernel", path(image));
            self.pair("-initrd", path(initrd));
            self.pair("-append", cmdline);
        }
    }

    fn socket(&mut self, id: &str, at: &Path, listens: bool) {
        let server = if listens { ",server=on,wait=off" } else { "" };
        self.pair(
            "-chardev",
            format!(
                "socket,id={id},path={}{server}",
                path(at).replace(',', ",,")
            ),
        );
    }

    fn channels(&mut self, machine: &Machine, sockets: &Sockets) {
        self.socket("qmp", &sockets.qmp, false);
        self.words("-mon chardev=qmp,mode=control");
        if machine.serial_console {
            self.socket("serial", &sockets.serial, false);
            self.words("-serial chardev:serial");
        }
        self.socket("agentsocket", &sockets.agent, true);
        self.device(json!({ "driver": "virtio-serial-pci", "id": "channels" }));
        self.device(json!({ "driver": "virtserialport", "id": AGENT_ID, "chardev": "agentsocket", "bus": "channels.0",
                            "name": "org.qemu.guest_agent.0" }));
        self.device(json!({ "driver": "virtio-rng-pci" }));
        if machine.graphics {
            self.device(json!({ "driver": "VGA" }));
            self.pair(
                "-vnc",
                format!("unix:{}", path(&sockets.vnc).replace(',', ",,")),
            );
        }
    }

    fn disks(&mut self, disks: &[PreparedDisk]) {
        let on = |bus| disks.iter().any(|d| d.bus == bus);
        if on(Bus::Scsi) {
            self.device(json!({ "driver": "virtio-scsi-pci", "id": "scsi" }));
        }
        if on(Bus::Sata) {
            self.device(json!({ "driver": "ich9-ahci", "id": "sata" }));
        }
        if on(Bus::Usb) {
            self.device(json!({ "driver": "qemu-xhci", "id": "usbdisks" }));
        }
        let mut sata_port = 0;
        for (index, disk) in disks.iter().enumerate() {
            let node = format!("disk{index}");
            self.pair("-blockdev", block_node(disk, &node).to_string());
            let mut device = frontend(disk, &node, sata_port);
            sata_port += u32::from(disk.bus == Bus::Sata);
            if let Some(serial) = &disk.serial {
                device["serial"] = json!(serial);
            }
            if let Some(boot) = disk.boot_index {
                device["bootindex"] = json!(boot);
            }
            self.device(device);
        }
    }

    fn network(&mut self, interface: &Interface) {
        let forwards: Vec<String> = host_forwards(interface)
            .into_iter()
            .map(|f| format!(",hostfwd={f}"))
            .collect();
        self.pair("-netdev", format!("user,id=net{}", forwards.concat()));
        self.device(json!({ "driver": "virtio-net-pci", "netdev": "net", "mac": interface.mac, "romfile": "" }));
    }

    fn devices(&mut self, devices: &[Device]) {
        if devices.contains(&Device::Tablet) {
            self.device(json!({ "driver": "qemu-xhci", "id": "usbinput" }));
        }
        for device in devices {
            match device {
                Device::Tablet => {
                    self.device(json!({ "driver": "usb-tablet", "bus": "usbinput.0" }))
                }
                Device::Sound => {
                    self.words("-audiodev none,id=audio");
                    self.device(json!({ "driver": "ich9-intel-hda", "id": "sound" }));
                    self.device(
                        json!({ "driver": "hda-duplex", "audiodev": "audio", "bus": "sound.0" }),
                    );
                }
                Device::Gpu => self.device(json!({ "driver": "edu" })),
            }
        }
    }
}

fn block_node(disk: &PreparedDisk, node: &str) -> Value {
    json!({ "driver": disk.format.name(), "node-name": node, "read-only": disk.read_only || disk.kind == DiskKind::Cdrom,
            "file": { "driver": "file", "filename": path(&disk.file) } })
}

/// The device that the guest sees.
fn frontend(disk: &PreparedDisk, node: &str, sata_port: u32) -> Value {
    let cdrom = disk.kind == DiskKind::Cdrom;
    match disk.bus {
        Bus::Virtio => json!({ "driver": "virtio-blk-pci", "drive": node }),
        Bus::Scsi => {
            json!({ "driver": if cdrom { "scsi-cd" } else { "scsi-hd" }, "drive": node, "bus": "scsi.0" })
        }
        Bus::Sata => json!({ "driver": if cdrom { "ide-cd" } else { "ide-hd" }, "drive": node,
                             "bus": format!("sata.{sata_port}") }),
        Bus::Usb => json!({ "driver": "usb-storage", "drive": node, "bus": "usbdisks.0" }),
    }
}

/// slirp's forwards: QEMU knows IPv4 only, [`super::forward`] does the rest.
fn host_forwards(interface: &Interface) -> Vec<String> {
    let address = forward_address(&interface.listen);
    let forward = |Port { port, protocol }: Port| {
        let protocol = match protocol {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        };
        format!("{protocol}:{address}:{port}-:{port}")
    };
    interface.forwarded().into_iter().map(forward).collect()
}

/// Where QEMU itself listens: the first IPv4 address asked for, and only inside the pod when there is none.
pub(super) fn forward_address(listen: &[IpAddr]) -> Ipv4Addr {
    let v4 = |address: &IpAddr| match address {
        IpAddr::V4(v4) => Some(*v4),
        IpAddr::V6(_) => None,
    };
    listen.iter().find_map(v4).unwrap_or(Ipv4Addr::LOCALHOST)
}

fn path(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        Machine {
            name: "ns/demo".into(),
            memory_mib: 128,
            cpus: 1,
            accelerator: Accelerator::Tcg,
            kernel: None,
            disks: vec![],
            interface: None,
            serial_console: true,
            graphics: true,
            devices: vec![],
            start_paused: false,
        }
    }

    fn line(machine: &Machine) -> String {
        arguments(machine, &Sockets::in_dir(Path::new("/run/vm"))).join(" ")
    }

    fn disk(kind: DiskKind, bus: Bus) -> PreparedDisk {
        let file = "/run/vm/a,b".into();
        PreparedDisk {
            file,
            format: Format::Qcow2,
            kind,
            bus,
            read_only: false,
            serial: None,
            boot_index: None,
        }
    }

    #[test]
    fn what_is_asked_for_is_on_the_line_and_nothing_else() {
        let kernel = Kernel {
            image: "/k".into(),
            initrd: "/i".into(),
            cmdline: "quiet a=b".into(),
        };
        let mac = "02:00:00:00:00:01".to_owned();
        let http = Port {
            port: 80,
            protocol: Protocol::Tcp,
        };
        let dns = Port {
            port: 53,
            protocol: Protocol::Udp,
        };
        let interface = Interface {
            mac,
            ports: vec![http, dns],
            listen: vec!["::".parse().unwrap(), "0.0.0.0".parse().unwrap()],
        };
        let cases: &[(Machine, &[&str], &[&str])] = &[
            (
                machine(),
                &[
                    "tcg,tb-size=32",
                    "-serial chardev:serial",
                    "-vnc unix:/run/vm/vnc",
                ],
                &["-kernel", "-netdev", "-S", "kvm", "audio"],
            ),
            (
                Machine {
                    graphics: false,
                    serial_console: false,
                    ..machine()
                },
                &["-display none"],
                &["VGA", "-vnc", "-serial chardev", "/run/vm/serial"],
            ),
            (
                Machine {
                    accelerator: Accelerator::Kvm,
                    start_paused: true,
                    ..machine()
                },
                &["-accel kvm", " -S"],
                &["tcg"],
            ),
            (
                Machine {
                    memory_mib: 512,
                    ..machine()
                },
                &["-m 512", "tb-size=128"],
                &[],
            ),
            (
                Machine {
                    memory_mib: 8192,
                    ..machine()
                },
                &["tb-size=256"],
                &[],
            ),
            (
                Machine {
                    kernel: Some(kernel),
                    ..machine()
                },
                &["-kernel /k -initrd /i -append quiet a=b"],
                &[],
            ),
            (
                Machine {
                    name: "a,debug-threads=on".into(),
                    ..machine()
                },
                &["-name a,,debug-threads=on"],
                &[],
            ),
            (
                Machine {
                    interface: Some(interface),
                    ..machine()
                },
                &[
                    "hostfwd=tcp:0.0.0.0:22-:22,hostfwd=udp:0.0.0.0:53-:53,hostfwd=tcp:0.0.0.0:80-:80",
                    "\"mac\":\"02:00:00:00:00:01\"",
                ],
                &["::"],
            ),
            (
                Machine {
                    devices: vec![Device::Tablet, Device::Sound, Device::Gpu],
                    ..machine()
                },
                &["usb-tablet", "hda-duplex", "edu"],
                &[],
            ),
        ];
        for (machine, there, absent) in cases {
            let line = line(machine);
            for word in *there {
                assert!(line.contains(word), "{word} is missing: {line}");
            }
            for word in *absent {
                assert!(!line.contains(word), "{word} is there: {line}");
            }
        }
    }

    #[test]
    fn each_disk_hangs_on_its_bus_and_each_bus_is_there_once() {
        let (hd, cd) = (DiskKind::Disk, DiskKind::Cdrom);
        let kinds = [
            (hd, Bus::Virtio),
            (hd, Bus::Scsi),
            (cd, Bus::Scsi),
            (hd, Bus::Sata),
            (cd, Bus::Sata),
            (hd, Bus::Usb),
        ];
        let line = line(&Machine {
            disks: kinds.map(|(kind, bus)| disk(kind, bus)).to_vec(),
            ..machine()
        });
        for device in [
            "virtio-blk-pci",
            "scsi-hd",
            "scsi-cd",
            "ide-hd",
            "ide-cd",
            "usb-storage",
        ] {
            assert!(
                line.contains(&format!("\"driver\":\"{device}\"")),
                "{device}: {line}"
            );
        }
        for controller in ["virtio-scsi-pci", "ich9-ahci", "qemu-xhci"] {
            assert_eq!(line.matches(controller).count(), 1, "{controller}");
        }
        assert!(
            line.contains("\"bus\":\"sata.0\"") && line.contains("\"bus\":\"sata.1\""),
            "{line}"
        );
    }

    #[test]
    fn a_comma_in_a_path_is_part_of_the_path() {
        let node = block_node(&disk(DiskKind::Disk, Bus::Virtio), "disk0");
        assert_eq!(node["file"]["filename"], "/run/vm/a,b");
        assert_eq!(node["read-only"], false);
        assert_eq!(
            block_node(&disk(DiskKind::Cdrom, Bus::Scsi), "disk0")["read-only"],
            true
        );
    }

    #[test]
    fn without_an_ipv4_address_qemu_listens_inside_the_pod_only() {
        assert_eq!(
            forward_address(&["::".parse().unwrap()]),
            Ipv4Addr::LOCALHOST
        );
        assert_eq!(
            forward_address(&["10.0.0.7".parse().unwrap()]),
            Ipv4Addr::new(10, 0, 0, 7)
        );
    }
}
