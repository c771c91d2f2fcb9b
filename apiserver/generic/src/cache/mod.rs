//! The watch cache: one per resource, fed by one upstream watch, read by everybody.
//!
//! Entry point: [`Cache::start`]. [`state`](self) holds what is known (pure), `feed` keeps it
//! current, `fence` proves that it is, `follow` reads changes from it.
//! After `k8s.io/apiserver/pkg/storage/cacher`, without a buffer per watcher: a watcher is a
//! position in one shared ring, and one that falls out of the ring is ended.
//!
//! **Architecture Invariant:** an object is encoded once; every reader shares the bytes.

mod feed;
mod fence;
mod follow;
mod fresh;
mod item;
mod state;

use std::{sync::Arc, time::Duration};

use parking_lot::RwLock;
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::storage::{Key, Revision, Storage};

pub use follow::{Follow, Followed};
pub use fresh::{Freshness, Stale};
pub use item::{Event, EventKind, Item};
pub use state::{Cursor, Lagged, Limits, Snapshot};

use fence::Fences;
use state::State;

/// Waits and bounds of a cache.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How much history is kept for watches to resume from.
    pub limits: Limits,
    /// How long a consistent read waits for its fence before it goes to the backend.
    pub fence_wait: Duration,
    /// How long a read waits for a revision that has not arrived.
    pub future_wait: Duration,
    /// Shortest time between two fences.
    pub fence_interval: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            fence_wait: Duration::from_millis(100),
            future_wait: Duration::from_secs(3),
            fence_interval: Duration::from_millis(5),
        }
    }
}

/// What the cache's readers and its feed share.
struct Shared {
    state: RwLock<State>,
    /// Counts changes of `state`; readers wait on it.
    ticks: watch::Sender<u64>,
    /// Set when the backend's history turned out to have been rewritten.
    relist: tokio::sync::Notify,
}

impl Shared {
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state.write());
        self.ticks.send_modify(|n| *n = n.wrapping_add(1));
        result
    }
}

/// A cache and the task that feeds it. Dropping the last clone ends the task.
#[derive(Clone)]
pub struct Cache {
    shared: Arc<Shared>,
    fences: Arc<Fences>,
    settings: Settings,
    stop: CancellationToken,
    _alive: Arc<tokio_util::sync::DropGuard>,
}

impl Cache {
    /// Starts to follow a backend, until the token is cancelled or the last clone is dropped.
    pub fn start(
        storage: Arc<dyn Storage>,
        settings: Settings,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> Self {
        let stop = stop.child_token();
        let shared = Arc::new(Shared {
            state: RwLock::new(State::new(settings.limits)),
            ticks: watch::Sender::new(0),
            relist: tokio::sync::Notify::new(),
        });
        let feed = feed::run(storage.clone(), shared.clone());
        tasks.spawn(stop.clone().run_until_cancelled_owned(feed));
        Self {
            fences: Arc::new(Fences::new(
                storage,
                settings.fence_interval,
                tasks.clone(),
                stop.clone(),
            )),
            shared,
            settings,
            stop: stop.clone(),
            _alive: Arc::new(stop.drop_guard()),
        }
    }

    /// Whether the first list has arrived.
    pub fn is_ready(&self) -> bool {
        self.shared.state.read().is_ready()
    }

    /// Waits for the first list, or for the end.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn ready(&self) {
        let mut ticks = self.shared.ticks.subscribe();
        while !self.is_ready() && self.changed(&mut ticks).await {}
    }

    /// Waits for a change; `false` when the cache has stopped.
    async fn changed(&self, ticks: &mut watch::Receiver<u64>) -> bool {
        let changed = self.stop.run_until_cancelled(ticks.changed()).await;
        matches!(changed, Some(Ok(())))
    }

    /// The revision up to which everything is known.
    pub fn revision(&self) -> Revision {
        self.shared.state.read().revision()
    }

    /// One object, as fresh as the cache is.
    pub fn get(&self, key: &Key) -> Option<Arc<Item>> {
        self.shared.state.read().get(key)
    }

    /// All objects of a namespace (or all), and the revision at which they are true.
    pub fn snapshot(&self, namespace: Option<&str>) -> Snapshot {
        self.shared.state.read().snapshot(namespace)
    }

    /// The objects as they were at a past revision, if the history that is kept reaches back.
    pub fn snapshot_at(&self, revision: Revision, namespace: Option<&str>) -> Option<Snapshot> {
        self.shared.state.read().snapshot_at(revision, namespace)
    }

    /// A snapshot and the changes that follow it, without gap or duplicate.
    pub fn follow(&self, namespace: Option<&str>) -> (Snapshot, Follow) {
        let ticks = self.shared.ticks.subscribe();
        let state = self.shared.state.read();
        let snapshot = state.snapshot(namespace);
        let cursor = state.cursor_now();
        drop(state);
        let follow = Follow::new(self.clone(), ticks, cursor, snapshot.revision);
        (snapshot, follow)
    }

    /// The changes after a revision.
    ///
    /// # Errors
    /// [`Lagged`] if the history that is kept does not reach back to it.
    pub fn resume(&self, from: Revision) -> Result<Follow, Lagged> {
        let ticks = self.shared.ticks.subscribe();
        let cursor = self.shared.state.read().cursor_from(from)?;
        Ok(Follow::new(self.clone(), ticks, cursor, from))
    }
}

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests;
