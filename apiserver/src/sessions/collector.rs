//! Removes what dead replicas, broken requests of our own and absent successors have left behind.
//!
//! **Look last.** Whether a replica is dead is always judged by a look at the Leases that began after the
//! session was read. A replica that comes back renews its Lease before it holds anything; so what a
//! dead one has left is either in the session as it was read, or written after a renewal that the look
//! has seen. The removal is guarded by the revision that was read.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use apiserver_generic::{
    Key, Revision,
    storage::{StorageError, Stored, WriteContext},
};
use apiservice::v1alpha1::{SessionSuccessor, WorkspaceSessionSpec};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::{claim::Fate, index::Seen, record, replica::Look, store::Inner};

/// Offers that nobody has come for yet, and since when we have seen them.
type Offers = BTreeMap<Key, (Revision, Instant)>;

/// Collects until `stop`.
pub(super) async fn collect(inner: &Inner, stop: CancellationToken) {
    let mut offers = Offers::new();
    let collecting = async {
        inner.index.filled().await;
        let mut ticks = interval(inner.timing.collect_every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                _ = ticks.tick() => round(inner, &mut offers).await,
                () = inner.dropped.notified() => {
                    sweep(inner, &inner.index.all(), Looked::No, &mut offers).await;
                }
            }
        }
    };
    stop.run_until_cancelled(collecting).await;
}

/// Whether the Leases were looked at after what is judged was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looked {
    Yes,
    No,
}

async fn round(inner: &Inner, offers: &mut Offers) {
    let sessions = inner.index.all();
    let looked = look(inner).await;
    sweep(inner, &sessions, looked, offers).await;
    let named: BTreeSet<&str> = sessions.iter().map(|s| s.spec.replica.as_str()).collect();
    let dead = inner.observed.lock().dead_with_lease();
    for replica in dead.iter().filter(|r| !named.contains(r.as_str())) {
        let removing = timeout(inner.timing.renewal_limit, inner.leases.remove(replica));
        match removing.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::info!(%error, replica, "a dead replica's Lease stays for now");
            }
            Err(_) => tracing::info!(
                replica,
                "a dead replica's Lease could not be removed in time"
            ),
        }
    }
}

/// Looks at the Leases. Without an answer nobody is judged anew.
async fn look(inner: &Inner) -> Looked {
    let asked = Instant::now();
    // One look that hangs must not keep all later ones from happening.
    let looking = timeout(inner.timing.renewal_limit, inner.leases.list());
    let beats = match looking.await {
        Ok(Ok(beats)) => beats,
        Err(_) => {
            tracing::warn!("replicas' Leases could not be listed in time");
            return Looked::No;
        }
        Ok(Err(error)) => {
            tracing::warn!(%error, inside = error.internal, "replicas' Leases could not be listed");
            return Looked::No;
        }
    };
    let sessions = inner.index.all();
    let named = sessions.iter().map(|s| s.spec.replica.clone()).collect();
    let look = Look {
        beats,
        asked,
        answered: Instant::now(),
    };
    inner.observed.lock().observe(&look, &named);
    Looked::Yes
}

/// Removes what of these is left over.
async fn sweep(inner: &Inner, sessions: &[Arc<Seen>], looked: Looked, offers: &mut Offers) {
    let now = Instant::now();
    let mut waiting = Offers::new();
    for seen in sessions {
        let gone = left_over(inner, &seen.stored.key, &seen.spec, looked)
            || seen.spec.offered && !waits(inner, seen, offers, &mut waiting, now);
        if gone {
            remove(inner, &seen.stored).await;
        }
    }
    *offers = waiting;
}

/// Whether the stream behind a session cannot exist any more.
fn left_over(inner: &Inner, key: &Key, spec: &WorkspaceSessionSpec, looked: Looked) -> bool {
    match inner.observed.lock().fate(&spec.replica) {
        Fate::Dead => looked == Looked::Yes,
        Fate::Predecessor => true,
        Fate::Mine => !inner.holders.contains(key, &spec.claim),
        Fate::Alive => false,
    }
}

/// Whether whoever was offered a session may still come for it.
fn waits(inner: &Inner, seen: &Seen, before: &Offers, waiting: &mut Offers, now: Instant) -> bool {
    let (key, revision) = (&seen.stored.key, seen.stored.revision);
    let since = match before.get(key) {
        Some((same, since)) if *same == revision => *since,
        _ => now,
    };
    waiting.insert(key.clone(), (revision, since));
    now.saturating_duration_since(since) < inner.timing.offer_limit
}

/// Removes a session that was just read and seems to be abandoned, if a look that begins now agrees.
pub(super) async fn bury(inner: &Inner, stored: &Stored) {
    let spec = record::read(&stored.object).spec;
    let fate = inner.observed.lock().fate(&spec.replica);
    let looked = match fate {
        Fate::Dead => look(inner).await,
        _ => Looked::No,
    };
    if left_over(inner, &stored.key, &spec, looked) {
        remove(inner, stored).await;
    }
}

/// A change in between leaves it to the next round.
async fn remove(inner: &Inner, stored: &Stored) {
    match pass_on(inner, stored).await {
        Ok(()) => tracing::info!(
            session = stored.key.name,
            "collected a session without a stream"
        ),
        Err(StorageError::NotFound | StorageError::Conflict) => {}
        Err(error) => {
            tracing::warn!(%error, session = stored.key.name, "a session could not be collected");
        }
    }
}

/// Hands a session whose stream has ended over to its successor, or frees its name.
///
/// # Errors
/// The session changed meanwhile, or trouble of the storage.
pub(super) async fn pass_on(inner: &Inner, stored: &Stored) -> Result<(), StorageError> {
    let context = WriteContext::default();
    let spec = record::read(&stored.object).spec;
    let alive = stored.object.deletion_timestamp().is_none();
    let heir = spec
        .successor
        .filter(|heir| alive && may_come(inner, &stored.key, heir));
    let (key, revision) = (&stored.key, stored.revision);
    let Some(heir) = heir else {
        return inner.storage.delete(&context, key, revision).await;
    };
    let object = record::handed_over(&stored.object, &heir);
    let updated = inner.storage.update(&context, key, &object, revision);
    updated.await.map(|_| ())
}

/// Whether a successor may still be waiting.
fn may_come(inner: &Inner, key: &Key, heir: &SessionSuccessor) -> bool {
    match inner.observed.lock().fate(&heir.replica) {
        Fate::Dead | Fate::Predecessor => false,
        Fate::Mine => inner.holders.contains(key, &heir.claim),
        Fate::Alive => true,
    }
}
