//! Re-checks in virtual time, with an authorizer that counts.

use std::sync::atomic::{AtomicUsize, Ordering};

use apiserver_generic::ApiError;
use async_trait::async_trait;
use prometheus_client::registry::Registry;

use super::{
    rbac::{Binding, Bindings, RoleKey, Subject},
    *,
};

/// What the authorizer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    Yes,
    No,
    Nothing,
}

struct Judge {
    says: Mutex<Says>,
    asked: AtomicUsize,
    /// Denied, whatever is said otherwise.
    outcast: Mutex<Option<String>>,
}

#[async_trait]
impl Authorizer for Judge {
    async fn decide(&self, _: &UserInfo, _: &Attributes) -> Result<Decision, ApiError> {
        panic!("a re-check must pass the cache by")
    }

    async fn recheck(&self, user: &UserInfo, _: &Attributes) -> Result<Decision, ApiError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if self.outcast.lock().as_ref() == Some(&user.name) {
            return Ok(Decision::Deny(String::new()));
        }
        match *self.says.lock() {
            Says::Yes => Ok(Decision::Allow),
            Says::No => Ok(Decision::Deny(String::new())),
            Says::Nothing => Err(ApiError::internal("away")),
        }
    }
}

struct World {
    judge: Arc<Judge>,
    rechecks: Rechecks,
    registry: Registry,
    _stop: tokio_util::sync::DropGuard,
}

fn world(replicas: usize) -> World {
    let judge = Arc::new(Judge {
        says: Mutex::new(Says::Yes),
        asked: AtomicUsize::new(0),
        outcast: Mutex::default(),
    });
    let mut registry = Registry::default();
    let deps = RecheckDeps {
        authorizer: judge.clone(),
        replicas: Arc::new(move || replicas),
        metrics: StreamMetrics::register(&mut registry),
        times: Times::default(),
    };
    let stop = CancellationToken::new();
    World {
        judge,
        rechecks: Rechecks::start(deps, &TaskTracker::new(), &stop),
        registry,
        _stop: stop.drop_guard(),
    }
}

impl World {
    fn open(&self, user: &str) -> Watched {
        let user = UserInfo {
            name: user.into(),
            ..UserInfo::default()
        };
        let permission = |verb: &str| Attributes {
            verb: verb.into(),
            namespace: "t1".into(),
            ..Attributes::default()
        };
        self.rechecks
            .watch(&user, vec![permission("get"), permission("create")])
    }

    /// How many reviews there were in so many seconds from now.
    async fn asked_in(&self, seconds: u64) -> usize {
        let before = self.judge.asked.load(Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        self.judge.asked.load(Ordering::Relaxed) - before
    }

    fn metric(&self, name: &str) -> f64 {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        let line = text.lines().find_map(|l| l.strip_prefix(name)).unwrap();
        line.trim().parse().unwrap()
    }
}

async fn reason_within(watched: &mut Watched, seconds: u64) -> Option<CloseReason> {
    let limit = Duration::from_secs(seconds);
    tokio::time::timeout(limit, watched.revoked()).await.ok()
}

#[tokio::test(start_paused = true)]
async fn streams_of_one_right_share_its_rechecks() {
    let world = world(1);
    let mut all: Vec<_> = (0..50).map(|_| world.open("jane")).collect();
    assert_eq!(world.asked_in(29).await, 0, "it was just granted");
    assert_eq!(world.asked_in(60).await, 4, "two reviews every 30 s");
    *world.judge.says.lock() = Says::No;
    for watched in &mut all {
        assert_eq!(reason_within(watched, 31).await, Some(CloseReason::Revoked));
    }
    drop(all);
    assert_eq!(world.asked_in(120).await, 0, "nobody is left");
    assert_eq!(world.metric("workspaces_stream_permissions "), 0.0);
}

#[tokio::test(start_paused = true)]
async fn no_answer_ends_a_stream_only_after_the_grace() {
    let world = world(1);
    let mut watched = world.open("jane");
    *world.judge.says.lock() = Says::Nothing;
    assert_eq!(reason_within(&mut watched, 299).await, None);
    *world.judge.says.lock() = Says::Yes;
    assert_eq!(reason_within(&mut watched, 60).await, None);
    *world.judge.says.lock() = Says::Nothing;
    assert_eq!(reason_within(&mut watched, 270).await, None);
    assert_eq!(
        reason_within(&mut watched, 90).await,
        Some(CloseReason::Unconfirmed)
    );
}

#[tokio::test(start_paused = true)]
async fn beyond_750_rights_the_interval_stretches_and_says_so() {
    for (rights, replicas, interval) in [(750, 1, 30.0), (1_500, 1, 60.0), (750, 2, 60.0)] {
        let world = world(replicas);
        let open: Vec<_> = (0..rights).map(|n| world.open(&n.to_string())).collect();
        let metric = "workspaces_stream_recheck_interval_seconds ";
        assert_eq!(world.metric(metric), interval, "{rights} {replicas}");
        world.asked_in(60).await;
        let asked = world.asked_in(60).await;
        let most = 60 * 50 / replicas;
        assert!(asked <= most + 2 && asked >= most - 100, "{asked}");
        // Fair: in one interval everybody was asked for, twice in two.
        let told = world.judge.asked.load(Ordering::Relaxed);
        assert!(told >= rights * 2, "{told}");
        drop(open);
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_change_of_rbac_touches_is_asked_first() {
    let world = world(1);
    let _crowd: Vec<_> = (0..3_000).map(|n| world.open(&n.to_string())).collect();
    let mut jane = world.open("jane");
    // All of the crowd is overdue by now.
    world.asked_in(100).await;
    let mut bindings = Bindings::default();
    let binding = Binding {
        role: RoleKey {
            namespace: None,
            name: "edit".into(),
        },
        subjects: [Subject::User("jane".into())].into(),
    };
    bindings.put((Some("t1".into()), "b".into()), binding);
    let touched = bindings.remove(&(Some("t1".into()), "b".into()));
    *world.judge.outcast.lock() = Some("jane".into());
    world.rechecks.touched(&touched);
    assert_eq!(
        reason_within(&mut jane, 5).await,
        Some(CloseReason::Revoked)
    );
}

#[tokio::test(start_paused = true)]
async fn an_authorizer_that_hears_of_a_change_late_is_asked_again() {
    let world = world(1);
    let mut jane = world.open("jane");
    let binding = Binding {
        role: RoleKey {
            namespace: None,
            name: "edit".into(),
        },
        subjects: [Subject::User("jane".into())].into(),
    };
    let touched = Bindings::default().put((None, "b".into()), binding);
    world.rechecks.touched(&touched);
    assert_eq!(reason_within(&mut jane, 2).await, None, "it still says yes");
    *world.judge.outcast.lock() = Some("jane".into());
    assert_eq!(
        reason_within(&mut jane, 3).await,
        Some(CloseReason::Revoked)
    );
}

#[tokio::test(start_paused = true)]
async fn a_right_that_was_granted_anew_is_not_ended_by_the_old_no() {
    let world = world(1);
    let mut old = world.open("jane");
    *world.judge.says.lock() = Says::No;
    assert_eq!(
        reason_within(&mut old, 31).await,
        Some(CloseReason::Revoked)
    );
    *world.judge.says.lock() = Says::Yes;
    let mut new = world.open("jane");
    assert_eq!(reason_within(&mut new, 100).await, None);
    assert_eq!(
        reason_within(&mut old, 1).await,
        Some(CloseReason::Revoked),
        "what was told stays told"
    );
}
