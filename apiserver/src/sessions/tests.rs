//! Replicas that share a storage and Leases, as real ones share a cluster.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use apiserver_generic::{
    ApiError, Key, Object, Revision, Storage,
    storage::{
        Changes, ListQuery, Page, StorageError, Stored, WriteContext, memory::MemoryStorage,
    },
};
use apiservice::v1alpha1::SessionMode;
use async_trait::async_trait;
use futures::StreamExt as _;
use parking_lot::Mutex;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    Held, Reach, SessionDeps, Sessions, Timing,
    lease::Leases,
    record::{self, Wish, tests::wish},
    replica::{Beat, ReplicaId},
};
use crate::streams::close::CloseReason;

const SOON: Duration = Duration::from_secs(20);

#[derive(Clone, Default)]
struct World {
    storage: MemoryStorage,
    leases: Arc<Mutex<BTreeMap<String, u64>>>,
}

/// One replica's way to the Leases, which can be cut.
struct Wire {
    leases: Arc<Mutex<BTreeMap<String, u64>>>,
    cut: Arc<AtomicBool>,
}

impl Wire {
    fn check(&self) -> Result<(), ApiError> {
        if self.cut.load(Ordering::SeqCst) {
            return Err(ApiError::internal("cut"));
        }
        Ok(())
    }
}

#[async_trait]
impl Leases for Wire {
    async fn renew(&self, me: &ReplicaId) -> Result<(), ApiError> {
        self.check()?;
        *self.leases.lock().entry(me.to_string()).or_default() += 1;
        Ok(())
    }

    async fn list(&self) -> Result<Vec<Beat>, ApiError> {
        self.check()?;
        let leases = self.leases.lock();
        let beats = leases.iter().map(|(replica, n)| Beat {
            replica: replica.clone(),
            mark: n.to_string(),
        });
        Ok(beats.collect())
    }

    async fn remove(&self, replica: &str) -> Result<(), ApiError> {
        self.check()?;
        self.leases.lock().remove(replica);
        Ok(())
    }
}

/// A storage whose watches can fall silent without ending.
struct Silent {
    storage: MemoryStorage,
    on: Arc<AtomicBool>,
}

#[async_trait]
impl Storage for Silent {
    async fn get(&self, key: &Key) -> Result<Stored, StorageError> {
        self.storage.get(key).await
    }
    async fn list(&self, query: &ListQuery) -> Result<Page, StorageError> {
        self.storage.list(query).await
    }
    async fn watch(&self, from: Revision) -> Result<Changes, StorageError> {
        let on = self.on.clone();
        let changes = self.storage.watch(from).await?;
        let heard = changes.take_while(move |_| {
            let silent = on.load(Ordering::SeqCst);
            async move {
                if silent {
                    std::future::pending::<()>().await;
                }
                true
            }
        });
        Ok(heard.boxed())
    }
    async fn create(
        &self,
        context: &WriteContext,
        key: &Key,
        object: &Object,
    ) -> Result<Stored, StorageError> {
        self.storage.create(context, key, object).await
    }
    async fn update(
        &self,
        context: &WriteContext,
        key: &Key,
        object: &Object,
        expected: Revision,
    ) -> Result<Stored, StorageError> {
        self.storage.update(context, key, object, expected).await
    }
    async fn delete(
        &self,
        context: &WriteContext,
        key: &Key,
        expected: Revision,
    ) -> Result<(), StorageError> {
        self.storage.delete(context, key, expected).await
    }
    async fn fence(&self) -> Result<Option<Revision>, StorageError> {
        self.storage.fence().await
    }
}

struct Replica {
    sessions: Sessions,
    cut: Arc<AtomicBool>,
    silent: Arc<AtomicBool>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl World {
    async fn replica(&self, pod: &str, nonce: &str, timing: Timing) -> Replica {
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let (cut, silent): (Arc<AtomicBool>, Arc<AtomicBool>) = Default::default();
        let deps = SessionDeps {
            storage: Arc::new(Silent {
                storage: self.storage.clone(),
                on: silent.clone(),
            }),
            leases: Arc::new(Wire {
                leases: self.leases.clone(),
                cut: cut.clone(),
            }),
            me: ReplicaId::new(pod, nonce),
            timing,
        };
        let sessions = Sessions::start(deps, &tasks, &stop);
        eventually("the first renewal", || sessions.ready().is_ok()).await;
        Replica {
            sessions,
            cut,
            silent,
            tasks,
            stop,
        }
    }

    async fn stored(&self) -> Option<Object> {
        let stored = self.storage.get(&wish("", "").key()).await;
        stored.ok().map(|stored| stored.object)
    }

    /// Waits until no session is left.
    async fn emptied(&self) {
        let wait = async {
            while self.stored().await.is_some() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(SOON, wait).await.unwrap();
    }

    /// What `kubectl delete workspacesession` does.
    async fn delete(&self) {
        let mut stored = self.storage.get(&wish("", "").key()).await.unwrap();
        stored
            .object
            .set_meta("deletionTimestamp", "2026-01-02T03:04:05Z");
        let context = WriteContext::default();
        let marked = self
            .storage
            .update(&context, &stored.key, &stored.object, stored.revision);
        marked.await.unwrap();
    }
}

async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, wait)
        .await
        .unwrap_or_else(|_| panic!("waited for {what}"));
}

async fn told(held: &mut Held) -> CloseReason {
    tokio::time::timeout(SOON, held.told()).await.unwrap()
}

/// Claims again and again until it is granted.
async fn claim_soon(sessions: &Sessions, wish: &Wish) -> Held {
    let claiming = async {
        loop {
            match sessions.claim(wish).await {
                Ok(held) => return held,
                Err(error) => assert!([409, 503].contains(&error.reason.code().as_u16())),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, claiming).await.unwrap()
}

/// Everything but the judgement of death happens quickly.
fn calm() -> Timing {
    Timing {
        collect_every: Duration::from_millis(20),
        renew_every: Duration::from_millis(100),
        ..Timing::default()
    }
}

/// A fiftieth of the real times, with more room in between.
fn hasty() -> Timing {
    Timing {
        renew_every: Duration::from_millis(30),
        renewal_limit: Duration::from_millis(200),
        fence_after: Duration::from_millis(500),
        dead_after: Duration::from_millis(1500),
        collect_every: Duration::from_millis(30),
        takeover_limit: SOON,
    }
}

#[tokio::test]
async fn a_second_caller_at_another_replica_is_told_who_holds_the_stream() {
    let world = World::default();
    let one = world.replica("pod-1", "a", calm()).await;
    let two = world.replica("pod-2", "a", calm()).await;
    let held = one.sessions.claim(&wish("jane", "c1")).await.unwrap();
    let error = two.sessions.claim(&wish("joe", "c2")).await.err().unwrap();
    assert_eq!(error.reason.code(), 409);
    assert!(error.message.contains("jane"));
    let facts = two
        .sessions
        .facts("t1", "demo", SessionMode::Console)
        .await
        .unwrap();
    assert_eq!(facts.str_at("/spec/user"), Some("jane"));
    held.release().await;
    let next = two.sessions.claim(&wish("joe", "c3")).await;
    next.unwrap().release().await;
    let facts = one
        .sessions
        .facts("t1", "demo", SessionMode::Console)
        .await
        .unwrap();
    assert_eq!(facts.pointer("/status/inUse"), Some(&false.into()));
    assert!(world.stored().await.is_none(), "no session stays behind");
}

#[tokio::test]
async fn a_deleted_session_ends_its_stream_and_is_free_only_then() {
    let world = World::default();
    let one = world.replica("pod-1", "a", calm()).await;
    let two = world.replica("pod-2", "a", calm()).await;
    let mut held = one.sessions.claim(&wish("jane", "c1")).await.unwrap();
    world.delete().await;
    assert_eq!(told(&mut held).await, CloseReason::EndedByAdmin);
    let error = two.sessions.claim(&wish("joe", "c2")).await.err().unwrap();
    assert!(error.message.contains("being ended"), "{}", error.message);
    held.release().await;
    assert!(two.sessions.claim(&wish("joe", "c3")).await.is_ok());
}

#[tokio::test]
async fn a_replica_that_cannot_prove_its_life_cuts_its_streams_before_others_act() {
    let world = World::default();
    let one = world.replica("pod-1", "a", hasty()).await;
    let two = world.replica("pod-2", "a", hasty()).await;
    let mut held = one.sessions.claim(&wish("jane", "c1")).await.unwrap();
    one.cut.store(true, Ordering::SeqCst);
    let cut = tokio::spawn(async move {
        let reason = told(&mut held).await;
        (reason, std::time::Instant::now())
    });
    claim_soon(&two.sessions, &wish("joe", "c2")).await;
    let granted = std::time::Instant::now();
    let (reason, ended) = cut.await.unwrap();
    assert_eq!(reason, CloseReason::ControlPlaneUnreachable);
    assert!(ended < granted, "never two holders");
    assert!(one.sessions.claim(&wish("jane", "c3")).await.is_err());
    eventually("the dead replica's Lease to be removed", || {
        !world.leases.lock().contains_key("pod-1-a")
    })
    .await;
}

#[tokio::test]
async fn a_replica_that_does_not_hear_of_deletions_stops_renewing_and_cuts() {
    let world = World::default();
    let one = world.replica("pod-1", "a", hasty()).await;
    let mut held = one.sessions.claim(&wish("jane", "c1")).await.unwrap();
    one.silent.store(true, Ordering::SeqCst);
    assert_eq!(told(&mut held).await, CloseReason::ControlPlaneUnreachable);
    assert_eq!(one.sessions.ready().unwrap_err().reason.code(), 503);
}

#[tokio::test]
async fn a_deletion_while_the_watch_is_broken_reaches_the_holder() {
    let world = World::default();
    let one = world.replica("pod-1", "a", calm()).await;
    let mut held = one.sessions.claim(&wish("jane", "c1")).await.unwrap();
    world.storage.break_watches();
    world.delete().await;
    assert_eq!(told(&mut held).await, CloseReason::EndedByAdmin);
}

#[tokio::test]
async fn a_container_that_restarts_frees_its_predecessors_claims_at_once() {
    let world = World::default();
    let old = world.replica("pod-1", "a", calm()).await;
    let held = old.sessions.claim(&wish("jane", "c1")).await.unwrap();
    old.cut.store(true, Ordering::SeqCst);
    old.stop.cancel();
    std::mem::forget(held);
    let new = world.replica("pod-1", "b", calm()).await;
    let started = std::time::Instant::now();
    claim_soon(&new.sessions, &wish("joe", "c2")).await;
    assert!(started.elapsed() < calm().dead_after / 2);
}

#[tokio::test]
async fn a_session_shows_what_has_passed_until_it_is_somebody_elses() {
    let world = World::default();
    let one = world.replica("pod-1", "a", calm()).await;
    let held = one.sessions.claim(&wish("jane", "c1")).await.unwrap();
    let counters = held.counters();
    counters.write(3, 4, Duration::ZERO).await;
    let status = record::read(&world.stored().await.unwrap()).status;
    assert_eq!((status.received_bytes, status.sent_bytes), (3, 4));
    assert!(status.in_use && status.last_activity.is_some());
    held.release().await;
    let _next = one.sessions.claim(&wish("joe", "c2")).await.unwrap();
    counters.write(9, 9, Duration::ZERO).await;
    let status = record::read(&world.stored().await.unwrap()).status;
    assert_eq!(status.received_bytes, 0);
}

#[tokio::test]
async fn a_claim_that_is_dropped_is_collected() {
    let world = World::default();
    let one = world.replica("pod-1", "a", calm()).await;
    drop(one.sessions.claim(&wish("jane", "c1")).await.unwrap());
    claim_soon(&one.sessions, &wish("joe", "c2"))
        .await
        .release()
        .await;
}

#[tokio::test]
async fn a_takeover_waits_for_the_old_streams_end_and_lets_nobody_in_between() {
    let world = World::default();
    let one = world.replica("pod-1", "a", calm()).await;
    let two = world.replica("pod-2", "a", calm()).await;
    let mut held = one.sessions.claim(&wish("jane", "c1")).await.unwrap();
    let uid = world.stored().await.unwrap().uid().map(str::to_owned);
    let sessions = two.sessions.clone();
    let taking = tokio::spawn(async move {
        sessions
            .take_over(&wish("joe", "c2"), Reach::Anybodys)
            .await
    });
    assert_eq!(told(&mut held).await, CloseReason::TakenOver);
    assert!(!taking.is_finished());
    for n in 0..20 {
        let third = one.sessions.claim(&wish("jim", &format!("t{n}"))).await;
        assert_eq!(third.err().unwrap().reason.code(), 409);
    }
    held.release().await;
    let taken = tokio::time::timeout(SOON, taking)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    let object = world.stored().await.unwrap();
    assert_eq!(
        object.uid(),
        uid.as_deref(),
        "the same object is handed over"
    );
    let spec = record::read(&object).spec;
    assert_eq!(
        (spec.user.as_str(), spec.client_address.as_str()),
        ("joe", "192.0.2.7")
    );
    assert_eq!(spec.successor, None);
    taken.release().await;
    assert!(world.stored().await.is_none());
}

#[tokio::test]
async fn a_second_takeover_replaces_the_first() {
    let world = World::default();
    let one = world.replica("pod-1", "a", calm()).await;
    let mut held = one.sessions.claim(&wish("jane", "c1")).await.unwrap();
    let take = |claim: &'static str| {
        let sessions = one.sessions.clone();
        tokio::spawn(async move {
            sessions
                .take_over(&wish("joe", claim), Reach::Anybodys)
                .await
        })
    };
    let first = take("c2");
    told(&mut held).await;
    let second = take("c3");
    let error = tokio::time::timeout(SOON, first)
        .await
        .unwrap()
        .unwrap()
        .err()
        .unwrap();
    assert!(
        error.message.contains("another user asked"),
        "{}",
        error.message
    );
    held.release().await;
    assert!(
        tokio::time::timeout(SOON, second)
            .await
            .unwrap()
            .unwrap()
            .is_ok()
    );
}

#[tokio::test]
async fn who_may_take_over_their_own_ends_nobody_elses_stream() {
    let world = World::default();
    let one = world.replica("pod-1", "a", calm()).await;
    let mut held = one.sessions.claim(&wish("jane", "c1")).await.unwrap();
    let joe = one.sessions.take_over(&wish("joe", "c2"), Reach::Own).await;
    assert_eq!(joe.err().unwrap().reason.code(), 409);
    let spec = record::read(&world.stored().await.unwrap()).spec;
    assert_eq!(
        (spec.claim.as_str(), spec.successor),
        ("c1", None),
        "nothing was written"
    );
    let take = |user: &'static str, claim: &'static str, reach| {
        let sessions = one.sessions.clone();
        tokio::spawn(async move { sessions.take_over(&wish(user, claim), reach).await })
    };
    let admin = take("admin", "c3", Reach::Anybodys);
    assert_eq!(told(&mut held).await, CloseReason::TakenOver);
    let jane = one
        .sessions
        .take_over(&wish("jane", "c4"), Reach::Own)
        .await;
    assert_eq!(
        jane.err().unwrap().reason.code(),
        409,
        "the admin waits for it already"
    );
    held.release().await;
    assert!(
        tokio::time::timeout(SOON, admin)
            .await
            .unwrap()
            .unwrap()
            .is_ok()
    );
}

#[tokio::test]
async fn a_successor_that_went_away_frees_the_claim() {
    let world = World::default();
    let one = world.replica("pod-1", "a", calm()).await;
    let mut held = one.sessions.claim(&wish("jane", "c1")).await.unwrap();
    let sessions = one.sessions.clone();
    let taking = tokio::spawn(async move {
        sessions
            .take_over(&wish("joe", "c2"), Reach::Anybodys)
            .await
    });
    told(&mut held).await;
    taking.abort();
    assert!(taking.await.is_err());
    held.release().await;
    claim_soon(&one.sessions, &wish("jim", "c3")).await;
}

#[tokio::test]
async fn an_end_of_the_server_leaves_no_lease() {
    let world = World::default();
    let one = world.replica("pod-1", "a", calm()).await;
    one.stop.cancel();
    one.tasks.close();
    tokio::time::timeout(SOON, one.tasks.wait()).await.unwrap();
    assert!(world.leases.lock().is_empty());
}

/// The checker: whoever may pass bytes says so, and never two do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_a_storm_of_claims_takeovers_and_deletions_there_are_never_two_holders() {
    let world = World::default();
    let one = world.replica("pod-1", "a", calm()).await;
    let two = world.replica("pod-2", "a", calm()).await;
    let (live, granted, next) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicU64::new(0));
    let caller = |sessions: Sessions, takes_over: bool| {
        let (live, granted, next) = (&live, &granted, &next);
        async move {
            for _ in 0..30 {
                let claim = format!("s{}", next.fetch_add(1, Ordering::Relaxed));
                let wish = wish("jane", &claim);
                let result = match takes_over {
                    true => sessions.take_over(&wish, Reach::Own).await,
                    false => sessions.claim(&wish).await,
                };
                if let Ok(mut held) = result {
                    assert_eq!(live.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                    granted.fetch_add(1, Ordering::Relaxed);
                    let _ = tokio::time::timeout(Duration::from_millis(3), held.told()).await;
                    live.fetch_sub(1, Ordering::SeqCst);
                    held.release().await;
                }
                tokio::task::yield_now().await;
            }
        }
    };
    let callers = [
        caller(one.sessions.clone(), false),
        caller(one.sessions.clone(), true),
        caller(two.sessions.clone(), false),
        caller(two.sessions.clone(), true),
    ];
    let storm = futures::future::join_all(callers);
    tokio::time::timeout(SOON * 3, storm).await.unwrap();
    assert!(granted.load(Ordering::Relaxed) >= 30);
    world.emptied().await;
}
