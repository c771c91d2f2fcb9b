//! What the parts of one exchange tell each other: the task that watches over it, the bodies that pass,
//! the tunnel after an upgrade.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::streams::{
    close::CloseReason,
    relay::{End, Traffic},
};

/// The state of an exchange.
#[derive(Debug)]
pub(super) struct Shared {
    /// What has passed.
    pub(super) traffic: std::sync::Arc<Traffic>,
    began: Instant,
    /// Somebody else than its two sides ends it.
    cut: CancellationToken,
    reason: Mutex<Option<CloseReason>>,
    /// How one of its sides ended it.
    end: Mutex<Option<End>>,
    /// Milliseconds, and one, from the beginning to when the client got data and came for no more; 0 if
    /// it waits for the guest.
    gave: AtomicU64,
}

impl Shared {
    /// Nothing has passed.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            traffic: std::sync::Arc::new(Traffic::new(now)),
            began: now,
            cut: CancellationToken::new(),
            reason: Mutex::default(),
            end: Mutex::default(),
            gave: AtomicU64::new(0),
        }
    }

    /// Tells both sides to end.
    pub(super) fn cut(&self, reason: &CloseReason) {
        *self.reason.lock() = Some(reason.clone());
        self.cut.cancel();
    }

    /// Cancelled when both sides are to end.
    pub(super) fn cutting(&self) -> &CancellationToken {
        &self.cut
    }

    /// Why they are.
    pub(super) fn reason(&self) -> Option<CloseReason> {
        self.reason.lock().clone()
    }

    /// A side has ended; the first word counts.
    pub(super) fn ended(&self, end: End) {
        self.end.lock().get_or_insert(end);
    }

    /// How a side ended it. A client that says nothing any more has gone.
    pub(super) fn end(&self) -> End {
        self.end.lock().take().unwrap_or(End::ClientGone)
    }

    /// The client got data.
    pub(super) fn gave(&self, now: Instant) {
        let since = now.saturating_duration_since(self.began).as_millis();
        let since = u64::try_from(since).unwrap_or(u64::MAX - 1);
        self.gave.store(since + 1, Ordering::Relaxed);
    }

    /// The client came for more.
    pub(super) fn came(&self) {
        self.gave.store(0, Ordering::Relaxed);
    }

    /// Whether the client has not come for more for so long.
    pub(super) fn is_stalled(&self, now: Instant, limit: Duration) -> bool {
        match self.gave.load(Ordering::Relaxed) {
            0 => false,
            gave => {
                let since = self.began + Duration::from_millis(gave - 1);
                now.saturating_duration_since(since) >= limit
            }
        }
    }
}

/// Whoever has it keeps an exchange going; dropping the last one ends it.
#[derive(Debug)]
pub(super) struct Hold {
    /// The exchange.
    pub(super) shared: std::sync::Arc<Shared>,
    _over: DropGuard,
}

impl Hold {
    /// A hold, and what is cancelled when it is let go.
    pub(super) fn new(shared: std::sync::Arc<Shared>) -> (Self, CancellationToken) {
        let over = CancellationToken::new();
        let hold = Self {
            shared,
            _over: over.clone().drop_guard(),
        };
        (hold, over)
    }
}

/// The runtime's clock, which tests may pause.
pub(super) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_slow_only_while_the_guest_has_something_for_it() {
        let start = now();
        let shared = Shared::new(start);
        let (minute, limit) = (Duration::from_secs(60), Duration::from_secs(60));
        assert!(!shared.is_stalled(start + 5 * minute, limit));
        shared.gave(start + minute);
        assert!(!shared.is_stalled(start + minute, limit));
        assert!(shared.is_stalled(start + 2 * minute, limit));
        shared.came();
        assert!(!shared.is_stalled(start + 9 * minute, limit));
    }

    #[test]
    fn the_first_end_counts_and_silence_is_the_clients() {
        let shared = Shared::new(now());
        assert_eq!(shared.end(), End::ClientGone);
        shared.ended(End::Finished);
        shared.ended(End::ClientGone);
        assert_eq!(shared.end(), End::Finished);
    }
}
