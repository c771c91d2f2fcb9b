//! The times of the protocol, in one value so that tests can run it faster.

use std::time::Duration;

use super::replica::{DEAD_AFTER, FENCE_AFTER, RENEW_EVERY};

/// The times of the protocol. They keep `fence_after` + the end of a stream (2 s) < `dead_after`.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Between two renewals.
    pub renew_every: Duration,
    /// How long one renewal may take.
    pub renewal_limit: Duration,
    /// After the last good renewal, counted from its start.
    pub fence_after: Duration,
    /// How long a Lease must be seen unchanged.
    pub dead_after: Duration,
    /// Between two rounds of the collector.
    pub collect_every: Duration,
    /// How long a take-over waits for the old stream's end. Longer than a dead replica needs to be
    /// found out, so that what it held can be taken over in one try.
    pub takeover_limit: Duration,
    /// How long whoever was handed a session may take to come for it.
    pub offer_limit: Duration,
    /// How long a stream that shares its object lives before the object is written.
    pub shared_after: Duration,
    /// Between two writes of one object's counters.
    pub count_every: Duration,
    /// How long an upstream may need to notice that a stream of ours has ended.
    pub lingers: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            renew_every: RENEW_EVERY,
            renewal_limit: Duration::from_secs(5),
            fence_after: FENCE_AFTER,
            dead_after: DEAD_AFTER,
            collect_every: Duration::from_secs(1),
            takeover_limit: Duration::from_secs(25),
            offer_limit: Duration::from_secs(5),
            shared_after: Duration::from_secs(5),
            count_every: Duration::from_secs(60),
            lingers: Duration::from_secs(5),
        }
    }
}
