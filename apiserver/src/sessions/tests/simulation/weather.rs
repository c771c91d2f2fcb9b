//! The way from one replica to the control plane, and what it does to requests.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use apiserver_generic::{
    ApiError, Key, Object, Revision, Storage,
    storage::{Changes, ListQuery, MemoryStorage, Page, StorageError, Stored, WriteContext},
};
use async_trait::async_trait;
use futures::StreamExt as _;
use parking_lot::Mutex;
use tokio::{sync::watch, time::sleep};

use crate::sessions::{
    lease::Leases,
    replica::{Beat, ReplicaId},
};

/// Chance that repeats itself (splitmix64).
pub(super) struct Dice(AtomicU64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    pub(super) fn fork(&self) -> Self {
        Self(AtomicU64::new(self.next()))
    }

    fn next(&self) -> u64 {
        let step = 0x9e37_79b9_7f4a_7c15_u64;
        let mut z = self.0.fetch_add(step, Ordering::Relaxed).wrapping_add(step);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `n`.
    pub(super) fn roll(&self, n: u64) -> u64 {
        self.next() % n
    }

    /// Once in `n` times.
    pub(super) fn once_in(&self, n: u64) -> bool {
        self.roll(n) == 0
    }

    /// Up to so many milliseconds.
    pub(super) fn up_to(&self, ms: u64) -> Duration {
        Duration::from_millis(self.roll(ms.max(1)))
    }
}

/// How it is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sky {
    /// Requests are quick and arrive.
    Fair,
    /// They are slow, and some are lost on the way there or back.
    Rough,
    /// None is answered; some are applied long afterwards.
    Cut,
    /// The replica is dead: it sends nothing any more.
    Dead,
}

pub(super) struct Weather {
    dice: Dice,
    sky: watch::Sender<Sky>,
    /// Watches deliver nothing, without ending.
    deaf: AtomicBool,
}

impl Weather {
    pub(super) fn new(dice: Dice) -> Arc<Self> {
        Arc::new(Self {
            dice,
            sky: watch::Sender::new(Sky::Rough),
            deaf: AtomicBool::new(false),
        })
    }

    /// Changes it, unless the replica is dead.
    pub(super) fn set(&self, sky: Sky) {
        self.sky.send_if_modified(|now| {
            let changes = *now != Sky::Dead;
            if changes {
                *now = sky;
            }
            changes
        });
    }

    pub(super) fn set_deaf(&self, deaf: bool) {
        self.deaf.store(deaf, Ordering::Relaxed);
    }

    fn is_silent(&self) -> bool {
        self.deaf.load(Ordering::Relaxed) || matches!(self.sky(), Sky::Cut | Sky::Dead)
    }

    fn sky(&self) -> Sky {
        *self.sky.borrow()
    }

    /// Sends a request, which is on its way whether anybody waits for it or not.
    async fn send<T: Send + 'static>(
        &self,
        request: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let dice = &self.dice;
        let (there, back, lost) = match self.sky() {
            Sky::Dead => return std::future::pending().await,
            Sky::Fair => (dice.up_to(20), dice.up_to(20), false),
            Sky::Rough if dice.once_in(30) => (dice.up_to(7_000), dice.up_to(7_000), false),
            Sky::Rough => (dice.up_to(80), dice.up_to(80), dice.once_in(40)),
            Sky::Cut => (dice.up_to(30_000), dice.up_to(30_000), true),
        };
        // Lost on the way there, or the answer on its way back.
        let applied = !lost || dice.once_in(2);
        let task = tokio::spawn(async move {
            sleep(there).await;
            match applied {
                true => Some(request.await),
                false => None,
            }
        });
        if self.sky() == Sky::Cut {
            sleep(Duration::from_secs(4) + dice.up_to(4_000)).await;
            return None;
        }
        let answer = task.await.ok().flatten();
        sleep(back).await;
        answer.filter(|_| !lost)
    }
}

/// The storage from one replica's side.
#[derive(Clone)]
pub(super) struct Far {
    pub(super) storage: MemoryStorage,
    pub(super) weather: Arc<Weather>,
}

impl Far {
    async fn send<T: Send + 'static>(
        &self,
        request: impl Future<Output = Result<T, StorageError>> + Send + 'static,
    ) -> Result<T, StorageError> {
        let answer = self.weather.send(request).await;
        answer.unwrap_or_else(|| {
            Err(StorageError::Unavailable {
                message: "no answer".into(),
                retry_after: None,
            })
        })
    }
}

#[async_trait]
impl Storage for Far {
    async fn get(&self, key: &Key) -> Result<Stored, StorageError> {
        let (storage, key) = (self.storage.clone(), key.clone());
        self.send(async move { storage.get(&key).await }).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, StorageError> {
        let (storage, query) = (self.storage.clone(), query.clone());
        self.send(async move { storage.list(&query).await }).await
    }

    async fn watch(&self, from: Revision) -> Result<Changes, StorageError> {
        let storage = self.storage.clone();
        let changes = self.send(async move { storage.watch(from).await }).await?;
        let state = (changes, self.weather.clone());
        let stream = futures::stream::unfold(state, |(mut changes, weather)| async move {
            let next = changes.next().await?;
            sleep(weather.dice.up_to(40)).await;
            // Silence: what happens is not heard, and the watch does not end as long as it lasts.
            if weather.is_silent() {
                while weather.is_silent() {
                    sleep(Duration::from_millis(500)).await;
                }
                return None;
            }
            if weather.sky() == Sky::Rough && weather.dice.once_in(80) {
                return None;
            }
            Some((next, (changes, weather)))
        });
        Ok(stream.boxed())
    }

    async fn create(
        &self,
        context: &WriteContext,
        key: &Key,
        object: &Object,
    ) -> Result<Stored, StorageError> {
        let storage = self.storage.clone();
        let (context, key, object) = (context.clone(), key.clone(), object.clone());
        self.send(async move { storage.create(&context, &key, &object).await })
            .await
    }

    async fn update(
        &self,
        context: &WriteContext,
        key: &Key,
        object: &Object,
        expected: Revision,
    ) -> Result<Stored, StorageError> {
        let storage = self.storage.clone();
        let (context, key, object) = (context.clone(), key.clone(), object.clone());
        self.send(async move { storage.update(&context, &key, &object, expected).await })
            .await
    }

    async fn delete(
        &self,
        context: &WriteContext,
        key: &Key,
        expected: Revision,
    ) -> Result<(), StorageError> {
        let storage = self.storage.clone();
        let (context, key) = (context.clone(), key.clone());
        self.send(async move { storage.delete(&context, &key, expected).await })
            .await
    }

    async fn fence(&self) -> Result<Option<Revision>, StorageError> {
        let storage = self.storage.clone();
        self.send(async move { storage.fence().await }).await
    }
}

/// All Leases. A mark is never used twice, as a resourceVersion is not.
#[derive(Default)]
pub(super) struct Board {
    marks: BTreeMap<String, u64>,
    last: u64,
}

/// The Leases from one replica's side.
pub(super) struct FarLeases {
    pub(super) leases: Arc<Mutex<Board>>,
    pub(super) weather: Arc<Weather>,
}

impl FarLeases {
    async fn send<T: Send + 'static>(
        &self,
        request: impl FnOnce(&mut Board) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let leases = self.leases.clone();
        let answer = self
            .weather
            .send(async move { request(&mut leases.lock()) });
        answer.await.ok_or_else(|| ApiError::internal("no answer"))
    }
}

#[async_trait]
impl Leases for FarLeases {
    async fn renew(&self, me: &ReplicaId) -> Result<(), ApiError> {
        let me = me.to_string();
        let renew = move |board: &mut Board| {
            board.last += 1;
            board.marks.insert(me, board.last);
        };
        self.send(renew).await
    }

    async fn list(&self) -> Result<Vec<Beat>, ApiError> {
        let beat = |(replica, n): (&String, &u64)| Beat {
            replica: replica.clone(),
            mark: n.to_string(),
        };
        self.send(move |board| board.marks.iter().map(beat).collect())
            .await
    }

    async fn remove(&self, replica: &str) -> Result<(), ApiError> {
        let replica = replica.to_owned();
        self.send(move |board| board.marks.remove(&replica))
            .await
            .map(|_| ())
    }
}
