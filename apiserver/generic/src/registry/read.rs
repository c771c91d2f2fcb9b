//! Reading: get, list and watch, as fresh as the caller wants it.

use std::sync::Arc;

use super::{
    Registry,
    errors::{from_storage, initializing, too_large},
};
use crate::{
    ApiError, Object, Reason,
    cache::{Follow, Followed, Freshness, Item, Lagged, Snapshot, Stale},
    filter::{Selector, View},
    storage::{At, Key, ListQuery, Revision, StorageError},
};

/// The state that a list shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListAt {
    /// The most recent one.
    #[default]
    Latest,
    /// Whatever is known.
    Any,
    /// This one or a newer one.
    NotOlderThan(Revision),
    /// Exactly this one.
    Exact(Revision),
}

/// A list request.
#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    /// One namespace, or all.
    pub namespace: Option<String>,
    /// Which state.
    pub at: ListAt,
    /// What it is narrowed to.
    pub selector: Selector,
    /// At most this many.
    pub limit: Option<usize>,
    /// Only keys greater than this one.
    pub after: Option<Key>,
}

/// A page of a list, sorted by key.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The objects.
    pub items: Vec<Arc<Item>>,
    /// When all of them were true.
    pub revision: Revision,
    /// How many follow the page; more than zero means that the list goes on.
    pub remaining: usize,
}

/// Where a watch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchStart {
    /// With all objects as `ADDED`, at least this fresh, then the changes.
    Snapshot(Freshness),
    /// With the changes from now on.
    Now(Freshness),
    /// With the changes after a revision.
    After(Revision),
}

/// A watch request.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    /// One namespace, or all.
    pub namespace: Option<String>,
    /// What it is narrowed to.
    pub selector: Selector,
    /// Where it begins.
    pub start: WatchStart,
}

/// What a watcher is told next.
#[derive(Clone, Debug)]
pub enum Watched {
    /// A change.
    Change(View),
    /// The watcher is too slow, or the history was rewritten: it must start over.
    Expired(Lagged),
    /// The server ends.
    Stopped,
}

/// A watch under way.
pub struct Watching {
    /// Objects that come first, sorted by key.
    pub initial: Vec<Arc<Item>>,
    /// The revision at which `initial` is true.
    pub revision: Revision,
    namespace: Option<String>,
    selector: Selector,
    follow: Follow,
}

impl Watching {
    /// The next change.
    ///
    /// # Cancel safety
    /// No change is lost when the future is dropped.
    pub async fn next(&mut self) -> Watched {
        loop {
            let event = match self.follow.next().await {
                Followed::Event(event) => event,
                Followed::Lagged(lagged) => return Watched::Expired(lagged),
                Followed::Stopped => return Watched::Stopped,
            };
            let elsewhere = self.namespace.is_some() && event.item.key.namespace != self.namespace;
            if elsewhere {
                continue;
            }
            if let Some(view) = self.selector.view(&event) {
                return Watched::Change(view);
            }
        }
    }

    /// The revision for a bookmark, if everything known has been told.
    pub fn bookmark(&self) -> Option<Revision> {
        self.follow.bookmark()
    }
}

impl Registry {
    /// An object.
    ///
    /// # Errors
    /// 404, 504 for a revision that has not come, or trouble of the storage.
    pub async fn get(&self, key: &Key, freshness: Freshness) -> Result<Object, ApiError> {
        let fail = |error| from_storage(self.resource(), &key.name, error);
        match freshness {
            Freshness::Latest => {
                let stored = self.parts.storage.get(key).await.map_err(fail)?;
                Ok(stored.object)
            }
            freshness => {
                self.cache.fresh(freshness).await.map_err(stale)?;
                let item = self.cache.get(key).ok_or(StorageError::NotFound);
                Ok(item.map_err(fail)?.object.clone())
            }
        }
    }

    /// An object as the cache knows it: for reconcilers, without asking anybody.
    pub fn cached_get(&self, key: &Key) -> Option<Arc<Item>> {
        self.cache.get(key)
    }

    /// All objects of a namespace (or all) as the cache knows them, sorted by key.
    pub fn cached_list(&self, namespace: Option<&str>) -> Vec<Arc<Item>> {
        self.cache.snapshot(namespace).items
    }

    /// A page of objects.
    ///
    /// # Errors
    /// 410 for an exact revision that is gone, 429 before the first list, 504 for a revision that
    /// has not come, or trouble of the storage.
    pub async fn list(&self, options: &ListOptions) -> Result<Listed, ApiError> {
        let snapshot = match options.at {
            ListAt::Any => self.cached(options, Freshness::Any).await,
            ListAt::NotOlderThan(revision) => {
                self.cached(options, Freshness::NotOlderThan(revision))
                    .await
            }
            ListAt::Latest => match self.cached(options, Freshness::Latest).await {
                Err(Stale::Unproved | Stale::NotReady) => {
                    return self.backend_list(options, At::Latest).await;
                }
                other => other,
            },
            ListAt::Exact(revision) => return self.list_exactly(options, revision).await,
        };
        Ok(page(snapshot.map_err(stale)?, options))
    }

    async fn cached(&self, options: &ListOptions, want: Freshness) -> Result<Snapshot, Stale> {
        self.cache.fresh(want).await?;
        Ok(self.cache.snapshot(options.namespace.as_deref()))
    }

    async fn list_exactly(
        &self,
        options: &ListOptions,
        revision: Revision,
    ) -> Result<Listed, ApiError> {
        let wait = self.cache.fresh(Freshness::NotOlderThan(revision)).await;
        if let Err(error @ Stale::Future { .. }) = wait {
            return Err(stale(error));
        }
        let namespace = options.namespace.as_deref();
        match self.cache.snapshot_at(revision, namespace) {
            Some(snapshot) => Ok(page(snapshot, options)),
            None => self.backend_list(options, At::Exact(revision)).await,
        }
    }

    async fn backend_list(&self, options: &ListOptions, at: At) -> Result<Listed, ApiError> {
        let query = ListQuery {
            namespace: options.namespace.clone(),
            at,
            limit: None,
            after: options.after.clone(),
        };
        let page_of = self.parts.storage.list(&query).await;
        let found = page_of.map_err(|error| from_storage(self.resource(), "", error))?;
        let items = found.items.into_iter().map(|s| Arc::new(Item::new(s)));
        let snapshot = Snapshot {
            items: items.collect(),
            revision: found.revision,
        };
        Ok(page(snapshot, options))
    }

    /// Begins a watch.
    ///
    /// # Errors
    /// 410 for a revision that is no longer kept, 429 before the first list, 504 for one that has
    /// not come although a snapshot of it was asked for.
    pub async fn watch(&self, options: WatchOptions) -> Result<Watching, ApiError> {
        let WatchOptions {
            namespace,
            selector,
            start,
        } = options;
        let (snapshot, follow) = match start {
            WatchStart::After(revision) => {
                self.cache.fresh(Freshness::Any).await.map_err(stale)?;
                let follow = self.cache.resume(revision);
                let follow = follow.map_err(|lagged| expired(revision, lagged))?;
                let items = Vec::new();
                (Snapshot { items, revision }, follow)
            }
            WatchStart::Snapshot(freshness) => {
                self.current(freshness).await?;
                self.cache.follow(namespace.as_deref())
            }
            WatchStart::Now(freshness) => {
                self.current(freshness).await?;
                let (mut snapshot, follow) = self.cache.follow(namespace.as_deref());
                snapshot.items.clear();
                (snapshot, follow)
            }
        };
        let mut initial = snapshot.items;
        initial.retain(|item| selector.matches(&item.object));
        Ok(Watching {
            initial,
            revision: snapshot.revision,
            namespace,
            selector,
            follow,
        })
    }

    async fn current(&self, freshness: Freshness) -> Result<(), ApiError> {
        match self.cache.fresh(freshness).await {
            // A watch cannot be served by the backend's list; without fences the backend's own
            // revision is what the cache has to reach.
            Err(Stale::Unproved) => {
                let revision = self.backend_revision().await?;
                let wanted = Freshness::NotOlderThan(revision);
                self.cache.fresh(wanted).await.map_err(stale)
            }
            other => other.map_err(stale),
        }
    }

    async fn backend_revision(&self) -> Result<Revision, ApiError> {
        let query = ListQuery {
            namespace: None,
            at: At::Latest,
            limit: Some(1),
            after: None,
        };
        let page = self.parts.storage.list(&query).await;
        let page = page.map_err(|error| from_storage(self.resource(), "", error))?;
        Ok(page.revision)
    }
}

fn stale(stale: Stale) -> ApiError {
    match stale {
        Stale::NotReady | Stale::Unproved => initializing(),
        Stale::Future { wanted, current } => too_large(wanted.0, current.0),
    }
}

/// 410 in the words of the watch cache.
pub(crate) fn expired(wanted: Revision, lagged: Lagged) -> ApiError {
    let text = format!("too old resource version: {wanted} ({})", lagged.oldest);
    ApiError::new(Reason::Expired, text)
}

/// Narrows a snapshot to what was asked for. Pure.
fn page(snapshot: Snapshot, options: &ListOptions) -> Listed {
    let Snapshot {
        mut items,
        revision,
    } = snapshot;
    items.retain(|item| {
        let follows = options.after.as_ref().is_none_or(|after| item.key > *after);
        follows && options.selector.matches(&item.object)
    });
    let limit = options.limit.unwrap_or(usize::MAX);
    let remaining = items.len().saturating_sub(limit);
    items.truncate(limit);
    Listed {
        items,
        revision,
        remaining,
    }
}
