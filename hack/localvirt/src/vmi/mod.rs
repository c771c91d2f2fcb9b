//! VirtualMachineInstances: their launcher Pod, and what is said about them.
//!
//! [`pod`], [`spec`] and [`status`] decide.
//! Source of the behaviour: KubeVirt's `pkg/virt-controller/watch/vmi` and `pkg/virt-controller/services`.

pub mod names;
pub mod pod;
pub mod reconcile;
pub mod spec;
pub mod status;
