//! Reconcilers that turn Workspaces into VirtualMachines, StatefulSets and Deployments.
//!
//! Decisions are pure and come first:
//! - [`plan`]: which children a Workspace should have;
//! - [`observe`]: its status, from what they show;
//! - [`names`]: what children are called and how they say whose they are.
//!
//! Around them, thin: `apply` writes children, `triggers` says which workspaces are due,
//! `reconcile` does one workspace once, `events` tells people what happened. [`run`] runs it all, [`spawn_when_leader`] only on the
//! replica that leads. [`rbac_rules`] are the rights that it takes.

mod apply;
mod cluster;
mod events;
mod key;
mod kinds;
mod leader;
mod metrics;
pub mod names;
pub mod observe;
pub mod plan;
mod rbac;
mod reconcile;
mod run;
mod stores;
mod triggers;

pub use key::Key;
pub use leader::{Candidate, Times, spawn_when_leader};
pub use metrics::ControllerMetrics;
pub use rbac::{Rule, lease_rule, rbac_rules};
pub use run::{Config, RunError, run};
pub use stores::{ImageStore, RegistryImages, RegistryWorkspaces, Stores, WorkspaceStore};
