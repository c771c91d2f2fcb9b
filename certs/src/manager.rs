//! Keeps the shared Secret as the plan wants it, and publishes what is in force.

use std::{pin::pin, sync::Arc, time::Duration};

use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::{WatchStreamExt as _, watcher};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    issue::{IssueError, PemPair},
    plan::{Plan, Policy, plan},
    store::{SecretStore, decode},
};

/// A lost write race or a failed look is tried again after this.
const RETRY: Duration = Duration::from_secs(2);
/// How long one look may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// The Secret is looked at this often even if nothing was heard of it.
const LONGEST_REST: Duration = Duration::from_secs(3600);

/// The certificates in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificates {
    /// The serving certificate with its chain, and its key.
    pub serving: PemPair,
    /// What clients should trust: the APIService's `caBundle`.
    pub bundle: String,
}

/// Why certificates could not be had.
#[derive(Debug, thiserror::Error)]
pub enum ManagerError {
    /// The Secret could not be read or written.
    #[error(
        "the certificates' Secret could not be read or written (is the server's Role bound?): {0}"
    )]
    Api(#[from] kube::Error),
    /// A certificate could not be issued.
    #[error(transparent)]
    Issue(#[from] IssueError),
    /// Other replicas kept changing the Secret.
    #[error("the certificates' Secret keeps changing under us")]
    Contended,
}

/// Keeps the certificates of all replicas.
pub struct Manager {
    store: SecretStore,
    policy: Policy,
    published: watch::Sender<Option<Arc<Certificates>>>,
}

impl Manager {
    /// A manager of that Secret; nothing is read yet.
    pub fn new(store: SecretStore, policy: Policy) -> Self {
        Self {
            store,
            policy,
            published: watch::Sender::new(None),
        }
    }

    /// What is in force, `None` until the first look has succeeded.
    pub fn subscribe(&self) -> watch::Receiver<Option<Arc<Certificates>>> {
        self.published.subscribe()
    }

    /// Looks once: issues what is needed and publishes. Returns when to look again.
    ///
    /// # Errors
    /// When the Secret cannot be read or written; what is published stays.
    pub async fn look(&self) -> Result<Timestamp, ManagerError> {
        let mut secret = self.store.get_or_create().await?;
        // Each replica that loses a race reads the winner's certificates and is content with them;
        // a renewal takes at most three writes.
        for _ in 0..8 {
            let stored = decode(&secret);
            match plan(&stored, &self.policy, Timestamp::now())? {
                Plan::Keep(until) => {
                    self.publish(&secret);
                    return Ok(until);
                }
                Plan::Replace(wanted) => {
                    secret = match self.store.replace(secret, &wanted).await? {
                        Some(secret) => secret,
                        None => self.store.get_or_create().await?,
                    };
                }
            }
        }
        Err(ManagerError::Contended)
    }

    fn publish(&self, secret: &Secret) {
        let stored = decode(secret);
        let Some(serving) = stored.serving.clone() else {
            return;
        };
        let certificates = Arc::new(Certificates {
            serving,
            bundle: stored.bundle(),
        });
        self.published.send_if_modified(|current| {
            if current.as_ref() == Some(&certificates) {
                return false;
            }
            *current = Some(certificates);
            true
        });
    }

    /// Looks whenever the Secret changes or a renewal is due, until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let (api, name) = self.store.target();
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let mut changes = pin!(watcher(api, config).default_backoff());
        loop {
            let rest = match tokio::time::timeout(PATIENCE, self.look()).await {
                Ok(Ok(until)) => rest(until, Timestamp::now()),
                Ok(Err(error)) => {
                    tracing::warn!(%error, "certificates");
                    RETRY
                }
                Err(_) => {
                    tracing::warn!("certificates: no answer within {} s", PATIENCE.as_secs());
                    RETRY
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(rest) => {}
                change = changes.next() => if let Some(Err(error)) = change {
                    tracing::debug!(%error, "watch of the certificates' Secret");
                },
            }
        }
    }
}

fn rest(until: Timestamp, now: Timestamp) -> Duration {
    let left = until.as_second().saturating_sub(now.as_second());
    Duration::from_secs(u64::try_from(left).unwrap_or(0)).clamp(RETRY, LONGEST_REST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_are_bounded_both_ways() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let later = |s: i64| Timestamp::from_second(1_000_000 + s).unwrap();
        assert_eq!(rest(later(-5), now), RETRY);
        assert_eq!(rest(later(60), now), Duration::from_secs(60));
        assert_eq!(rest(later(1_000_000), now), LONGEST_REST);
    }
}
