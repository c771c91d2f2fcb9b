//! A stand-in for KubeVirt that says it is one: real QEMU guests in real Pods behind KubeVirt's API.
//!
//! [`vm`] and [`vmi`] are its controllers (VirtualMachine → VirtualMachineInstance → launcher Pod),
//! [`launcher`] is the process inside a launcher Pod.
//! Decisions are functions over values; only the modules named `reconcile` talk to a cluster.

pub mod api;
pub mod dial;
pub mod finalizers;
pub mod launcher;
pub mod pki;
pub mod quantity;
pub mod server;
pub mod tls;
pub mod vm;
pub mod vmi;

#[cfg(test)]
mod testing;
