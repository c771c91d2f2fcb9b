//! This replica's view of all sessions, kept current by one watch.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use apiserver_generic::{
    Key, Revision, Storage,
    storage::{At, Change, ListQuery, StorageError, Stored},
};
use futures::StreamExt as _;
use parking_lot::RwLock;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::holders::Holders;

const RETRY: Duration = Duration::from_millis(500);
const PAGE: usize = 500;

/// Sessions by their key, and the revision at which they were so.
#[derive(Debug)]
pub(super) struct Index {
    sessions: RwLock<BTreeMap<Key, Stored>>,
    /// 0 while there is no watch.
    revision: watch::Sender<Revision>,
}

impl Default for Index {
    fn default() -> Self {
        Self {
            sessions: RwLock::default(),
            revision: watch::Sender::new(Revision(0)),
        }
    }
}

impl Index {
    /// A session, as of a moment ago.
    pub(super) fn get(&self, key: &Key) -> Option<Stored> {
        self.sessions.read().get(key).cloned()
    }

    /// All sessions, as of a moment ago.
    pub(super) fn all(&self) -> Vec<Stored> {
        self.sessions.read().values().cloned().collect()
    }

    /// Where the watch is.
    pub(super) fn revision(&self) -> Revision {
        *self.revision.borrow()
    }

    /// Changes of anything.
    pub(super) fn subscribe(&self) -> watch::Receiver<Revision> {
        self.revision.subscribe()
    }

    /// Whether everything that was written before this call has arrived. A backend that cannot
    /// prove it is trusted while its watch stands.
    pub(super) async fn proved(&self, storage: &dyn Storage) -> bool {
        match storage.fence().await {
            Ok(Some(wanted)) => {
                let mut revision = self.revision.subscribe();
                revision.wait_for(|now| *now >= wanted).await.is_ok()
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
            self.revision.send_replace(Revision(0));
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
        for key in holders.keys() {
            let stored = self.get(&key);
            holders.changed(&key, stored.as_ref().map(|s| &s.object), revision);
        }
        self.revision.send_replace(revision);
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
                holders.changed(&key, Some(&stored.object), revision);
                self.sessions.write().insert(key, stored);
                revision
            }
            Change::Deleted(stored) => {
                self.sessions.write().remove(&stored.key);
                holders.changed(&stored.key, None, stored.revision);
                stored.revision
            }
            Change::Progress(revision) => revision,
        };
        self.revision.send_replace(revision);
    }
}

async fn list(storage: &dyn Storage) -> Result<(BTreeMap<Key, Stored>, Revision), StorageError> {
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
        sessions.extend(page.items.into_iter().map(|s| (s.key.clone(), s)));
        if !page.more {
            return Ok((sessions, page.revision));
        }
    }
}
