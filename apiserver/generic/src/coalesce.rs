//! A bounded cache of answers that are expensive to get: each expires, and callers that ask the
//! same question at the same time share one flight.
//!
//! Entry point: [`Coalescing::get`]. Authorization and token reviews use it; Go's own server
//! caches too, but sends a herd of identical reviews and keeps tokens without a bound.

use std::{
    collections::HashMap,
    hash::Hash,
    num::NonZeroUsize,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{
    FutureExt as _,
    future::{BoxFuture, Shared, WeakShared},
};
use lru::LruCache;
use parking_lot::Mutex;

use crate::ApiError;

/// An answer and how long it may be kept; zero keeps it from the cache.
pub type Fetched<V> = Result<(V, Duration), ApiError>;

type Flight<V> = Shared<BoxFuture<'static, Result<V, ApiError>>>;
type WeakFlight<V> = WeakShared<BoxFuture<'static, Result<V, ApiError>>>;

/// The cache. Clones share it.
#[derive(Clone)]
pub struct Coalescing<K, V>
where
    K: Clone + Eq + Hash,
    V: Clone,
{
    state: Arc<Mutex<State<K, V>>>,
}

struct State<K, V>
where
    K: Clone + Eq + Hash,
    V: Clone,
{
    answers: LruCache<K, (V, Instant)>,
    flights: HashMap<K, WeakFlight<V>>,
    sweep_at: usize,
}

impl<K, V> Coalescing<K, V>
where
    K: Clone + Eq + Hash + Send + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// A cache of at most `capacity` answers.
    pub fn new(capacity: NonZeroUsize) -> Self {
        Self {
            state: Arc::new(Mutex::new(State {
                answers: LruCache::new(capacity),
                flights: HashMap::new(),
                sweep_at: capacity.get(),
            })),
        }
    }

    /// The kept answer, else that of a flight which is under way, else that of a new one.
    ///
    /// # Errors
    /// What the flight failed with; failures are shared by those who waited, and never kept.
    ///
    /// # Cancel safety
    /// A caller that goes away leaves the flight to the others; with the last one it ends.
    pub async fn get(
        &self,
        key: K,
        fetch: impl FnOnce() -> BoxFuture<'static, Fetched<V>>,
    ) -> Result<V, ApiError> {
        let flight = {
            let mut state = self.state.lock();
            if let Some(answer) = state.fresh(&key, Instant::now()) {
                return Ok(answer);
            }
            state.join(&key).unwrap_or_else(|| {
                let flight = self.launch(key.clone(), fetch());
                state.track(key, &flight);
                flight
            })
        };
        flight.await
    }

    fn launch(&self, key: K, fetch: BoxFuture<'static, Fetched<V>>) -> Flight<V> {
        let state = Arc::downgrade(&self.state);
        async move {
            let fetched = fetch.await;
            if let Some(state) = state.upgrade() {
                state
                    .lock()
                    .land(&key, fetched.as_ref().ok(), Instant::now());
            }
            fetched.map(|(answer, _)| answer)
        }
        .boxed()
        .shared()
    }
}

impl<K, V> State<K, V>
where
    K: Clone + Eq + Hash,
    V: Clone,
{
    fn fresh(&mut self, key: &K, now: Instant) -> Option<V> {
        let (answer, until) = self.answers.get(key)?;
        if now < *until {
            return Some(answer.clone());
        }
        self.answers.pop(key);
        None
    }

    fn join(&self, key: &K) -> Option<Flight<V>> {
        self.flights.get(key)?.upgrade()
    }

    /// Remembers a flight. Those whose callers all went away are swept out when they grow many.
    fn track(&mut self, key: K, flight: &Flight<V>) {
        if self.flights.len() >= self.sweep_at {
            self.flights.retain(|_, weak| weak.upgrade().is_some());
            self.sweep_at = self.flights.len() * 2 + 64;
        }
        if let Some(weak) = flight.downgrade() {
            self.flights.insert(key, weak);
        }
    }

    fn land(&mut self, key: &K, fetched: Option<&(V, Duration)>, now: Instant) {
        self.flights.remove(key);
        if let Some((answer, ttl)) = fetched
            && !ttl.is_zero()
        {
            self.answers.put(key.clone(), (answer.clone(), now + *ttl));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::sync::Notify;

    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    fn cache() -> Coalescing<u8, u32> {
        Coalescing::new(NonZeroUsize::new(2).unwrap())
    }

    fn counted(count: &Arc<AtomicU32>, ttl: Duration) -> BoxFuture<'static, Fetched<u32>> {
        let count = count.clone();
        async move { Ok((count.fetch_add(1, Ordering::SeqCst), ttl)) }.boxed()
    }

    #[test]
    fn answers_are_kept_until_they_expire() {
        let (cache, now) = (cache(), Instant::now());
        let mut state = cache.state.lock();
        state.land(&1, Some(&(7, TTL)), now);
        assert_eq!(state.fresh(&1, now), Some(7));
        assert_eq!(
            state.fresh(&1, now + TTL - Duration::from_millis(1)),
            Some(7)
        );
        assert_eq!(state.fresh(&1, now + TTL), None);
        assert_eq!(state.fresh(&1, now), None, "an expired answer is forgotten");
    }

    #[tokio::test]
    async fn the_least_recently_used_answer_gives_way() {
        let (cache, count) = (cache(), Arc::default());
        for key in [1, 2, 1, 3] {
            cache.get(key, || counted(&count, TTL)).await.unwrap();
        }
        assert_eq!(cache.get(1, || counted(&count, TTL)).await, Ok(0));
        assert_eq!(cache.get(2, || counted(&count, TTL)).await, Ok(3));
    }

    #[tokio::test]
    async fn callers_that_ask_at_once_share_one_flight_even_if_the_first_leaves() {
        let (cache, gate) = (cache(), Arc::new(Notify::new()));
        let slow = |gate: Arc<Notify>| {
            async move {
                gate.notified().await;
                Ok((7, TTL))
            }
            .boxed()
        };
        let first = cache.get(1, || slow(gate.clone()));
        let mut first = Box::pin(first);
        assert!(futures::poll!(first.as_mut()).is_pending());
        let never = || -> BoxFuture<'static, Fetched<u32>> { panic!("a second flight") };
        let mut second = Box::pin(cache.get(1, never));
        assert!(futures::poll!(second.as_mut()).is_pending());
        drop(first);
        gate.notify_one();
        assert_eq!(second.await, Ok(7));
    }

    #[tokio::test]
    async fn failures_and_zero_lifetimes_are_not_kept() {
        let (cache, count) = (cache(), Arc::default());
        let failing = || async { Err(ApiError::internal("x")) }.boxed();
        assert!(cache.get(1, failing).await.is_err());
        assert_eq!(
            cache.get(1, || counted(&count, Duration::ZERO)).await,
            Ok(0)
        );
        assert_eq!(
            cache.get(1, || counted(&count, Duration::ZERO)).await,
            Ok(1)
        );
    }

    #[tokio::test]
    async fn abandoned_flights_do_not_pile_up() {
        let cache: Coalescing<u32, u32> = Coalescing::new(NonZeroUsize::new(2).unwrap());
        for key in 0..1_000 {
            let mut lost = Box::pin(cache.get(key, || futures::future::pending().boxed()));
            assert!(futures::poll!(lost.as_mut()).is_pending());
        }
        assert!(cache.state.lock().flights.len() <= 64);
    }
}
