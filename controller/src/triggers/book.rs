//! Which workspaces are due, in what order: the queue's book-keeping, without a clock of its own.
//!
//! Each key is here once, however often it was named. A key that is worked on is not handed out
//! again; naming it meanwhile makes it due again afterwards. Modelled on
//! `k8s.io/client-go/util/workqueue`.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use crate::key::Key;

const FIRST_RETRY: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_secs(300);

/// What became of a key that was worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing is left to do.
    Done,
    /// All is well; look again after this time.
    Again(Duration),
    /// It failed; try again, later each time.
    Failed,
}

#[derive(Debug, Default)]
struct Entry {
    queued: bool,
    active: bool,
    /// Named while it was worked on.
    dirty: bool,
    due: Option<Instant>,
    failures: u32,
}

/// The book. Its size is bounded by the number of workspaces.
#[derive(Debug, Default)]
pub(crate) struct Book {
    ready: VecDeque<Key>,
    timers: BTreeSet<(Instant, Key)>,
    entries: HashMap<Key, Entry>,
}

impl Book {
    /// The key is due now. Tells whether it was put into the queue.
    pub(crate) fn add(&mut self, key: Key) -> bool {
        let entry = self.entries.entry(key.clone()).or_default();
        if entry.active {
            entry.dirty = true;
            return false;
        }
        if let Some(due) = entry.due.take() {
            self.timers.remove(&(due, key.clone()));
        }
        if entry.queued {
            return false;
        }
        entry.queued = true;
        self.ready.push_back(key);
        true
    }

    /// How many wait.
    pub(crate) fn depth(&self) -> usize {
        self.ready.len()
    }

    /// The next key to work on.
    pub(crate) fn take(&mut self, now: Instant) -> Option<Key> {
        while let Some((due, key)) = self.timers.first().cloned() {
            if due > now {
                break;
            }
            self.add(key);
        }
        let key = self.ready.pop_front()?;
        let entry = self.entries.entry(key.clone()).or_default();
        entry.queued = false;
        entry.active = true;
        Some(key)
    }

    /// The work on a key has ended. `jitter` in 0..1 spreads retries.
    pub(crate) fn finish(&mut self, key: &Key, outcome: Outcome, now: Instant, jitter: f64) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        entry.active = false;
        let dirty = std::mem::take(&mut entry.dirty);
        let wait = match outcome {
            Outcome::Failed => {
                entry.failures = entry.failures.saturating_add(1);
                Some(retry(entry.failures, jitter))
            }
            Outcome::Again(_) | Outcome::Done if dirty => Some(Duration::ZERO),
            Outcome::Again(wait) => Some(wait),
            Outcome::Done => None,
        };
        if outcome != Outcome::Failed {
            entry.failures = 0;
        }
        match wait {
            Some(Duration::ZERO) => {
                self.add(key.clone());
            }
            Some(wait) => self.wake_at(key, now + wait),
            None => {
                self.entries.remove(key);
            }
        }
    }

    /// When something becomes due, if nothing is now.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.timers.first().map(|(due, _)| *due)
    }

    fn wake_at(&mut self, key: &Key, due: Instant) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.due = Some(due);
            self.timers.insert((due, key.clone()));
        }
    }
}

/// Doubles with each failure up to five minutes; the upper half is chance.
fn retry(failures: u32, jitter: f64) -> Duration {
    let doubled = FIRST_RETRY.saturating_mul(1_u32 << failures.saturating_sub(1).min(16));
    let full = doubled.min(LAST_RETRY);
    full / 2 + (full / 2).mul_f64(jitter.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new("ns", name)
    }

    #[test]
    fn a_key_is_handed_out_once_however_often_it_is_named() {
        let (mut book, now) = (Book::default(), Instant::now());
        for name in ["a", "b", "a", "a"] {
            book.add(key(name));
        }
        assert_eq!(book.take(now), Some(key("a")));
        assert_eq!(book.take(now), Some(key("b")));
        assert_eq!(book.take(now), None);
    }

    #[test]
    fn a_key_named_during_the_work_comes_again_after_it() {
        let (mut book, now) = (Book::default(), Instant::now());
        book.add(key("a"));
        book.take(now);
        book.add(key("a"));
        assert_eq!(book.take(now), None, "never two at a time");
        book.finish(&key("a"), Outcome::Done, now, 0.0);
        assert_eq!(book.take(now), Some(key("a")));
        book.finish(&key("a"), Outcome::Done, now, 0.0);
        assert_eq!(book.take(now), None);
        assert!(book.entries.is_empty(), "nothing is kept of what is done");
    }

    #[test]
    fn retries_come_later_each_time_and_success_forgets() {
        let (mut book, mut now) = (Book::default(), Instant::now());
        book.add(key("a"));
        for wait in [500, 1000, 2000, 4000] {
            assert_eq!(book.take(now), Some(key("a")));
            book.finish(&key("a"), Outcome::Failed, now, 1.0);
            assert_eq!(book.take(now), None);
            let due = book.next_due().unwrap();
            assert_eq!(due - now, Duration::from_millis(wait));
            now = due;
        }
        book.take(now);
        book.finish(&key("a"), Outcome::Again(Duration::from_secs(60)), now, 0.0);
        now += Duration::from_secs(60);
        book.take(now);
        book.finish(&key("a"), Outcome::Failed, now, 0.0);
        assert_eq!(book.next_due().unwrap() - now, FIRST_RETRY / 2);
    }

    #[test]
    fn a_change_does_not_wait_for_the_timer() {
        let (mut book, now) = (Book::default(), Instant::now());
        book.add(key("a"));
        book.take(now);
        book.finish(&key("a"), Outcome::Again(Duration::from_secs(60)), now, 0.0);
        book.add(key("a"));
        assert_eq!(book.take(now), Some(key("a")));
        assert_eq!(book.next_due(), None);
    }

    #[test]
    fn waiting_has_a_bound() {
        assert_eq!(retry(u32::MAX, 1.0), LAST_RETRY);
        assert_eq!(retry(1, -3.0), FIRST_RETRY / 2);
    }
}
