//! Removes what dead replicas, and broken requests of our own, have left behind.

use std::time::Instant;

use apiserver_generic::storage::{StorageError, Stored, WriteContext};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::{claim::Fate, record, store::Inner};

/// Collects until `stop`.
pub(super) async fn collect(inner: &Inner, stop: CancellationToken) {
    let mut ticks = interval(inner.timing.collect_every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        if stop.run_until_cancelled(round(inner)).await.is_none() {
            return;
        }
    }
}

async fn round(inner: &Inner) {
    // One look that hangs must not keep all later ones from happening.
    let looking = tokio::time::timeout(inner.timing.renewal_limit, inner.leases.list());
    let beats = match looking.await {
        Ok(Ok(beats)) => beats,
        Err(_) => {
            tracing::warn!("replicas' Leases could not be listed in time");
            return;
        }
        Ok(Err(error)) => {
            tracing::warn!(%error, inside = error.internal, "replicas' Leases could not be listed");
            return;
        }
    };
    let sessions = inner.index.all();
    let named: Vec<String> = sessions
        .iter()
        .map(|stored| record::read(&stored.object).spec.replica)
        .collect();
    let dead = {
        let mut observed = inner.observed.lock();
        observed.observe(&beats, &named, Instant::now());
        observed.dead_with_lease()
    };
    for stored in &sessions {
        if is_left_over(inner, stored) {
            remove(inner, stored).await;
        }
    }
    for replica in dead.iter().filter(|replica| !named.contains(replica)) {
        if let Err(error) = inner.leases.remove(replica).await {
            tracing::info!(%error, replica, "a dead replica's Lease stays for now");
        }
    }
}

/// Whether the stream behind a session cannot exist any more.
fn is_left_over(inner: &Inner, stored: &Stored) -> bool {
    let spec = record::read(&stored.object).spec;
    match inner.observed.lock().fate(&spec.replica) {
        Fate::Dead | Fate::Predecessor => true,
        Fate::Mine => !inner.holders.contains(&spec.claim),
        Fate::Alive => false,
    }
}

/// Hands over to a successor, or frees the name; a change in between leaves it to the next round.
pub(super) async fn remove(inner: &Inner, stored: &Stored) {
    let spec = record::read(&stored.object).spec;
    let context = WriteContext::default();
    let alive = stored.object.deletion_timestamp().is_none();
    let result = match spec.successor.filter(|_| alive) {
        Some(successor) => {
            let object = record::handed_over(&stored.object, &successor);
            let updated = inner
                .storage
                .update(&context, &stored.key, &object, stored.revision);
            updated.await.map(|_| ())
        }
        None => {
            let deleted = inner.storage.delete(&context, &stored.key, stored.revision);
            deleted.await.map(|_| ())
        }
    };
    match result {
        Ok(()) => {
            tracing::info!(
                session = stored.key.name,
                replica = spec.replica,
                "collected a session without a stream"
            );
        }
        Err(StorageError::NotFound | StorageError::Conflict) => {}
        Err(error) => {
            tracing::warn!(%error, session = stored.key.name, "a session could not be collected")
        }
    }
}
