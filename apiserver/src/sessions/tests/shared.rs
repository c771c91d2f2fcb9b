//! Streams that share an object: it is there while they are, and deleting it ends them all.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use apiserver_generic::{
    Key, Object, Storage as _,
    storage::{At, ListQuery, WriteContext},
};
use apiservice::v1alpha1::{SessionMode, WorkspaceSession};

use super::{Replica, SOON, World, calm, hasty};
use crate::{
    sessions::{
        Joined, Meter, Timing,
        record::{self, Wish, tests::wish},
    },
    streams::close::CloseReason,
};

#[derive(Default)]
struct Gauge(AtomicU64);

impl Meter for Gauge {
    fn received(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
    fn sent(&self) -> u64 {
        2 * self.received()
    }
    fn idle(&self) -> Duration {
        Duration::ZERO
    }
}

fn forward(user: &str, port: u16) -> Wish {
    Wish {
        mode: SessionMode::Portforward,
        port: Some(port),
        ..wish(user, "")
    }
}

fn quick() -> Timing {
    Timing {
        shared_after: Duration::from_millis(50),
        count_every: Duration::from_millis(50),
        ..calm()
    }
}

impl Replica {
    fn join(&self, user: &str, port: u16) -> Joined {
        self.sessions
            .join(&forward(user, port), Arc::new(Gauge::default()))
    }
}

impl World {
    async fn sessions(&self) -> Vec<(Key, WorkspaceSession, Object)> {
        let all = ListQuery {
            namespace: None,
            at: At::Latest,
            limit: None,
            after: None,
        };
        let items = self.storage.list(&all).await.unwrap().items;
        let read = |s: apiserver_generic::storage::Stored| {
            (s.key.clone(), record::read(&s.object), s.object)
        };
        items.into_iter().map(read).collect()
    }

    async fn until(&self, what: &str, holds: impl Fn(&[(Key, WorkspaceSession, Object)]) -> bool) {
        let wait = async {
            while !holds(&self.sessions().await) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(SOON, wait)
            .await
            .unwrap_or_else(|_| panic!("waited for {what}"));
    }

    async fn mark_deleted(&self, key: &Key) {
        let mut stored = self.storage.get(key).await.unwrap();
        stored
            .object
            .set_meta("deletionTimestamp", "2026-01-02T03:04:05Z");
        let context = WriteContext::default();
        let update = self
            .storage
            .update(&context, key, &stored.object, stored.revision);
        update.await.unwrap();
    }
}

async fn told(joined: &mut Joined) -> CloseReason {
    tokio::time::timeout(SOON, joined.told()).await.unwrap()
}

#[tokio::test]
async fn streams_of_one_user_to_one_port_share_a_session_that_counts_them() {
    let world = World::default();
    let one = world.replica("pod-1", "a", quick()).await;
    let two = world.replica("pod-2", "a", quick()).await;
    let meter = Arc::new(Gauge::default());
    let first = one.sessions.join(&forward("jane", 22), meter.clone());
    let second = one.join("jane", 22);
    let _others = [
        one.join("jane", 80),
        one.join("joe", 22),
        two.join("jane", 22),
    ];
    meter.0.store(5, Ordering::Relaxed);
    world
        .until("four sessions, one of two streams", |all| {
            let two = |s: &WorkspaceSession| {
                (s.status.streams, s.status.received_bytes) == (2, 5)
                    && (s.spec.port, s.spec.user.as_str()) == (Some(22), "jane")
                    && s.status.last_activity.is_some()
            };
            all.len() == 4 && all.iter().filter(|(_, s, _)| two(s)).count() == 1
        })
        .await;
    first.release().await;
    world
        .until("the count to fall and the bytes to stay", |all| {
            let left = |s: &WorkspaceSession| (s.status.streams, s.status.sent_bytes) == (1, 10);
            all.len() == 4 && all.iter().any(|(_, s, _)| left(s))
        })
        .await;
    let jane = forward("jane", 22).user;
    let own = |namespace, mode| {
        let list = one.sessions.own(namespace, "demo", mode, &jane);
        list["items"].as_array().unwrap().len()
    };
    assert_eq!(own("t1", SessionMode::Portforward), 3);
    assert_eq!(own("t2", SessionMode::Portforward), 0);
    assert_eq!(own("t1", SessionMode::Ssh), 0);
    second.release().await;
    assert_eq!(world.sessions().await.len(), 3, "gone with the last");
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_a_moment_writes_nothing() {
    let world = World::default();
    let one = world.replica("pod-1", "a", calm()).await;
    let writes = || world.storage.contexts().len();
    let before = writes();
    for _ in 0..100 {
        let joined = one.join("jane", 8080);
        tokio::time::sleep(Duration::from_millis(400)).await;
        joined.release().await;
    }
    assert_eq!(writes(), before);
    let joined = one.join("jane", 8080);
    tokio::time::sleep(Duration::from_millis(4_900)).await;
    assert_eq!(writes(), before);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(writes(), before + 1);
    joined.release().await;
    assert_eq!(writes(), before + 2);
}

#[tokio::test]
async fn deleting_a_shared_session_ends_those_that_are_open_and_no_later_one() {
    let world = World::default();
    let one = world.replica("pod-1", "a", quick()).await;
    let (mut first, mut second) = (one.join("jane", 22), one.join("jane", 22));
    world.until("the session", |all| all.len() == 1).await;
    let key = world.sessions().await[0].0.clone();
    world.mark_deleted(&key).await;
    assert_eq!(told(&mut first).await, CloseReason::EndedByAdmin);
    assert_eq!(told(&mut second).await, CloseReason::EndedByAdmin);
    let mut third = one.join("jane", 22);
    first.release().await;
    assert_eq!(world.sessions().await.len(), 1, "free only at the last end");
    second.release().await;
    world
        .until("a session of the later stream's own", |all| {
            all.len() == 1 && all[0].2.deletion_timestamp().is_none()
        })
        .await;
    let lives = tokio::time::timeout(Duration::from_millis(50), third.told()).await;
    assert!(lives.is_err(), "the later stream lives");
    third.release().await;
    assert!(world.sessions().await.is_empty());
}

#[tokio::test]
async fn shared_streams_live_on_without_the_control_plane_and_are_shown_again() {
    let world = World::default();
    let timing = Timing {
        shared_after: Duration::from_millis(50),
        ..hasty()
    };
    let one = world.replica("pod-1", "a", timing).await;
    let _two = world.replica("pod-2", "a", timing).await;
    let mut joined = one.join("jane", 22);
    world.until("the session", |all| all.len() == 1).await;
    let claim = world.sessions().await[0].1.spec.claim.clone();
    one.cut.store(true, Ordering::SeqCst);
    world
        .until("another session in its place", |all| {
            all.iter().any(|(_, s, _)| s.spec.claim != claim)
        })
        .await;
    let lives = tokio::time::timeout(Duration::from_millis(20), joined.told()).await;
    assert!(lives.is_err(), "no stream was ended");
}

#[tokio::test]
async fn what_a_crashed_replica_showed_is_collected() {
    let world = World::default();
    let one = world.replica("pod-1", "a", quick()).await;
    let joined = one.join("jane", 22);
    world.until("the session", |all| all.len() == 1).await;
    one.cut.store(true, Ordering::SeqCst);
    one.stop.cancel();
    std::mem::forget(joined);
    let _new = world.replica("pod-1", "b", quick()).await;
    world.until("nothing to be left", <[_]>::is_empty).await;
}

/// A hundred objects that change all the time are written twenty times a second together.
#[tokio::test(start_paused = true)]
async fn counters_are_paced_over_all_sessions() {
    let world = World::default();
    let timing = Timing {
        shared_after: Duration::from_millis(1),
        ..calm()
    };
    let one = world.replica("pod-1", "a", timing).await;
    let meter = Arc::new(Gauge::default());
    let joined: Vec<_> = (0..200)
        .map(|port| one.sessions.join(&forward("jane", port), meter.clone()))
        .collect();
    world.until("all sessions", |all| all.len() == 200).await;
    let before = world.storage.contexts().len();
    meter.0.store(1, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(61)).await;
    let soon = world.storage.contexts().len() - before;
    assert!(
        (15..=45).contains(&soon),
        "{soon} in the first second or two"
    );
    tokio::time::sleep(Duration::from_secs(10)).await;
    let all = world.storage.contexts().len() - before;
    assert_eq!(all, 200, "each once");
    for joined in joined {
        joined.release().await;
    }
}
