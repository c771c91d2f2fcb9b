//! An exclusive stream that is ours, until it is released.

use std::{sync::Arc, time::Duration};

use apiserver_generic::{Key, Revision, storage::StorageError};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use super::{
    claim::Notice,
    collector::pass_on,
    counters::Counters,
    ends::Predecessor,
    holders::Tenure,
    record::{self, Wish},
    store::Inner,
};
use crate::streams::close::CloseReason;

/// How long a release is tried before the collector takes over.
pub(super) const RELEASE_LIMIT: Duration = Duration::from_secs(5);
/// After the first failure, and at most; doubled in between.
const RETRY: Duration = Duration::from_millis(50);
const LONGEST_RETRY: Duration = Duration::from_millis(800);

/// An exclusive stream that is ours. Dropping it leaves its object to the collector, so release it.
pub struct Held {
    inner: Arc<Inner>,
    key: Key,
    claim: String,
    claimed: Revision,
    told: watch::Receiver<Notice>,
    released: bool,
}

impl Held {
    /// A claim that is about to be made.
    pub(super) fn pending(inner: &Arc<Inner>, wish: &Wish) -> Self {
        let key = wish.key();
        let told = inner.holders.register(&key, &wish.claim, Tenure::Exclusive);
        Self {
            told,
            inner: inner.clone(),
            key,
            claim: wish.claim.clone(),
            claimed: Revision(0),
            released: false,
        }
    }

    pub(super) fn key(&self) -> &Key {
        &self.key
    }

    /// The revision at which the claim was made.
    pub(super) fn claimed_at(&mut self, revision: Revision) {
        self.claimed = revision;
    }

    /// What held the name before.
    pub fn predecessor(&self) -> Predecessor {
        Predecessor::new(self.inner.clone(), self.key.clone(), self.claimed)
    }

    pub(super) fn claim(&self) -> &str {
        &self.claim
    }

    /// Waits until the stream is told to end, and why.
    ///
    /// # Cancel safety
    /// What was told stays told.
    pub async fn told(&mut self) -> CloseReason {
        let notice = self.told.wait_for(|notice| *notice != Notice::Keep).await;
        match notice.map(|notice| *notice) {
            Ok(Notice::TakenOver) => CloseReason::TakenOver,
            Ok(Notice::Ended) => CloseReason::EndedByAdmin,
            Ok(Notice::Lost | Notice::Keep) | Err(_) => CloseReason::ControlPlaneUnreachable,
        }
    }

    /// Where the stream's counters are written while it lives.
    pub fn counters(&self) -> Counters {
        Counters::new(self.inner.clone(), self.key.clone(), self.claim.clone())
    }

    /// Frees the name, or hands the session to whoever took it over. The stream has ended.
    pub async fn release(mut self) {
        let release = async {
            let mut pause = RETRY;
            while let Err(error) = self.try_release().await {
                tracing::debug!(%error, session = self.key.name, "a release is tried again");
                sleep(pause).await;
                pause = (pause * 2).min(LONGEST_RETRY);
            }
        };
        self.released = timeout(RELEASE_LIMIT, release).await.is_ok();
        if !self.released {
            tracing::warn!(
                session = self.key.name,
                "a session could not be released and is left to the collector"
            );
        }
    }

    async fn try_release(&self) -> Result<(), StorageError> {
        let stored = match self.inner.storage.get(&self.key).await {
            Err(StorageError::NotFound) => return Ok(()),
            other => other?,
        };
        if record::read(&stored.object).spec.claim != self.claim {
            return Ok(());
        }
        match pass_on(&self.inner, &stored).await {
            Err(StorageError::NotFound) => Ok(()),
            other => other,
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.inner.holders.remove(&self.key, &self.claim);
        if !self.released {
            self.inner.dropped.notify_one();
        }
    }
}
