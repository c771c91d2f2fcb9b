//! Where Workspaces and Images are read, and statuses written: ports, narrow on purpose.
//!
//! **Architecture Invariant:** the controller reaches its own kinds through these only, in
//! process, and never through the APIService.

mod registry;

use std::sync::Arc;

use apiserver_generic::{ApiError, Object};
use async_trait::async_trait;
use futures::stream::BoxStream;
use serde_json::Value;

use crate::key::Key;
pub use registry::{RegistryImages, RegistryWorkspaces};

/// Workspaces.
#[async_trait]
pub trait WorkspaceStore: Send + Sync + 'static {
    /// The workspace, from the cache.
    ///
    /// # Errors
    /// Trouble of the storage.
    async fn get(&self, key: &Key) -> Result<Option<Object>, ApiError>;

    /// Addresses of all workspaces.
    ///
    /// # Errors
    /// Trouble of the storage.
    async fn keys(&self) -> Result<Vec<Key>, ApiError>;

    /// Replaces the status of the workspace of this UID; a workspace that is gone, or another one
    /// of the same name, is left alone.
    ///
    /// # Errors
    /// Trouble of the storage, or a status that validation refuses.
    async fn write_status(&self, key: &Key, uid: &str, status: Value) -> Result<(), ApiError>;

    /// Removes an annotation of the workspace of this UID, as [`write_status`](Self::write_status)
    /// writes its status.
    ///
    /// # Errors
    /// Trouble of the storage.
    async fn remove_annotation(&self, key: &Key, uid: &str, name: &str) -> Result<(), ApiError>;

    /// The address of every workspace, and then of each that is made, changed or deleted. Changes
    /// may be reported together. Ends when the store does.
    fn changes(&self) -> BoxStream<'static, Key>;
}

/// Images.
#[async_trait]
pub trait ImageStore: Send + Sync + 'static {
    /// The whole catalog, from the cache.
    ///
    /// # Errors
    /// Trouble of the storage.
    async fn list(&self) -> Result<Vec<Object>, ApiError>;

    /// The whole catalog with everything that was written before this call.
    ///
    /// # Errors
    /// Trouble of the storage.
    async fn latest(&self) -> Result<Vec<Object>, ApiError>;
}

/// All stores that the controller uses.
#[derive(Clone)]
pub struct Stores {
    /// Workspaces.
    pub workspaces: Arc<dyn WorkspaceStore>,
    /// The catalog.
    pub images: Arc<dyn ImageStore>,
}
