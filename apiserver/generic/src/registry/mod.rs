//! A served resource at work: its strategy, its storage, its cache and its admission.
//!
//! Entry point: [`Registry`]. REST endpoints and the server's own controllers write through it,
//! never around it. What becomes of an object is decided by the pure modules (`create`, `update`,
//! `delete`, `patch`, `metadata`); `write`, `remove` and `read` do it.
//! After `k8s.io/apiserver/pkg/registry/generic/registry/store.go`.

mod accept;
mod causes;
mod create;
mod delete;
mod environment;
mod errors;
mod metadata;
mod names;
mod patch;
mod read;
mod remove;
mod subscribe;
mod update;
mod write;
mod writer;

use std::sync::Arc;

use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    Resource, Strategy,
    admission::Admission,
    cache::{Cache, Settings},
    storage::Storage,
};

pub use causes::{forbidden, invalid, required, too_long, unsupported};
pub use delete::{DeleteOptions, Propagation};
pub use environment::{Environment, System};
pub use metadata::{FOREGROUND, ORPHAN, annotation_causes, label_causes};
pub use names::{label_key_faults, label_value_faults, subdomain_fault};
pub use patch::{OPERATIONS, Patch};
pub(crate) use read::expired;
pub use read::{ListAt, ListOptions, Listed, WatchOptions, WatchStart, Watched, Watching};
pub use remove::Removed;
pub use subscribe::{Subscription, Trigger};
pub use writer::{FieldValidation, Submission, Writer, Written};

/// What a registry is made of.
pub struct Parts {
    /// Decides about objects.
    pub strategy: Arc<dyn Strategy>,
    /// Keeps them.
    pub storage: Arc<dyn Storage>,
    /// Has the last word on writes, in this order.
    pub admission: Vec<Arc<dyn Admission>>,
    /// Time and chance.
    pub environment: Arc<dyn Environment>,
    /// Bounds of the watch cache.
    pub cache: Settings,
}

impl Parts {
    /// A strategy over a storage, without admission.
    pub fn new(strategy: Arc<dyn Strategy>, storage: Arc<dyn Storage>) -> Self {
        Self {
            strategy,
            storage,
            admission: Vec::new(),
            environment: Arc::new(System),
            cache: Settings::default(),
        }
    }

    /// Adds an admission step.
    #[must_use]
    pub fn admit(mut self, step: Arc<dyn Admission>) -> Self {
        self.admission.push(step);
        self
    }
}

/// One resource. Clones are the same registry.
#[derive(Clone)]
pub struct Registry {
    parts: Arc<Parts>,
    cache: Cache,
}

impl Registry {
    /// Starts the resource's cache; it ends with the token, or with the last clone.
    pub fn start(parts: Parts, tasks: &TaskTracker, stop: &CancellationToken) -> Self {
        let cache = Cache::start(parts.storage.clone(), parts.cache, tasks, stop);
        Self {
            parts: Arc::new(parts),
            cache,
        }
    }

    /// The strategy.
    pub fn strategy(&self) -> &dyn Strategy {
        &*self.parts.strategy
    }

    /// The resource's row.
    pub fn resource(&self) -> &Resource {
        self.parts.strategy.resource()
    }

    /// The watch cache.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Time and chance.
    pub fn environment(&self) -> &dyn Environment {
        &*self.parts.environment
    }

    /// Waits until the cache has its first list.
    pub async fn ready(&self) {
        self.cache.ready().await;
    }
}

#[cfg(test)]
mod stale_tests;
#[cfg(test)]
mod tests;
