//! VirtualMachineInstanceMigrations: a second launcher, a handover, and the end of the first.
//!
//! Machines without a guest move, between [two nodes](crate::guestless::NODES) that exist in their objects only; a guest
//! in QEMU stays where it is, for there is one node, and such a migration fails and says so. What others see is
//! KubeVirt's: both launchers in `activePods` for a while, `migrationState` on the instance, then another `nodeName`,
//! and the streams to the first launcher are cut without a word. [`decide`] decides, [`reconcile`] does.
//! Source of the behaviour: KubeVirt's `pkg/virt-controller/watch/migration`.

pub mod decide;
pub mod reconcile;
mod view;

pub use view::{Migration, Phase};
