//! Storage: get, list, watch from a revision, and compare-and-swap. Nothing here decides anything.
//!
//! **Architecture Invariant:** a backend never defaults, validates, merges or admits.

pub mod cluster;
mod error;
pub mod memory;

use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;

use crate::Object;

pub use cluster::ClusterStorage;
pub use error::StorageError;
pub use memory::MemoryStorage;

/// The address of an object within its resource; sorted by namespace, then name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Namespace; `None` for cluster-scoped resources.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}

impl Key {
    /// An object in a namespace.
    pub fn namespaced(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: Some(namespace.into()),
            name: name.into(),
        }
    }

    /// A cluster-scoped object.
    pub fn cluster(name: impl Into<String>) -> Self {
        Self {
            namespace: None,
            name: name.into(),
        }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// A backend's resourceVersion. Totally ordered within one resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl std::fmt::Display for Revision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// An object as stored; `object.metadata.resourceVersion` equals `revision`.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// Address.
    pub key: Key,
    /// The served object.
    pub object: Object,
    /// The revision at which it was written.
    pub revision: Revision,
}

/// How fresh a list must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The most recent state (quorum).
    Latest,
    /// Exactly this revision; 410 when it is gone.
    Exact(Revision),
}

/// A list request to a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListQuery {
    /// One namespace, or all.
    pub namespace: Option<String>,
    /// Freshness.
    pub at: At,
    /// At most this many; `None` is all.
    pub limit: Option<usize>,
    /// Only keys greater than this one.
    pub after: Option<Key>,
}

/// A page of a list, sorted by key.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// The objects.
    pub items: Vec<Stored>,
    /// The revision at which all of them are true.
    pub revision: Revision,
    /// Whether more follow the last item.
    pub more: bool,
}

/// A change, in revision order.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Created or updated.
    Put(Stored),
    /// Removed; `object` is the last state, with the revision of the removal.
    Deleted(Stored),
    /// Nothing changed up to this revision (bookmark).
    Progress(Revision),
}

/// What a backend may tell its own audit log about a write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteContext {
    /// Id of the request that caused the write, so that audit logs can be joined.
    pub audit_id: Option<Arc<str>>,
}

/// The stream of changes that a watch gives. It ends after an error.
pub type Changes = BoxStream<'static, Result<Change, StorageError>>;

/// A backend for one resource.
#[async_trait]
pub trait Storage: Send + Sync + 'static {
    /// The current object (a consistent read).
    ///
    /// # Errors
    /// [`StorageError::NotFound`], or trouble of the backend.
    async fn get(&self, key: &Key) -> Result<Stored, StorageError>;

    /// A page.
    ///
    /// # Errors
    /// [`StorageError::Expired`] for an exact revision that is gone.
    async fn list(&self, query: &ListQuery) -> Result<Page, StorageError>;

    /// Changes after `from`, of all namespaces.
    ///
    /// # Errors
    /// [`StorageError::Expired`], also as an item of the stream.
    async fn watch(&self, from: Revision) -> Result<Changes, StorageError>;

    /// Stores a new object.
    ///
    /// # Errors
    /// [`StorageError::AlreadyExists`].
    async fn create(
        &self,
        context: &WriteContext,
        key: &Key,
        object: &Object,
    ) -> Result<Stored, StorageError>;

    /// Replaces the object if its revision is still `expected`.
    ///
    /// # Errors
    /// [`StorageError::Conflict`], [`StorageError::NotFound`].
    async fn update(
        &self,
        context: &WriteContext,
        key: &Key,
        object: &Object,
        expected: Revision,
    ) -> Result<Stored, StorageError>;

    /// Removes the object if its revision is still `expected`.
    ///
    /// # Errors
    /// [`StorageError::Conflict`], [`StorageError::NotFound`].
    async fn delete(
        &self,
        context: &WriteContext,
        key: &Key,
        expected: Revision,
    ) -> Result<(), StorageError>;

    /// Asks for a [`Change::Progress`] (or any change) that proves every change before this call
    /// has been delivered; returns the revision to wait for, or `None` if the backend cannot.
    ///
    /// # Errors
    /// Trouble of the backend: the read then goes to the backend itself.
    async fn fence(&self) -> Result<Option<Revision>, StorageError>;
}
