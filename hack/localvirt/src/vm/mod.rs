//! VirtualMachines: when an instance of them should exist, and what is said about it.
//!
//! [`decide`] and [`status`] decide, [`instance`] builds.
//! Source of the behaviour: KubeVirt's `pkg/virt-controller/watch/vm`.

pub mod decide;
pub mod instance;
pub mod reconcile;
pub mod status;
pub mod validate;
