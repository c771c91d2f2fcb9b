//! Reconcilers that turn Workspaces into VirtualMachines, StatefulSets and Deployments.
//!
//! Decisions are pure and come first:
//! - [`plan`]: which children a Workspace should have;
//! - [`observe`]: its status, from what they show;
//! - [`names`]: what children are called and how they say whose they are.

pub mod names;
pub mod observe;
pub mod plan;
