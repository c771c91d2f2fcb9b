//! A stand-in for KubeVirt that says it is one: real QEMU guests in real Pods behind KubeVirt's API.
//!
//! [`vm`] and [`vmi`] are its controllers (VirtualMachine → VirtualMachineInstance → launcher Pod), [`server`] serves
//! `subresources.kubevirt.io`, [`launcher`] is the process inside a launcher Pod, [`dial`] is the way from the first
//! two to the last, [`guest`] is cloud-init inside our tiny guest. [`run`] puts it together. Decisions are functions
//! over values; effects are in the modules named `reconcile`, in [`controllers`], [`setup`], [`server`] and
//! [`guest::apply`].

pub mod api;
pub mod controllers;
pub mod dial;
pub mod finalizers;
pub mod guest;
pub mod launcher;
pub mod options;
pub mod pki;
pub mod quantity;
pub mod run;
pub mod server;
pub mod setup;
pub mod tls;
pub mod vm;
pub mod vmi;

#[cfg(test)]
mod testing;
