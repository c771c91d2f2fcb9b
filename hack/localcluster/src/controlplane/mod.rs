//! The control plane: which programs, with which flags, and when they are ready.
//!
//! The command lines are functions of a [`Config`] and nothing else ([`etcd`], [`apiserver`], [`controller_manager`],
//! [`scheduler`]); whoever runs them ([`crate::harness`] as children, the node in its namespaces) decides how.

mod apiserver;
mod audit;
mod config;
mod controller_manager;
mod etcd;
mod ready;
mod scheduler;

pub use apiserver::apiserver;
pub use audit::AUDIT_POLICY;
pub use config::{Config, Controllers, Durability, Ports, ServiceRanges};
pub use controller_manager::controller_manager;
pub use etcd::etcd;
pub use ready::{NotReady, wait_for_controllers, wait_until_ready};
pub use scheduler::scheduler;
