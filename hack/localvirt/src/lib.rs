//! A stand-in for KubeVirt that says it is one: real QEMU guests in real Pods behind KubeVirt's API.
//!
//! [`vm`], [`vmi`] and [`migration`] are its controllers (VirtualMachine → VirtualMachineInstance → launcher Pod),
//! [`server`] serves `subresources.kubevirt.io`, [`launcher`] is the process inside a launcher Pod, [`dial`] is the way
//! from the first to the last, [`guest`] is what runs inside our tiny guest. [`run`] puts it together. For tests there
//! are, and KubeVirt has none of them: [`checker`] (no device is ever held twice), [`faults`] (streams that fail on
//! demand), [`guestless`] (machines that cost nothing). Decisions are functions over values; effects are in the modules
//! named `reconcile`, in [`controllers`], [`setup`], [`server`] and [`guest::apply`].

pub mod api;
pub mod between;
pub mod checker;
pub mod controllers;
pub mod dial;
pub mod faults;
pub mod finalizers;
pub mod guest;
pub mod guestless;
pub mod launcher;
pub mod limits;
pub mod migration;
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
