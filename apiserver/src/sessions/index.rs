//! This replica's view of all sessions, kept current by one watch.

use std::{collections::BTreeMap, pin::pin, sync::Arc, time::Duration};

use apiserver_generic::{
    Key, Revision, Storage,
    storage::{At, Change, ListQuery, StorageError, Stored},
};
use apiservice::v1alpha1::WorkspaceSessionSpec;
use futures::StreamExt as _;
use parking_lot::{Mutex, RwLock};
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{ends::Ends, holders::Holders, record};

const RETRY: Duration = Duration::from_millis(500);
const PAGE: usize = 500;

/// A session as it was seen.
#[derive(Debug)]
pub(super) struct Seen {
    /// The object.
    pub(super) stored: Stored,
    /// Its spec, read.
    pub(super) spec: WorkspaceSessionSpec,
}

impl Seen {
    fn new(stored: Stored) -> Arc<Self> {
        let spec = record::read(&stored.object).spec;
        Arc::new(Self { stored, spec })
    }
}

type Sessions = BTreeMap<Key, Arc<Seen>>;

/// Sessions by their key, and the revision at which they were so.
#[derive(Debug)]
pub(super) struct Index {
    sessions: RwLock<Sessions>,
    progress: Progress,
    /// Names that have become free.
    pub(super) ends: Ends,
    lingers: Duration,
}

/// Where the watch is: 0 while there is none. Who waits is woken in the order in which they came, so
/// that a simulation repeats itself, which `tokio::sync::watch` does not promise.
#[derive(Debug, Default)]
struct Progress {
    revision: Mutex<Revision>,
    moved: Notify,
}

impl Progress {
    fn get(&self) -> Revision {
        *self.revision.lock()
    }

    fn set(&self, revision: Revision) {
        *self.revision.lock() = revision;
        self.moved.notify_waiters();
    }

    async fn until(&self, holds: impl Fn(Revision) -> bool) {
        loop {
            let mut moved = pin!(self.moved.notified());
            // From here on no move is missed.
            moved.as_mut().enable();
            if holds(self.get()) {
                return;
            }
            moved.await;
        }
    }
}

impl Index {
    /// Empty; an end matters for as long as it `lingers`.
    pub(super) fn new(lingers: Duration) -> Self {
        Self {
            sessions: RwLock::default(),
            progress: Progress::default(),
            ends: Ends::default(),
            lingers,
        }
    }

    /// A session, as of a moment ago.
    pub(super) fn get(&self, key: &Key) -> Option<Arc<Seen>> {
        self.sessions.read().get(key).cloned()
    }

    /// All sessions, as of a moment ago.
    pub(super) fn all(&self) -> Vec<Arc<Seen>> {
        self.sessions.read().values().cloned().collect()
    }

    /// Where the watch is.
    pub(super) fn revision(&self) -> Revision {
        self.progress.get()
    }

    /// Waits until a session is known to have changed since this revision, or to be gone.
    pub(super) async fn moved_on(&self, key: &Key, since: Revision) {
        let moved = |now: Revision| match self.get(key) {
            Some(seen) => seen.stored.revision > since,
            None => now > since,
        };
        self.progress.until(moved).await;
    }

    /// Waits until everything up to this revision has been seen.
    pub(super) async fn reached(&self, revision: Revision) {
        self.progress.until(|now| now >= revision).await;
    }

    /// Waits until there has been a first list.
    pub(super) async fn filled(&self) {
        self.progress.until(|now| now.0 > 0).await;
    }

    /// Whether everything that was written before this call has arrived. A backend that cannot
    /// prove it is trusted while its watch stands.
    pub(super) async fn proved(&self, storage: &dyn Storage) -> bool {
        match storage.fence().await {
            Ok(Some(wanted)) => {
                self.progress.until(|now| now >= wanted).await;
                true
            }
            Ok(None) => self.revision().0 > 0,
            Err(error) => {
                tracing::warn!(%error, "the watch of sessions could not be proved current");
                false
            }
        }
    }

    /// Follows the storage until `stop`.
    pub(super) async fn follow(
        &self,
        storage: Arc<dyn Storage>,
        holders: Arc<Holders>,
        stop: CancellationToken,
    ) {
        loop {
            let once = self.follow_once(&*storage, &holders);
            match stop.run_until_cancelled(once).await {
                None => return,
                Some(Ok(())) => tracing::debug!("the watch of sessions ended and starts over"),
                Some(Err(error)) => tracing::warn!(%error, "the watch of sessions failed"),
            }
            self.progress.set(Revision(0));
            if stop
                .run_until_cancelled(tokio::time::sleep(RETRY))
                .await
                .is_none()
            {
                return;
            }
        }
    }

    async fn follow_once(
        &self,
        storage: &dyn Storage,
        holders: &Holders,
    ) -> Result<(), StorageError> {
        let (sessions, revision) = list(storage).await?;
        *self.sessions.write() = sessions;
        self.ends.listening(Instant::now());
        // Before anybody is told, so that a claim that begins to listen in between looks by itself.
        self.progress.set(revision);
        for key in holders.keys() {
            let stored = self.get(&key);
            let object = stored.as_ref().map(|seen| &seen.stored.object);
            holders.changed(&key, object, revision);
        }
        let mut changes = storage.watch(revision).await?;
        while let Some(change) = changes.next().await {
            self.apply(change?, holders);
        }
        Ok(())
    }

    fn apply(&self, change: Change, holders: &Holders) {
        let revision = match change {
            Change::Put(stored) => {
                let (key, revision) = (stored.key.clone(), stored.revision);
                let object = stored.object.clone();
                // First seen, then told: who begins to listen in between finds it in the index.
                self.sessions.write().insert(key.clone(), Seen::new(stored));
                holders.changed(&key, Some(&object), revision);
                revision
            }
            Change::Deleted(stored) => {
                self.sessions.write().remove(&stored.key);
                self.ends
                    .note(stored.key.clone(), Instant::now(), self.lingers);
                holders.changed(&stored.key, None, stored.revision);
                stored.revision
            }
            Change::Progress(revision) => revision,
        };
        self.progress.set(revision);
    }
}

async fn list(storage: &dyn Storage) -> Result<(Sessions, Revision), StorageError> {
    let mut query = ListQuery {
        namespace: None,
        at: At::Latest,
        limit: Some(PAGE),
        after: None,
    };
    let mut sessions = BTreeMap::new();
    loop {
        let page = storage.list(&query).await?;
        query.at = At::Exact(page.revision);
        query.after = page.items.last().map(|stored| stored.key.clone());
        let items = page.items.into_iter();
        sessions.extend(items.map(|stored| (stored.key.clone(), Seen::new(stored))));
        if !page.more {
            return Ok((sessions, page.revision));
        }
    }
}
