//! Claims on exclusive streams, over storage. Entry point: [`Sessions`].

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use apiserver_generic::{
    ApiError, Key, Object, Reason, Storage,
    storage::{StorageError, Stored, WriteContext},
};
use apiservice::v1alpha1::{SessionMode, SessionSuccessor, WorkspaceSessionSpec};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uuid::Uuid;

use super::{
    claim::{self, Claim},
    collector,
    heartbeat::{self, Pulse},
    holders::Holders,
    index::Index,
    lease::Leases,
    record::{self, Wish},
    replica::{DEAD_AFTER, FENCE_AFTER, Observed, RENEW_EVERY, ReplicaId},
};
use crate::streams::close::CloseReason;

/// How often a claim is tried again because somebody was faster.
const RETRIES: usize = 8;
/// How long a release is tried before the collector takes over.
const RELEASE_LIMIT: Duration = Duration::from_secs(5);

/// The times of the protocol. They keep `fence_after` + cutting < `dead_after`.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Between two renewals.
    pub renew_every: Duration,
    /// How long one renewal may take.
    pub renewal_limit: Duration,
    /// After the last good renewal, counted from its start.
    pub fence_after: Duration,
    /// How long a Lease must be seen unchanged.
    pub dead_after: Duration,
    /// Between two rounds of the collector.
    pub collect_every: Duration,
    /// How long a take-over waits for the old stream's end.
    pub takeover_limit: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            renew_every: RENEW_EVERY,
            renewal_limit: Duration::from_secs(5),
            fence_after: FENCE_AFTER,
            dead_after: DEAD_AFTER,
            collect_every: Duration::from_secs(2),
            takeover_limit: Duration::from_secs(15),
        }
    }
}

/// Whose streams a take-over may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The caller's own, by name and UID.
    Own,
    /// Anybody's: the caller may delete the session.
    Anybodys,
}

impl Reach {
    /// Whether this holder, and whoever waits for the stream already, may be put aside for `wish`.
    fn covers(self, spec: &WorkspaceSessionSpec, wish: &Wish) -> bool {
        let own = |name: &str, uid: &str| name == wish.user.name && uid == wish.user.uid;
        let waits = spec.successor.as_ref();
        self == Self::Anybodys
            || own(&spec.user, &spec.user_uid) && waits.is_none_or(|w| own(&w.user, &w.user_uid))
    }
}

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
    pub(super) pulse: Pulse,
    pub(super) observed: Mutex<Observed>,
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
        let inner = Arc::new(Inner {
            observed: Mutex::new(Observed::new(me.clone(), timing.dead_after, Instant::now())),
            pulse: Pulse::new(timing.fence_after),
            index: Index::default(),
            holders: Arc::default(),
            storage,
            leases,
            me,
            timing,
        });
        let token = || stop.clone();
        let (watch, beat, fence, collect) =
            (inner.clone(), inner.clone(), inner.clone(), inner.clone());
        let stop_watch = token();
        tasks.spawn(async move {
            let (storage, holders) = (watch.storage.clone(), watch.holders.clone());
            watch.index.follow(storage, holders, stop_watch).await;
        });
        let stop_beat = token();
        tasks.spawn(async move { heartbeat::beat(&beat, stop_beat).await });
        let stop_fence = token();
        tasks.spawn(async move { heartbeat::fence(&fence, stop_fence).await });
        let stop_collect = token();
        tasks.spawn(async move { collector::collect(&collect, stop_collect).await });
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
        Err(ApiError::new(
            Reason::ServiceUnavailable,
            "this server cannot reach the control plane to claim streams; try again",
        )
        .retry_after(1))
    }

    /// Waits until streams may no longer be held by this replica.
    pub async fn lapsed(&self) {
        self.inner.pulse.lapsed().await;
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
        match self
            .inner
            .storage
            .get(&record::key(namespace, workspace, mode))
            .await
        {
            Ok(stored) => Ok(stored.object),
            Err(StorageError::NotFound) => Ok(record::nobody(namespace, workspace, mode)),
            Err(error) => Err(unavailable(&error)),
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
        let pending = self.pending(wish);
        for _ in 0..RETRIES {
            if let Some(stored) = self.create(wish).await? {
                return self.hold(pending, &stored);
            }
            let Some(stored) = self.current(wish).await? else {
                continue;
            };
            match self.judge(&stored, wish) {
                Claim::Free => {}
                Claim::HandedOver => return self.hold(pending, &stored),
                Claim::Held(spec) | Claim::Contested(spec, _) => {
                    return Err(claim::held(&spec, false));
                }
                Claim::Ending(spec) => return Err(claim::held(&spec, true)),
                Claim::Abandoned(_) => collector::remove(&self.inner, &stored).await,
            }
        }
        Err(busy())
    }

    /// Takes an exclusive stream over from a holder that `reach` covers, and waits until its old
    /// stream has really ended. The caller has checked that this is allowed.
    ///
    /// # Errors
    /// 409 when somebody else holds it, or takes it over in turn; 503 when the old stream does not
    /// end.
    pub async fn take_over(&self, wish: &Wish, reach: Reach) -> Result<Held, ApiError> {
        self.ready()?;
        let pending = self.pending(wish);
        let taking = async {
            let mut changes = self.inner.index.subscribe();
            let mut asked = false;
            loop {
                if let Some(stored) = self.step(wish, reach, &mut asked).await? {
                    return Ok(stored);
                }
                // The watch wakes us; the time is for a watch that is being started over.
                let _ = tokio::time::timeout(Duration::from_millis(500), changes.changed()).await;
            }
        };
        let limit = self.inner.timing.takeover_limit;
        let stored = tokio::time::timeout(limit, taking)
            .await
            .unwrap_or_else(|_| Err(busy()))?;
        self.hold(pending, &stored)
    }

    /// One step of a take-over: the session once it is ours.
    async fn step(
        &self,
        wish: &Wish,
        reach: Reach,
        asked: &mut bool,
    ) -> Result<Option<Stored>, ApiError> {
        let Some(stored) = self.current(wish).await? else {
            return self.create(wish).await;
        };
        match self.judge(&stored, wish) {
            Claim::HandedOver => {
                let object = record::taken(&stored.object, wish, &self.me(), &now());
                self.update(&stored, &object).await
            }
            Claim::Contested(_, successor) if successor.claim == wish.claim => Ok(None),
            Claim::Contested(..) | Claim::Held(_) if *asked => {
                Err(claim::replaced(&wish.workspace))
            }
            // Who holds it may have changed since the caller's rights were checked.
            Claim::Contested(spec, _) | Claim::Held(spec) if !reach.covers(&spec, wish) => {
                Err(claim::held(&spec, false))
            }
            Claim::Contested(..) | Claim::Held(_) => {
                let object = record::with_successor(&stored.object, &self.successor(wish));
                *asked = self.update(&stored, &object).await?.is_some();
                Ok(None)
            }
            Claim::Abandoned(_) => {
                collector::remove(&self.inner, &stored).await;
                Ok(None)
            }
            Claim::Ending(_) | Claim::Free => Ok(None),
        }
    }

    fn successor(&self, wish: &Wish) -> SessionSuccessor {
        SessionSuccessor {
            user: wish.user.name.clone(),
            user_uid: wish.user.uid.clone(),
            replica: self.me(),
            audit_id: wish.audit_id.clone(),
            claim: wish.claim.clone(),
            at: now(),
        }
    }

    fn me(&self) -> String {
        self.inner.me.to_string()
    }

    fn judge(&self, stored: &Stored, wish: &Wish) -> Claim {
        let observed = self.inner.observed.lock();
        claim::judge(
            Some(&stored.object),
            |replica| observed.fate(replica),
            &wish.claim,
        )
    }

    fn pending(&self, wish: &Wish) -> Held {
        let key = wish.key();
        Held {
            told: self.inner.holders.register(&wish.claim, &key),
            inner: self.inner.clone(),
            key,
            claim: wish.claim.clone(),
        }
    }

    /// The claim is ours in storage; it is a claim only while we can prove that we live.
    fn hold(&self, held: Held, stored: &Stored) -> Result<Held, ApiError> {
        let inner = &self.inner;
        let uid = stored.object.uid().unwrap_or_default();
        inner.holders.activate(&held.claim, uid, stored.revision);
        // The watch may have seen what became of the object before we listened. The revision comes
        // first: what is found afterwards is at least as new.
        let revision = inner.index.revision();
        if revision >= stored.revision {
            let known = inner.index.get(&held.key);
            inner
                .holders
                .changed(&held.key, known.as_ref().map(|s| &s.object), revision);
        }
        // Dropping `held` leaves the object to the collector, which is at hand.
        self.ready().map(|()| held)
    }

    async fn current(&self, wish: &Wish) -> Result<Option<Stored>, ApiError> {
        match self.inner.storage.get(&wish.key()).await {
            Ok(stored) => Ok(Some(stored)),
            Err(StorageError::NotFound) => Ok(None),
            Err(error) => Err(unavailable(&error)),
        }
    }

    /// `None` if the name is taken.
    async fn create(&self, wish: &Wish) -> Result<Option<Stored>, ApiError> {
        let uid = Uuid::new_v4().to_string();
        let object = record::object(wish, &self.me(), &uid, &now());
        let (context, key) = (context(wish), wish.key());
        match self.inner.storage.create(&context, &key, &object).await {
            Ok(stored) => Ok(Some(stored)),
            Err(StorageError::AlreadyExists) => Ok(None),
            Err(error) => Err(unavailable(&error)),
        }
    }

    /// `None` if somebody was faster.
    async fn update(&self, old: &Stored, object: &Object) -> Result<Option<Stored>, ApiError> {
        let context = WriteContext::default();
        match self
            .inner
            .storage
            .update(&context, &old.key, object, old.revision)
            .await
        {
            Ok(stored) => Ok(Some(stored)),
            Err(StorageError::Conflict | StorageError::NotFound) => Ok(None),
            Err(error) => Err(unavailable(&error)),
        }
    }
}

/// An exclusive stream that is ours. Dropping it leaves its object to the collector.
pub struct Held {
    inner: Arc<Inner>,
    key: Key,
    claim: String,
    told: watch::Receiver<Option<CloseReason>>,
}

impl Held {
    /// Waits until the stream is told to end, and why.
    pub async fn told(&mut self) -> CloseReason {
        let reason = self.told.wait_for(Option::is_some).await;
        let reason = reason.ok().and_then(|reason| reason.clone());
        reason.unwrap_or(CloseReason::ControlPlaneUnreachable)
    }

    /// Where the stream's counters are written while it lives.
    pub fn counters(&self) -> Counters {
        Counters {
            inner: self.inner.clone(),
            key: self.key.clone(),
            claim: self.claim.clone(),
        }
    }

    /// Frees the name, or hands the session to whoever took it over. The stream has ended.
    pub async fn release(self) {
        let release = async {
            while let Err(error) = self.try_release().await {
                tracing::debug!(%error, session = self.key.name, "a release is tried again");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        if tokio::time::timeout(RELEASE_LIMIT, release).await.is_err() {
            tracing::warn!(
                session = self.key.name,
                "a session could not be released and is left to the collector"
            );
        }
    }

    async fn try_release(&self) -> Result<(), StorageError> {
        let storage = &self.inner.storage;
        let stored = match storage.get(&self.key).await {
            Err(StorageError::NotFound) => return Ok(()),
            other => other?,
        };
        let spec = record::read(&stored.object).spec;
        if spec.claim != self.claim {
            return Ok(());
        }
        let context = WriteContext::default();
        let alive = stored.object.deletion_timestamp().is_none();
        match spec.successor.filter(|_| alive) {
            Some(successor) => {
                let object = record::handed_over(&stored.object, &successor);
                storage
                    .update(&context, &self.key, &object, stored.revision)
                    .await?;
            }
            None => match storage.delete(&context, &self.key, stored.revision).await {
                Ok(_) | Err(StorageError::NotFound) => {}
                Err(error) => return Err(error),
            },
        }
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.inner.holders.remove(&self.claim);
    }
}

/// The counters of a session, for those who list it; the exact ones are in the audit.
pub struct Counters {
    inner: Arc<Inner>,
    key: Key,
    claim: String,
}

impl Counters {
    /// Writes them, once; somebody faster leaves them to the next time.
    pub async fn write(&self, received: u64, sent: u64, idle: Duration) {
        let storage = &self.inner.storage;
        let Ok(stored) = storage.get(&self.key).await else {
            return;
        };
        if record::read(&stored.object).spec.claim != self.claim {
            return;
        }
        let active = jiff::Timestamp::now().checked_sub(idle).map(rfc3339);
        let active = active.unwrap_or_else(|_| now());
        let object = record::with_traffic(&stored.object, received, sent, &active);
        let context = WriteContext::default();
        let written = storage.update(&context, &self.key, &object, stored.revision);
        if let Err(error) = written.await {
            tracing::debug!(%error, session = self.key.name, "counters were not written");
        }
    }
}

fn context(wish: &Wish) -> WriteContext {
    WriteContext {
        audit_id: Some(wish.audit_id.as_str().into()),
    }
}

fn now() -> String {
    rfc3339(jiff::Timestamp::now())
}

fn rfc3339(at: jiff::Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn unavailable(error: &StorageError) -> ApiError {
    ApiError::new(
        Reason::ServiceUnavailable,
        "the session could not be read or written; try again",
    )
    .retry_after(1)
    .because(error)
}

fn busy() -> ApiError {
    ApiError::new(
        Reason::ServiceUnavailable,
        "the stream's session changes too fast, or its old stream does not end; try again",
    )
    .retry_after(1)
}
