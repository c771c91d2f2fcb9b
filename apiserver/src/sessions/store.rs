//! Claims on exclusive streams, over storage. Entry point: [`Sessions`].

use std::sync::Arc;

use apiserver_generic::{
    ApiError, Key, Object, Storage,
    storage::{StorageError, Stored, WriteContext},
};
use apiservice::v1alpha1::SessionMode;
use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uuid::Uuid;

use super::{
    claim::{self, Claim},
    clock, collector,
    heartbeat::{self, Pulse},
    held::Held,
    holders::Holders,
    index::Index,
    lease::Leases,
    record::{self, Wish},
    refusal,
    replica::{Observed, ReplicaId},
    shared::Groups,
    timing::Timing,
};
use crate::pace::Pacer;

/// How often a claim is tried again because somebody was faster.
const RETRIES: usize = 8;

/// What sessions are made of.
pub struct SessionDeps {
    /// Storage of `workspacesessions`.
    pub storage: Arc<dyn Storage>,
    /// Where replicas prove that they live.
    pub leases: Arc<dyn Leases>,
    /// Who we are.
    pub me: ReplicaId,
    /// The protocol's times.
    pub timing: Timing,
}

pub(super) struct Inner {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) leases: Arc<dyn Leases>,
    pub(super) me: ReplicaId,
    pub(super) timing: Timing,
    pub(super) index: Index,
    pub(super) holders: Arc<Holders>,
    pub(super) groups: Groups,
    pub(super) pulse: Pulse,
    pub(super) observed: Mutex<Observed>,
    /// Paces the writes of counters.
    pub(super) counting: Pacer,
    /// A claim was dropped without being released: its object is left over.
    pub(super) dropped: Notify,
    /// Where the tasks of shared sessions run.
    pub(super) tasks: TaskTracker,
}

/// The sessions of all replicas, and the claims of this one. Clones are the same.
#[derive(Clone)]
pub struct Sessions {
    pub(super) inner: Arc<Inner>,
}

impl Sessions {
    /// Starts the watch, the heartbeat, the fence and the collector. They end with `stop`, which
    /// must come after the last stream has ended.
    pub fn start(deps: SessionDeps, tasks: &TaskTracker, stop: &CancellationToken) -> Self {
        let SessionDeps {
            storage,
            leases,
            me,
            timing,
        } = deps;
        let observed = Observed::new(me.clone(), timing.dead_after, Instant::now());
        let inner = Arc::new(Inner {
            observed: Mutex::new(observed),
            pulse: Pulse::new(timing.fence_after),
            index: Index::new(timing.lingers),
            holders: Arc::default(),
            groups: Groups::default(),
            counting: Pacer::default(),
            dropped: Notify::new(),
            tasks: tasks.clone(),
            storage,
            leases,
            me,
            timing,
        });
        let (follower, token) = (inner.clone(), stop.clone());
        tasks.spawn(async move {
            let (storage, holders) = (follower.storage.clone(), follower.holders.clone());
            follower.index.follow(storage, holders, token).await;
        });
        let (beating, token) = (inner.clone(), stop.clone());
        tasks.spawn(async move { heartbeat::beat(&beating, token).await });
        let (fencing, token) = (inner.clone(), stop.clone());
        tasks.spawn(async move { heartbeat::fence(&fencing, token).await });
        let (collecting, token) = (inner.clone(), stop.clone());
        tasks.spawn(async move { collector::collect(&collecting, token).await });
        Self { inner }
    }

    /// Why no stream can be claimed at this moment, for a readiness check.
    ///
    /// # Errors
    /// 503 while the Lease is not renewed.
    pub fn ready(&self) -> Result<(), ApiError> {
        if self.inner.pulse.holds() {
            return Ok(());
        }
        Err(refusal::unproved())
    }

    /// Waits until streams may no longer be held by this replica.
    pub async fn lapsed(&self) {
        self.inner.pulse.lapsed().await;
    }

    /// How many replicas live, this one included, as far as their Leases say.
    pub fn replicas(&self) -> usize {
        self.inner.observed.lock().living()
    }

    /// Who holds a stream; an object with `inUse: false` if nobody does.
    ///
    /// # Errors
    /// The storage did not answer.
    pub async fn facts(
        &self,
        namespace: &str,
        workspace: &str,
        mode: SessionMode,
    ) -> Result<Object, ApiError> {
        let key = record::key(namespace, workspace, mode);
        match self.inner.storage.get(&key).await {
            Ok(stored) => Ok(stored.object),
            Err(StorageError::NotFound) => Ok(record::nobody(namespace, workspace, mode)),
            Err(error) => Err(refusal::unavailable(&error)),
        }
    }

    /// A fresh identity for a claim.
    pub fn new_claim() -> String {
        Uuid::new_v4().to_string()
    }

    /// Claims an exclusive stream that nobody holds.
    ///
    /// # Errors
    /// 409 `SessionHeld`, or 503 while this replica cannot hold streams.
    pub async fn claim(&self, wish: &Wish) -> Result<Held, ApiError> {
        self.ready()?;
        let pending = Held::pending(&self.inner, wish);
        for _ in 0..RETRIES {
            if let Some(stored) = self.create(wish).await? {
                return self.hold(pending, &stored);
            }
            let Some(stored) = self.current(wish).await? else {
                continue;
            };
            let held = |spec, ending| Err(refusal::held(&wish.namespace, spec, ending));
            match self.judge(&stored, wish) {
                Claim::Free => {}
                Claim::HandedOver => return self.hold(pending, &stored),
                Claim::Held(spec) | Claim::Contested(spec, _) | Claim::Offered(spec) => {
                    return held(&spec, false);
                }
                Claim::Ending(spec) => return held(&spec, true),
                Claim::Abandoned(_) => collector::bury(&self.inner, &stored).await,
            }
        }
        Err(refusal::busy())
    }

    pub(super) fn me(&self) -> String {
        self.inner.me.to_string()
    }

    pub(super) fn judge(&self, stored: &Stored, wish: &Wish) -> Claim {
        let observed = self.inner.observed.lock();
        let fate = |replica: &str| observed.fate(replica);
        claim::judge(Some(&stored.object), fate, &wish.claim)
    }

    /// The claim is ours in storage; it is a claim only while we can prove that we live.
    pub(super) fn hold(&self, mut held: Held, stored: &Stored) -> Result<Held, ApiError> {
        held.claimed_at(stored.revision);
        listen(&self.inner, held.key(), held.claim(), stored);
        // Dropping `held` leaves the object to the collector, which is at hand.
        self.ready().map(|()| held)
    }

    pub(super) async fn current(&self, wish: &Wish) -> Result<Option<Stored>, ApiError> {
        match self.inner.storage.get(&wish.key()).await {
            Ok(stored) => Ok(Some(stored)),
            Err(StorageError::NotFound) => Ok(None),
            Err(error) => Err(refusal::unavailable(&error)),
        }
    }

    /// `None` if the name is taken.
    pub(super) async fn create(&self, wish: &Wish) -> Result<Option<Stored>, ApiError> {
        let uid = Uuid::new_v4().to_string();
        let object = record::object(wish, &self.me(), &uid, &clock::now());
        let (context, key) = (context(wish), wish.key());
        match self.inner.storage.create(&context, &key, &object).await {
            Ok(stored) => Ok(Some(stored)),
            Err(StorageError::AlreadyExists) => Ok(None),
            Err(error) => Err(refusal::unavailable(&error)),
        }
    }

    /// `None` if somebody was faster.
    pub(super) async fn update(
        &self,
        old: &Stored,
        object: &Object,
    ) -> Result<Option<Stored>, ApiError> {
        let context = WriteContext::default();
        let storage = &self.inner.storage;
        match storage
            .update(&context, &old.key, object, old.revision)
            .await
        {
            Ok(stored) => Ok(Some(stored)),
            Err(StorageError::Conflict | StorageError::NotFound) => Ok(None),
            Err(error) => Err(refusal::unavailable(&error)),
        }
    }
}

/// From now on the claim hears what becomes of its object.
pub(super) fn listen(inner: &Inner, key: &Key, claim: &str, stored: &Stored) {
    let uid = stored.object.uid().unwrap_or_default();
    inner.holders.activate(key, claim, uid, stored.revision);
    // The watch may have seen what became of the object before we listened. The revision comes
    // first: what is found afterwards is at least as new.
    let revision = inner.index.revision();
    if revision >= stored.revision {
        let known = inner.index.get(key);
        let object = known.as_ref().map(|seen| &seen.stored.object);
        inner.holders.changed(key, object, revision);
    }
}

/// The request whose audit a write belongs to.
pub(super) fn context(wish: &Wish) -> WriteContext {
    WriteContext {
        audit_id: Some(wish.audit_id.as_str().into()),
    }
}
