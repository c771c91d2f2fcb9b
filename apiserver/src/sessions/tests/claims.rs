//! Exclusive streams over two replicas: one holder, and an end of every holder that others know of.

use std::{
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

use apiservice::v1alpha1::SessionMode;

use super::{SOON, World, calm, claim_soon, eventually, hasty, told};
use crate::{
    sessions::{
        Reach, Sessions,
        record::{self, Passed, tests::wish},
    },
    streams::close::CloseReason,
};

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
    let passed = |received, sent| Passed {
        streams: 1,
        received,
        sent,
        idle: Some(Duration::ZERO),
    };
    one.sees("c1").await;
    counters.write(&passed(3, 4)).await;
    let status = record::read(&world.stored().await.unwrap()).status;
    assert_eq!((status.received_bytes, status.sent_bytes), (3, 4));
    assert!(status.in_use && status.last_activity.is_some());
    held.release().await;
    let _next = one.sessions.claim(&wish("joe", "c2")).await.unwrap();
    one.sees("c2").await;
    counters.write(&passed(9, 9)).await;
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

#[tokio::test]
async fn who_was_handed_a_session_and_does_not_come_loses_it_after_the_offers_time() {
    let world = World::default();
    let mut timing = calm();
    timing.offer_limit = Duration::from_millis(300);
    let one = world.replica("pod-1", "a", timing).await;
    let two = world.replica("pod-2", "a", timing).await;
    let mut held = one.sessions.claim(&wish("jane", "c1")).await.unwrap();
    let sessions = two.sessions.clone();
    let taking = tokio::spawn(async move {
        sessions
            .take_over(&wish("joe", "c2"), Reach::Anybodys)
            .await
    });
    assert_eq!(told(&mut held).await, CloseReason::TakenOver);
    // The successor's replica is gone without a word: it neither comes nor cleans up.
    two.stop.cancel();
    two.tasks.close();
    two.tasks.wait().await;
    taking.abort();
    world.leases.lock().insert("pod-2-a".into(), 1);
    held.release().await;
    let offered = record::read(&world.stored().await.unwrap()).spec;
    assert!(offered.offered && offered.user == "joe", "{offered:?}");
    let refused = one.sessions.claim(&wish("jim", "c3")).await.err().unwrap();
    assert_eq!(refused.reason.code(), 409);
    claim_soon(&one.sessions, &wish("jim", "c4")).await;
}

#[tokio::test]
async fn an_offer_can_be_taken_over_before_its_holder_comes() {
    let world = World::default();
    let one = world.replica("pod-1", "a", calm()).await;
    let held = one.sessions.claim(&wish("jane", "c1")).await.unwrap();
    let object = world.stored().await.unwrap();
    let away = apiservice::v1alpha1::SessionSuccessor {
        user: "joe".into(),
        replica: "pod-9-a".into(),
        claim: "c9".into(),
        ..Default::default()
    };
    let contested = record::with_successor(&object, &away);
    world.put(&contested).await;
    held.release().await;
    let taken = one
        .sessions
        .take_over(&wish("admin", "c2"), Reach::Anybodys)
        .await
        .unwrap();
    let spec = record::read(&world.stored().await.unwrap()).spec;
    assert_eq!((spec.user.as_str(), spec.offered), ("admin", false));
    taken.release().await;
}

#[tokio::test]
async fn a_replica_that_comes_back_is_never_taken_for_dead_by_an_old_look() {
    let world = World::default();
    let mut timing = hasty();
    // Only claims look: the collector stays out of the way.
    timing.collect_every = Duration::from_millis(40);
    let one = world.replica("pod-1", "a", timing).await;
    let two = world.replica("pod-2", "a", timing).await;
    one.cut.store(true, Ordering::SeqCst);
    let dead = || {
        let fate = two.sessions.inner.observed.lock().fate("pod-1-a");
        fate == crate::sessions::claim::Fate::Dead
    };
    eventually("the first replica to be judged dead", dead).await;
    // It comes back, while the second one's look at the Leases hangs.
    two.cut.store(true, Ordering::SeqCst);
    one.cut.store(false, Ordering::SeqCst);
    eventually("the first to be back", || one.sessions.ready().is_ok()).await;
    let held = one.sessions.claim(&wish("jane", "c1")).await.unwrap();
    let refused = two.sessions.claim(&wish("joe", "c2")).await.err().unwrap();
    assert!(refused.reason.code() == 409 || refused.reason.code() == 503);
    let spec = record::read(&world.stored().await.unwrap()).spec;
    assert_eq!(spec.claim, "c1", "the live claim was not removed");
    held.release().await;
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
