//! The generic half of an aggregated Kubernetes API server.
//!
//! It knows nothing about workspaces or KubeVirt: give it a table of resources and a storage for
//! each, and it serves them as kube-apiserver serves its own.
//!
//! A request flows `serving` → `server` (`request`, `authn`, `audit`, `authz`) → `endpoints` →
//! `registry` (decode, admit, validate) → `storage`, and back through `endpoints` (encode).
//! `examples/toys.rs` is a whole server.

pub mod admission;
pub mod audit;
pub mod authn;
pub mod authz;
pub mod cache;
pub mod call;
pub mod coalesce;
pub mod discovery;
pub mod document;
pub mod duration;
pub mod endpoints;
pub mod files;
pub mod filter;
pub mod health;
pub mod metrics;
pub mod object;
pub mod openapi;
pub mod options;
pub mod registry;
pub mod request;
pub mod resource;
pub mod respond;
pub mod review_client;
pub mod schema;
pub mod selector;
pub mod server;
pub mod serving;
pub mod status;
pub mod stopwatch;
pub mod storage;
pub mod validity;

#[cfg(test)]
mod test_pki;
#[cfg(test)]
mod test_rows;
#[cfg(test)]
mod test_widgets;

pub use authn::UserInfo;
pub use authz::{Attributes, Authorized, Authorizer};
pub use call::{Body, Call, Connect, Endpoints};
pub use metrics::Metrics;
pub use object::Object;
pub use registry::Registry;
pub use resource::{Resource, Scope, Strategy, Subresource, Verb};
pub use status::{ApiError, Cause, Reason};
pub use storage::{Key, Revision, Storage};
