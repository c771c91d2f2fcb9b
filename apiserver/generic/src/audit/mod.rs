//! Audit: who asked for what, and what came of it; one line of JSON per event
//! (`audit.k8s.io/v1`, level Metadata).
//!
//! Entry points: [`AuditLog`] and [`Record`]. A request that is answered at once has one event,
//! ResponseComplete; a watch or stream has ResponseStarted as well, and its ResponseComplete when it
//! ends. The id is kube-apiserver's, so that its log and ours can be joined.
//!
//! Health checks that were answered are in no event, as in kube-apiserver's usual policies: kubelets
//! ask every few seconds. One that was refused is.
//!
//! **The log never holds up a request.** Events go through a bounded queue to a thread that writes;
//! when the queue is full they are lost, counted in `apiserver_audit_error_total`, and said in the
//! log. A cluster that needs every event has kube-apiserver's own audit log, which can block.

mod event;
mod log;

pub use event::{Record, Request};
pub use log::AuditLog;

#[cfg(test)]
mod tests;
