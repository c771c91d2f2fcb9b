//! The workspaces API server: REST, streams, sessions and the embedded controller.
//!
//! Entry point: [`run()`], given [`options::Options`]. [`stores`] makes a registry of each row of the
//! resource table, [`streams`] answers `workspaces/console` and its siblings, [`sessions`] keeps one holder across
//! replicas, [`control`] runs the controller on the replica that leads, [`managed`] keeps the serving
//! certificate and the registration.

pub mod actions;
pub mod control;
pub mod managed;
pub mod options;
pub mod pace;
pub mod registrar;
mod run;
pub mod serving_certificate;
pub mod sessions;
pub mod stored_schema;
pub mod stores;
pub mod streams;

pub use run::{RunError, run};
