//! Waiting until the cache is as fresh as a read wants it.

use super::Cache;
use crate::storage::{Revision, StorageError};

/// How fresh a read must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Whatever is known.
    Any,
    /// At least this revision.
    NotOlderThan(Revision),
    /// Everything that was written before the read began.
    Latest,
}

/// Why the cache cannot answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stale {
    /// The first list has not arrived: 429.
    #[error("the cache is not filled yet")]
    NotReady,
    /// Not proved current in time: ask the backend.
    #[error("the cache could not be proved current in time")]
    Unproved,
    /// The revision did not come: 504.
    #[error("revision {wanted} has not come, the current one is {current}")]
    Future {
        /// Asked for.
        wanted: Revision,
        /// Known.
        current: Revision,
    },
}

impl Cache {
    /// Returns once the cache is fresh enough.
    ///
    /// # Errors
    /// [`Stale`] after the waits of [`super::Settings`].
    pub async fn fresh(&self, freshness: Freshness) -> Result<(), Stale> {
        if !self.is_ready() {
            return Err(Stale::NotReady);
        }
        match freshness {
            Freshness::Any => Ok(()),
            Freshness::NotOlderThan(wanted) => self.not_older_than(wanted).await,
            Freshness::Latest => self.proved_current().await,
        }
    }

    async fn not_older_than(&self, wanted: Revision) -> Result<(), Stale> {
        if self.revision() >= wanted {
            return Ok(());
        }
        // A quiet resource may be behind in number only: a fence moves it on.
        let arrived = async {
            let (_, ()) = tokio::join!(self.proved_current(), self.arrival(wanted));
        };
        tokio::time::timeout(self.settings.future_wait, arrived)
            .await
            .map_err(|_| Stale::Future {
                wanted,
                current: self.revision(),
            })
    }

    async fn proved_current(&self) -> Result<(), Stale> {
        let before = self.revision();
        let proof = async {
            let fence = match self.fences.next().await {
                Ok(Some(fence)) => fence,
                Ok(None) => return Err(Stale::Unproved),
                Err(error) => return Err(self.fence_failed(&error)),
            };
            if fence <= before {
                tracing::warn!(%fence, %before, "the backend went back in time; reading everything again");
                self.shared.relist.notify_one();
                return Err(Stale::Unproved);
            }
            self.arrival(fence).await;
            Ok(())
        };
        tokio::time::timeout(self.settings.fence_wait, proof)
            .await
            .unwrap_or(Err(Stale::Unproved))
    }

    fn fence_failed(&self, error: &StorageError) -> Stale {
        tracing::debug!(%error, "a fence failed; the read goes to the backend");
        Stale::Unproved
    }

    async fn arrival(&self, revision: Revision) {
        let mut ticks = self.shared.ticks.subscribe();
        while self.revision() < revision && self.changed(&mut ticks).await {}
    }
}
