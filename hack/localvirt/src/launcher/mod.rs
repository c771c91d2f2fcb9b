//! Pid 1 of a VM pod's container: runs one QEMU and gives localvirt its serial line, display and buttons.
//!
//! It is to localvirt what virt-launcher and virt-handler are to KubeVirt. The VM controller writes a [`spec`] into a
//! Secret; the launcher makes the [`disks`], starts [`qemu`] on the [`accelerator`] that works, and serves the
//! [`protocol`] on the pod's [`control`] port until the guest ends. Entry point: [`run::run`] (the binary `launcher`).

pub mod accelerator;
pub mod container_disk;
pub mod control;
pub mod disks;
pub mod forward;
pub mod machine;
pub mod nocloud;
pub mod protocol;
pub mod qemu;
pub mod qmp;
pub mod run;
pub mod seed;
pub mod serial;
pub mod session;
pub mod spec;
pub mod tls;
