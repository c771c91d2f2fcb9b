//! The streams that share a session, and the task that keeps their object.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use apiserver_generic::{
    Key,
    storage::{StorageError, Stored},
};
use parking_lot::Mutex;
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout},
};
use uuid::Uuid;

use crate::sessions::{
    claim::Notice,
    clock,
    collector::pass_on,
    counters::{Counters, Meter, passed},
    held::RELEASE_LIMIT,
    holders::Tenure,
    record::{self, Passed, Wish},
    store::{Inner, Sessions, context, listen},
};

/// Between two tries to write an object.
const RETRY: Duration = Duration::from_secs(1);

/// Streams that share a session.
pub(in crate::sessions) struct Group {
    key: Key,
    /// The first stream's.
    wish: Wish,
    since: String,
    members: Mutex<Members>,
    state: watch::Sender<State>,
}

#[derive(Default)]
struct Members {
    open: BTreeMap<u64, Member>,
    next: u64,
    /// What those have carried that are gone.
    gone: Passed,
}

struct Member {
    since: Instant,
    told: watch::Sender<bool>,
    meter: Arc<dyn Meter>,
}

/// What others wait for.
#[derive(Clone, Debug, Default)]
struct State {
    open: BTreeSet<u64>,
    /// Whether the object is there, or may be.
    written: bool,
}

impl Group {
    pub(super) fn new(wish: &Wish, key: &Key) -> Self {
        Self {
            key: key.clone(),
            wish: wish.clone(),
            since: clock::now(),
            members: Mutex::default(),
            state: watch::Sender::default(),
        }
    }

    pub(super) fn key(&self) -> &Key {
        &self.key
    }

    pub(super) fn enter(&self, meter: Arc<dyn Meter>) -> (u64, watch::Receiver<bool>) {
        let (told, receiver) = watch::channel(false);
        let mut members = self.members.lock();
        let id = members.next;
        members.next += 1;
        let since = Instant::now();
        members.open.insert(id, Member { since, told, meter });
        self.state.send_modify(|state| {
            state.open.insert(id);
        });
        (id, receiver)
    }

    pub(super) fn leave(&self, id: u64) {
        let mut members = self.members.lock();
        if let Some(member) = members.open.remove(&id) {
            members.gone.received += member.meter.received();
            members.gone.sent += member.meter.sent();
            let idle = passed(&*member.meter).idle;
            members.gone.idle = later(members.gone.idle, idle);
        }
        self.state.send_modify(|state| {
            state.open.remove(&id);
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.lock().open.is_empty()
    }

    /// Waits until there is no object, or others need it.
    pub(super) async fn settled(&self) {
        let mut state = self.state.subscribe();
        let settled = state.wait_for(|state| !state.written || !state.open.is_empty());
        let _ = timeout(RELEASE_LIMIT, settled).await;
    }

    fn passed(&self) -> Passed {
        let members = self.members.lock();
        let mut sum = Passed {
            streams: members.open.len(),
            ..members.gone
        };
        for member in members.open.values() {
            let one = passed(&*member.meter);
            sum.received += one.received;
            sum.sent += one.sent;
            sum.idle = later(sum.idle, one.idle);
        }
        sum
    }

    /// Waits until none of these is left.
    async fn without(&self, gone: impl Fn(&BTreeSet<u64>) -> bool) {
        let mut state = self.state.subscribe();
        if state.wait_for(|state| gone(&state.open)).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until one of the streams has lived for so long, and says so, or until there is none.
    async fn lived(&self, time: Duration) -> bool {
        let mut state = self.state.subscribe();
        loop {
            state.borrow_and_update();
            let oldest = self.members.lock().open.values().map(|m| m.since).min();
            let Some(oldest) = oldest else {
                return false;
            };
            tokio::select! {
                biased;
                _ = state.changed() => {}
                () = sleep_until(oldest + time) => return true,
            }
        }
    }

    async fn emptied(&self) {
        self.without(BTreeSet::is_empty).await;
    }

    /// Tells all that are open to end, and waits until they have.
    async fn end(&self) {
        let told: BTreeSet<u64> = {
            let members = self.members.lock();
            for member in members.open.values() {
                member.told.send_replace(true);
            }
            members.open.keys().copied().collect()
        };
        self.without(|open| open.is_disjoint(&told)).await;
    }

    fn set_written(&self, written: bool) {
        self.state.send_modify(|state| state.written = written);
    }
}

/// The shorter of two times: what was active last.
fn later(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Keeps the group's object while it has streams that have lived for a while.
pub(super) async fn present(group: Arc<Group>, inner: Arc<Inner>) {
    loop {
        if group.lived(inner.timing.shared_after).await {
            let claim = Sessions::new_claim();
            let (key, tenure) = (&group.key, Tenure::Shared);
            let told = inner.holders.register(key, &claim, tenure);
            keep(&group, &inner, &claim, told).await;
            inner.holders.remove(&group.key, &claim);
        }
        if inner.groups.retire(&group) {
            return;
        }
    }
}

/// Writes the object, keeps it current, and removes it when it is not needed or not wanted any more.
async fn keep(group: &Group, inner: &Arc<Inner>, claim: &str, mut told: watch::Receiver<Notice>) {
    group.set_written(true);
    if let Some(written) = write(group, inner, claim).await {
        listen(inner, &group.key, claim, &written);
        while_needed(group, inner, claim, &mut told).await;
    }
    remove(group, inner, claim).await;
    group.set_written(false);
}

async fn while_needed(
    group: &Group,
    inner: &Arc<Inner>,
    claim: &str,
    told: &mut watch::Receiver<Notice>,
) {
    let counters = Counters::new(inner.clone(), group.key.clone(), claim.to_owned());
    let ended = async {
        let notice = told.wait_for(|notice| *notice != Notice::Keep).await;
        notice.is_ok_and(|notice| *notice == Notice::Ended)
    };
    let ended = tokio::select! {
        biased;
        ended = ended => ended,
        () = group.emptied() => false,
        never = counters.keep_with(|| group.passed()) => match never {},
    };
    // Whatever else became of the object is no reason to end a stream: it is written anew.
    if ended {
        group.end().await;
    }
}

/// Tries until it is written or not needed any more. A try is always awaited: one that was given up
/// could still write.
async fn write(group: &Group, inner: &Inner, claim: &str) -> Option<Stored> {
    let wish = Wish {
        claim: claim.to_owned(),
        ..group.wish.clone()
    };
    let (me, uid) = (inner.me.to_string(), Uuid::new_v4().to_string());
    loop {
        let object = record::shared_object(&wish, &group.key, &me, &uid, &group.since);
        let object = record::with_traffic(&object, &group.passed());
        let created = inner
            .storage
            .create(&context(&wish), &group.key, &object)
            .await;
        match created {
            Ok(stored) => return Some(stored),
            Err(StorageError::AlreadyExists) => {
                // The answer to an earlier try was lost, or the collector has not been here yet.
                if let Ok(stored) = inner.storage.get(&group.key).await
                    && record::read(&stored.object).spec.claim == claim
                {
                    return Some(stored);
                }
            }
            Err(error) => {
                tracing::info!(%error, session = group.key.name, "a session is not shown yet");
            }
        }
        if timeout(RETRY, group.emptied()).await.is_ok() {
            return None;
        }
    }
}

async fn remove(group: &Group, inner: &Inner, claim: &str) {
    let removing = async {
        loop {
            let removed = match inner.storage.get(&group.key).await {
                Ok(stored) if record::read(&stored.object).spec.claim != claim => Ok(()),
                Ok(stored) => pass_on(inner, &stored).await,
                Err(error) => Err(error),
            };
            match removed {
                Ok(()) | Err(StorageError::NotFound) => return,
                Err(StorageError::Conflict) => {}
                Err(_) => sleep(RETRY / 10).await,
            }
        }
    };
    if timeout(RELEASE_LIMIT, removing).await.is_err() {
        tracing::warn!(
            session = group.key.name,
            "a session is left to the collector"
        );
    }
}
