//! How long a request takes, and how much of that is waiting for others.
//!
//! What is left is the server's own, and the only part that a faster server would shorten.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Runs from the moment a request's head was read. Clones are the same.
#[derive(Clone, Debug)]
pub struct Stopwatch {
    began: Instant,
    /// Nanoseconds.
    waited: Arc<AtomicU64>,
}

impl Stopwatch {
    /// Begins now.
    pub fn start() -> Self {
        Self {
            began: Instant::now(),
            waited: Arc::default(),
        }
    }

    /// Waits for somebody else. Waits of one request follow each other; a future that is dropped before its
    /// end has not been waited for.
    pub async fn wait<T>(&self, other: impl Future<Output = T>) -> T {
        let since = Instant::now();
        let answer = other.await;
        let waited = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.waited.fetch_add(waited, Ordering::Relaxed);
        answer
    }

    /// Since the beginning.
    pub fn total(&self) -> Duration {
        self.began.elapsed()
    }

    /// The same without the waits.
    pub fn own(&self) -> Duration {
        let waited = Duration::from_nanos(self.waited.load(Ordering::Relaxed));
        self.total().saturating_sub(waited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn waits_are_not_the_servers_own() {
        let watch = Stopwatch::start();
        let wait = Duration::from_millis(50);
        watch.clone().wait(tokio::time::sleep(wait)).await;
        let (total, own) = (watch.total(), watch.own());
        assert!(total >= wait, "{total:?}");
        assert!(own <= total - wait, "{own:?} of {total:?}");
    }
}
