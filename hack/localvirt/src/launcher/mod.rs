//! Pid 1 of a VM pod's container: runs one QEMU and gives localvirt its serial line, display and buttons.
//!
//! It is to localvirt what virt-launcher and virt-handler are to KubeVirt. Entry point: the binary `launcher`.

pub mod protocol;
pub mod spec;
