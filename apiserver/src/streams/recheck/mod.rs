//! Whether callers may still do what their streams do.
//!
//! A stream outlives the request that opened it. Its permissions are asked for again and again, past
//! every cache; an answer of no ends it, and no answer at all does only after a grace. Streams of the
//! same user and right share their re-checks ([`right`]), which are spaced so that kube-apiserver sees
//! at most fifty a second of all replicas together ([`schedule`]); and what a change of RBAC touches is
//! asked first ([`rbac`], [`watch`]).
//!
//! Entry points: [`Rechecks::start`], and [`Rechecks::watch`] for a stream.

pub mod rbac;
pub mod right;
mod schedule;
#[cfg(test)]
mod tests;
pub mod watch;

use std::{collections::HashMap, sync::Arc, time::Duration};

use apiserver_generic::{Attributes, Authorizer, UserInfo, authz::Decision};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, Semaphore, watch as channel},
    time::{Instant, sleep_until},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{rbac::Touched, right::Right, schedule::Schedule};
use super::{
    close::CloseReason,
    metrics::{self, StreamMetrics},
};
use crate::pace::Pacer;

/// Re-checks under way at a time.
const AT_ONCE: usize = 64;

/// The times of re-checks.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Between two checks of one right.
    pub every: Duration,
    /// How long no answer is bearable.
    pub grace: Duration,
    /// Reviews a second, over all replicas.
    pub per_second: f64,
    /// After a change of RBAC: authorizers hear of it a moment after we do.
    pub settle: Duration,
    /// And again, for the slowest of them.
    pub settle_again: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(30),
            grace: Duration::from_secs(300),
            per_second: 50.0,
            settle: Duration::from_millis(300),
            settle_again: Duration::from_secs(3),
        }
    }
}

/// What re-checks are made of.
pub struct RecheckDeps {
    /// Answers, past its caches.
    pub authorizer: Arc<dyn Authorizer>,
    /// How many replicas share the rate.
    pub replicas: Arc<dyn Fn() -> usize + Send + Sync>,
    /// What Prometheus is told.
    pub metrics: StreamMetrics,
    /// The times.
    pub times: Times,
}

/// What a right's streams are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Standing {
    #[default]
    Good,
    Revoked,
    Unconfirmed,
}

struct Entry {
    right: Arc<Right>,
    streams: usize,
    /// When there last was a yes.
    confirmed: Instant,
    told: channel::Sender<Standing>,
}

#[derive(Default)]
struct State {
    ids: HashMap<Arc<Right>, u64>,
    entries: HashMap<u64, Entry>,
    schedule: Schedule,
    next: u64,
    /// Reviews that one round of all rights takes.
    reviews: usize,
}

/// The re-checks of all streams of this replica. Clones are the same.
#[derive(Clone)]
pub struct Rechecks {
    inner: Arc<Inner>,
}

struct Inner {
    deps: RecheckDeps,
    state: Mutex<State>,
    /// The schedule has changed.
    changed: Notify,
    pacer: Pacer,
    at_once: Arc<Semaphore>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Rechecks {
    /// Checks until `stop`.
    pub fn start(deps: RecheckDeps, tasks: &TaskTracker, stop: &CancellationToken) -> Self {
        let inner = Arc::new(Inner {
            deps,
            state: Mutex::default(),
            changed: Notify::new(),
            pacer: Pacer::default(),
            at_once: Arc::new(Semaphore::new(AT_ONCE)),
            tasks: tasks.clone(),
            stop: stop.clone(),
        });
        let run = inner.clone().run();
        tasks.spawn(stop.clone().run_until_cancelled_owned(run));
        Self { inner }
    }

    /// Watches over the permissions of a stream, which were just granted, as long as what is returned
    /// lives.
    pub fn watch(&self, user: &UserInfo, permissions: Vec<Attributes>) -> Watched {
        let now = Instant::now();
        let right = Arc::new(Right::new(user, permissions));
        let mut state = self.inner.state.lock();
        let (id, told) = state.enter(right, now, now + self.inner.deps.times.every);
        drop(state);
        self.inner.report();
        self.inner.changed.notify_one();
        Watched {
            inner: self.inner.clone(),
            id,
            told,
        }
    }

    /// RBAC has changed: whom it touches is asked for first.
    pub fn touched(&self, touched: &Touched) {
        let now = Instant::now();
        let times = self.inner.deps.times;
        let mut state = self.inner.state.lock();
        let State {
            entries, schedule, ..
        } = &mut *state;
        let hit = entries
            .iter()
            .filter(|(_, entry)| touched.covers(&entry.right));
        for (id, _) in hit {
            schedule.hurry(*id, now + times.settle, now + times.settle_again);
        }
        drop(state);
        self.inner.changed.notify_one();
    }
}

impl State {
    fn enter(
        &mut self,
        right: Arc<Right>,
        now: Instant,
        due: Instant,
    ) -> (u64, channel::Receiver<Standing>) {
        if let Some(id) = self.ids.get(&right)
            && let Some(entry) = self.entries.get_mut(id)
        {
            entry.streams += 1;
            return (*id, entry.told.subscribe());
        }
        let id = self.next;
        self.next += 1;
        let (told, receiver) = channel::channel(Standing::Good);
        let entry = Entry {
            right: right.clone(),
            streams: 1,
            confirmed: now,
            told,
        };
        self.reviews += right.permissions().len();
        self.ids.insert(right, id);
        self.entries.insert(id, entry);
        self.schedule.insert(id, due);
        (id, receiver)
    }

    fn leave(&mut self, id: u64) {
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        entry.streams -= 1;
        if entry.streams == 0 {
            self.forget(id);
        }
    }

    fn forget(&mut self, id: u64) {
        let Some(entry) = self.entries.remove(&id) else {
            return;
        };
        self.reviews -= entry.right.permissions().len();
        self.retire(id, &entry.right);
    }

    /// Asks for it no more; whoever comes with the same right has another entry.
    fn retire(&mut self, id: u64, right: &Right) {
        self.schedule.remove(id);
        if self.ids.get(right) == Some(&id) {
            self.ids.remove(right);
        }
    }

    /// Notes an answer. Who comes with the same right after a no was granted it anew: they are not among
    /// those who are told.
    fn answered(&mut self, id: u64, answer: metrics::Recheck, now: Instant, grace: Duration) {
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        let standing = match answer {
            metrics::Recheck::Allowed => {
                entry.confirmed = now;
                return;
            }
            metrics::Recheck::Denied => Standing::Revoked,
            metrics::Recheck::Failed if now - entry.confirmed < grace => return,
            metrics::Recheck::Failed => Standing::Unconfirmed,
        };
        entry.told.send_replace(standing);
        let right = entry.right.clone();
        self.retire(id, &right);
    }
}

impl Inner {
    async fn run(self: Arc<Self>) {
        loop {
            let Some((id, right)) = self.clone().next_due().await else {
                return;
            };
            let Ok(permit) = self.at_once.clone().acquire_owned().await else {
                return;
            };
            // The first of the reviews waits for its turn here, so that what has become urgent
            // meanwhile is not behind a crowd that waits already.
            self.pacer.turn(self.rate()).await;
            let inner = self.clone();
            let check = async move {
                inner.check(id, &right).await;
                drop(permit);
            };
            self.tasks
                .spawn(self.stop.clone().run_until_cancelled_owned(check));
        }
    }

    /// Waits for the next right that is to be asked for, and puts it in for its next time.
    async fn next_due(self: Arc<Self>) -> Option<(u64, Arc<Right>)> {
        loop {
            let now = Instant::now();
            let wait = {
                let mut state = self.state.lock();
                match state.schedule.take(now, self.deps.times.every) {
                    Ok(id) => match state.entries.get(&id) {
                        Some(entry) => return Some((id, entry.right.clone())),
                        None => continue,
                    },
                    Err(until) => until,
                }
            };
            let changed = self.changed.notified();
            match wait {
                None => changed.await,
                Some(until) => {
                    tokio::select! {
                        biased;
                        () = changed => {}
                        () = sleep_until(until) => {}
                    }
                }
            }
        }
    }

    async fn check(&self, id: u64, right: &Right) {
        let answer = self.ask(right).await;
        self.deps.metrics.rechecked(answer);
        let (now, grace) = (Instant::now(), self.deps.times.grace);
        self.state.lock().answered(id, answer, now, grace);
        self.report();
    }

    /// Every permission of a right, one after the other; the first has had its turn.
    async fn ask(&self, right: &Right) -> metrics::Recheck {
        for (n, attributes) in right.permissions().iter().enumerate() {
            if n > 0 {
                self.pacer.turn(self.rate()).await;
            }
            match self.deps.authorizer.recheck(right.user(), attributes).await {
                Ok(Decision::Allow) => {}
                Ok(Decision::Deny(_)) => return metrics::Recheck::Denied,
                Err(error) => {
                    tracing::warn!(%error, inside = error.internal, "a stream's permission could not be confirmed");
                    return metrics::Recheck::Failed;
                }
            }
        }
        metrics::Recheck::Allowed
    }

    /// Our part of the rate.
    fn rate(&self) -> f64 {
        let replicas = (self.deps.replicas)().max(1);
        #[allow(clippy::cast_precision_loss)] // nobody has 2^52 replicas
        let replicas = replicas as f64;
        self.deps.times.per_second / replicas
    }

    /// Tells how many rights there are, and how often each is asked for at this rate.
    fn report(&self) {
        let (distinct, reviews) = {
            let state = self.state.lock();
            (state.entries.len(), state.reviews)
        };
        #[allow(clippy::cast_precision_loss)]
        let round = Duration::from_secs_f64(reviews as f64 / self.rate());
        let interval = round.max(self.deps.times.every);
        self.deps.metrics.permissions(distinct, interval);
    }
}

/// A stream whose permissions are watched.
pub struct Watched {
    inner: Arc<Inner>,
    id: u64,
    told: channel::Receiver<Standing>,
}

impl Watched {
    /// Waits until the permission is gone, or could not be confirmed for too long.
    ///
    /// # Cancel safety
    /// What was told stays told.
    pub async fn revoked(&mut self) -> CloseReason {
        let standing = self.told.wait_for(|s| *s != Standing::Good).await;
        match standing.map(|standing| *standing) {
            Ok(Standing::Revoked) => CloseReason::Revoked,
            Ok(Standing::Unconfirmed | Standing::Good) | Err(_) => CloseReason::Unconfirmed,
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.inner.state.lock().leave(self.id);
        self.inner.report();
    }
}
