//! What makes a workspace due: its own changes, and those of what it owns.
//!
//! Entry point: [`Watches::start`]. KubeVirt's kinds are watched while they are served, see
//! [`kubevirt`].

mod book;
mod cache;
mod follow;
pub(crate) mod kubevirt;
mod queue;

use std::collections::BTreeMap;
use std::sync::Arc;

use apiserver_generic::Object;
use kube::Client;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub(crate) use book::Outcome;
use cache::Cache;
use follow::Follow;
pub(crate) use queue::{Queue, chance};

use crate::kinds::Kind;

/// The caches of all kinds that are ever watched.
#[derive(Clone, Debug)]
pub(crate) struct Caches {
    kinds: Arc<BTreeMap<Kind, Arc<Cache>>>,
}

impl Caches {
    pub(crate) fn new() -> Self {
        let kinds = Kind::CORE.into_iter().chain(Kind::KUBEVIRT);
        Self {
            kinds: Arc::new(kinds.map(|kind| (kind, Arc::default())).collect()),
        }
    }

    /// The cached object, if its kind is watched and it bears our label.
    pub(crate) fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<Arc<Object>> {
        self.kinds.get(&kind)?.get(namespace, name)
    }

    /// Cached objects of a namespace that pass.
    pub(crate) fn select(
        &self,
        kind: Kind,
        namespace: &str,
        pass: impl Fn(&Object) -> bool,
    ) -> Vec<Arc<Object>> {
        let cache = self.kinds.get(&kind);
        cache
            .map(|cache| cache.select(namespace, pass))
            .unwrap_or_default()
    }

    fn of(&self, kind: Kind) -> Arc<Cache> {
        self.kinds.get(&kind).cloned().unwrap_or_default()
    }

    fn clear(&self, kind: Kind) {
        self.of(kind).replace(BTreeMap::new());
    }
}

/// Running watches of some kinds.
pub(crate) struct Watches {
    synced: Vec<watch::Receiver<bool>>,
    tasks: JoinSet<()>,
}

impl Watches {
    /// Starts watching the kinds until the token ends it.
    pub(crate) fn start(
        client: &Client,
        kinds: &[Kind],
        caches: &Caches,
        queue: &Arc<Queue>,
        stop: &CancellationToken,
    ) -> Self {
        let mut watches = Self {
            synced: Vec::new(),
            tasks: JoinSet::new(),
        };
        for kind in kinds {
            let (synced, receiver) = watch::channel(false);
            let follow = Follow {
                client: client.clone(),
                kind: *kind,
                cache: caches.of(*kind),
                queue: queue.clone(),
                synced,
            };
            watches.synced.push(receiver);
            watches.tasks.spawn(follow.run(stop.clone()));
        }
        watches
    }

    /// Waits until every cache has its first list.
    pub(crate) async fn synced(&mut self) {
        for receiver in &mut self.synced {
            // A watch that ended does so because everything ends.
            let _ = receiver.wait_for(|synced| *synced).await;
        }
    }

    /// Waits for the watches to end after their token was cancelled.
    pub(crate) async fn ended(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}
