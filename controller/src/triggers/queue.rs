//! The work queue: [`Book`] with a clock and a bell.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

use super::book::{Book, Outcome};
use crate::key::Key;
use crate::metrics::ControllerMetrics;

/// A queue of workspaces that several workers may take from.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    book: Mutex<Book>,
    bell: Notify,
    metrics: ControllerMetrics,
}

impl Queue {
    /// An empty queue that counts here.
    pub(crate) fn new(metrics: ControllerMetrics) -> Self {
        Self {
            metrics,
            ..Self::default()
        }
    }

    /// Names a workspace that should be looked at.
    pub(crate) fn add(&self, key: Key) {
        let mut book = self.book();
        let added = book.add(key);
        self.metrics.queue(book.depth(), added);
        drop(book);
        self.bell.notify_one();
    }

    /// Waits for the next workspace.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped: a key is taken in its last poll only.
    pub(crate) async fn next(&self) -> Key {
        loop {
            let ring = self.bell.notified();
            let due = {
                let mut book = self.book();
                if let Some(key) = book.take(Instant::now()) {
                    self.metrics.queue(book.depth(), false);
                    // Another worker may find more.
                    self.bell.notify_one();
                    return key;
                }
                book.next_due()
            };
            match due {
                Some(due) => tokio::select! {
                    () = ring => {}
                    () = tokio::time::sleep_until(due.into()) => {}
                },
                None => ring.await,
            }
        }
    }

    /// The work on a workspace has ended.
    pub(crate) fn finish(&self, key: &Key, outcome: Outcome) {
        self.book().finish(key, outcome, Instant::now(), chance());
        self.bell.notify_one();
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        // The book is consistent between any two statements; a panic elsewhere does not spoil it.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A number in 0..1. The standard library's hash seeds are random, which is enough to spread work.
pub(crate) fn chance() -> f64 {
    let bits = RandomState::new().hash_one(0_u8) >> 32;
    f64::from(u32::try_from(bits).unwrap_or_default()) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;

    #[tokio::test]
    async fn several_workers_share_the_work() {
        let queue = Arc::new(Queue::default());
        for n in 0..3 {
            queue.add(Key::new("ns", n.to_string()));
        }
        let mut workers = tokio::task::JoinSet::new();
        for _ in 0..3 {
            let queue = queue.clone();
            workers.spawn(async move { queue.next().await });
        }
        let mut taken: Vec<Key> = workers.join_all().await;
        taken.sort();
        taken.dedup();
        assert_eq!(taken.len(), 3);
    }

    #[tokio::test]
    async fn what_is_due_later_comes_by_itself() {
        let queue = Queue::default();
        let key = Key::new("ns", "a");
        queue.add(key.clone());
        let taken = queue.next().await;
        queue.finish(&taken, Outcome::Again(Duration::from_millis(20)));
        let again = tokio::time::timeout(Duration::from_secs(10), queue.next()).await;
        assert_eq!(again.unwrap(), key);
    }

    #[test]
    fn chance_is_between_nothing_and_one() {
        assert!((0..100).map(|_| chance()).all(|c| (0.0..=1.0).contains(&c)));
    }
}
