//! Admission: a last word on what is about to be stored, before validation.
//!
//! kube-apiserver runs none for an aggregated server's objects, so the server must.

mod cluster_namespaces;
mod namespace;

use async_trait::async_trait;

pub use cluster_namespaces::ClusterNamespaces;
pub(crate) use namespace::terminating;
pub use namespace::{NamespaceLifecycle, NamespacePhase, Namespaces};

use crate::{ApiError, Object, Resource, registry::Writer, storage::Key};

/// What is about to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A new object.
    Create,
    /// A change.
    Update,
    /// A removal.
    Delete,
}

/// A write that asks to be admitted.
#[derive(Clone, Copy)]
pub struct Review<'a> {
    /// What happens.
    pub operation: Operation,
    /// To which resource.
    pub resource: &'a Resource,
    /// Subresource, if any.
    pub subresource: Option<&'a str>,
    /// To which object.
    pub key: &'a Key,
    /// The state before, if any.
    pub old: Option<&'a Object>,
    /// On whose behalf.
    pub writer: &'a Writer,
}

/// Admits, changes or refuses a write.
#[async_trait]
pub trait Admission: Send + Sync + 'static {
    /// May change `object`, which is empty for a deletion; returns warnings.
    ///
    /// # Errors
    /// The refusal.
    async fn admit(&self, review: Review<'_>, object: &mut Object)
    -> Result<Vec<String>, ApiError>;
}
