//! What has passed through a stream, readable while it runs.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// Counters of one stream.
#[derive(Debug)]
pub struct Traffic {
    start: Instant,
    received: AtomicU64,
    sent: AtomicU64,
    /// Milliseconds from `start` to the last byte.
    active: AtomicU64,
}

impl Traffic {
    /// Nothing has passed.
    pub fn new(start: Instant) -> Self {
        Self {
            start,
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            active: AtomicU64::new(0),
        }
    }

    /// Bytes from the client.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Bytes to the client.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// How long nothing has passed that counts.
    pub fn idle(&self, now: Instant) -> Duration {
        let active = Duration::from_millis(self.active.load(Ordering::Relaxed));
        now.saturating_duration_since(self.start + active)
    }

    /// More came from the client.
    pub(in crate::streams) fn typed(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// More went to the client.
    pub(in crate::streams) fn printed(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Something passed that keeps the stream from being idle.
    pub(in crate::streams) fn touch(&self, now: Instant) {
        let since = now.saturating_duration_since(self.start).as_millis();
        let since = u64::try_from(since).unwrap_or(u64::MAX);
        self.active.store(since, Ordering::Relaxed);
    }
}
