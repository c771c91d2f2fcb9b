//! Whether a peer is alive, decided over times alone.
//!
//! A ping counts as missed only if it was written with nothing queued before it: behind a queue it
//! says how slow the peer reads, not whether it lives. For that there is the longer rule: no progress for
//! ten minutes. A peer that missed two pings is dead.

use std::time::{Duration, Instant};

/// The times of a relay.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How often pings go out.
    pub ping_every: Duration,
    /// How long a peer may take nothing while something waits for it.
    pub no_progress: Duration,
    /// How long goodbyes may take on each side.
    pub goodbye: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            ping_every: Duration::from_secs(15),
            no_progress: Duration::from_secs(600),
            goodbye: Duration::from_secs(2),
        }
    }
}

/// How many counted pings may stay unanswered.
const MISSES: u8 = 2;

/// When an unanswered ping counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// Whenever nothing was queued on our side.
    NothingQueued,
    /// Only if the peer has also proved, by an earlier pong, that it took all data before it.
    /// virt-handler answers pings only while it is not blocked on a guest that does not read.
    NothingUnproved,
    /// There are no pings: only progress counts.
    ProgressOnly,
}

/// What to do at a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Send a ping.
    Ping,
    /// Send none: output waits already.
    Wait,
    /// Two counted pings were missed.
    Dead,
    /// Nothing moved for [`Pace::no_progress`].
    Stalled,
}

/// The state of one peer.
#[derive(Clone, Debug)]
pub(super) struct Liveness {
    rule: Rule,
    no_progress: Duration,
    /// The oldest ping without an answer.
    unanswered_since: Option<Instant>,
    /// Whether the last ping counts when it stays unanswered.
    counts: bool,
    missed: u8,
    /// Data went out since the last pong.
    unproved: bool,
    /// Since when something waits and nothing moved.
    blocked_since: Option<Instant>,
}

impl Liveness {
    /// A peer that has just answered a handshake.
    pub(super) fn new(rule: Rule, no_progress: Duration) -> Self {
        Self {
            rule,
            no_progress,
            unanswered_since: None,
            counts: false,
            missed: 0,
            unproved: false,
            blocked_since: None,
        }
    }

    /// Bytes of the peer arrived.
    pub(super) fn heard(&mut self) {
        self.unanswered_since = None;
        self.counts = false;
        self.missed = 0;
    }

    /// A pong arrived: all data before its ping was taken.
    pub(super) fn pong(&mut self) {
        self.heard();
        self.unproved = false;
    }

    /// We are not reading from the peer (the other side takes nothing): its pongs cannot be seen.
    pub(super) fn not_listening(&mut self) {
        self.unanswered_since = None;
        self.counts = false;
        self.missed = 0;
    }

    /// The socket took bytes; `left` says whether more wait.
    pub(super) fn wrote(&mut self, now: Instant, left: bool) {
        self.blocked_since = left.then_some(now);
    }

    /// Data was queued for the peer.
    pub(super) fn queued(&mut self, now: Instant) {
        self.unproved = true;
        self.blocked_since.get_or_insert(now);
    }

    /// Every [`Pace::ping_every`].
    pub(super) fn tick(&mut self, now: Instant) -> Verdict {
        if self.counts && self.unanswered_since.is_some() {
            self.missed += 1;
            if self.missed >= MISSES {
                return Verdict::Dead;
            }
        }
        let long = |since: Option<Instant>| {
            since.is_some_and(|since| now.saturating_duration_since(since) >= self.no_progress)
        };
        if long(self.blocked_since) || long(self.unanswered_since) {
            return Verdict::Stalled;
        }
        if self.blocked_since.is_some() {
            self.counts = false;
            return Verdict::Wait;
        }
        self.counts = match self.rule {
            Rule::NothingQueued => true,
            Rule::NothingUnproved => !self.unproved,
            Rule::ProgressOnly => return Verdict::Wait,
        };
        self.unanswered_since.get_or_insert(now);
        Verdict::Ping
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Clock(Instant);

    impl Clock {
        fn next(&mut self) -> Instant {
            self.0 += Pace::default().ping_every;
            self.0
        }
    }

    fn start(rule: Rule) -> (Liveness, Clock) {
        (
            Liveness::new(rule, Pace::default().no_progress),
            Clock(Instant::now()),
        )
    }

    #[test]
    fn two_missed_pings_are_death_within_45_seconds() {
        let (mut peer, mut clock) = start(Rule::NothingQueued);
        assert_eq!(peer.tick(clock.next()), Verdict::Ping);
        assert_eq!(peer.tick(clock.next()), Verdict::Ping);
        assert_eq!(peer.tick(clock.next()), Verdict::Dead);
    }

    #[test]
    fn any_byte_is_life() {
        let (mut peer, mut clock) = start(Rule::NothingQueued);
        for _ in 0..10 {
            assert_eq!(peer.tick(clock.next()), Verdict::Ping);
            peer.heard();
        }
    }

    #[test]
    fn behind_a_queue_nothing_is_missed_but_ten_minutes_end_it() {
        let (mut peer, mut clock) = start(Rule::NothingQueued);
        peer.queued(clock.0);
        for _ in 0..39 {
            assert_eq!(peer.tick(clock.next()), Verdict::Wait);
        }
        assert_eq!(peer.tick(clock.next()), Verdict::Stalled);
    }

    #[test]
    fn a_slow_reader_that_moves_stays() {
        let (mut peer, mut clock) = start(Rule::NothingQueued);
        peer.queued(clock.0);
        for _ in 0..100 {
            let now = clock.next();
            assert_eq!(peer.tick(now), Verdict::Wait);
            peer.wrote(now, true);
        }
        peer.wrote(clock.0, false);
        assert_eq!(peer.tick(clock.next()), Verdict::Ping);
    }

    #[test]
    fn an_upstream_blocked_by_its_guest_is_not_dead() {
        let (mut peer, mut clock) = start(Rule::NothingUnproved);
        peer.queued(clock.0);
        peer.wrote(clock.0, false);
        for _ in 0..40 {
            assert_eq!(peer.tick(clock.next()), Verdict::Ping);
        }
        assert_eq!(peer.tick(clock.next()), Verdict::Stalled);
        peer.pong();
        assert_eq!(peer.tick(clock.next()), Verdict::Ping);
        assert_eq!(peer.tick(clock.next()), Verdict::Ping);
        assert_eq!(peer.tick(clock.next()), Verdict::Dead);
    }

    #[test]
    fn bytes_without_pings_are_judged_by_their_progress() {
        let (mut peer, mut clock) = start(Rule::ProgressOnly);
        for _ in 0..100 {
            assert_eq!(peer.tick(clock.next()), Verdict::Wait);
        }
        peer.queued(clock.0);
        for _ in 0..39 {
            assert_eq!(peer.tick(clock.next()), Verdict::Wait);
        }
        assert_eq!(peer.tick(clock.next()), Verdict::Stalled);
    }

    #[test]
    fn pongs_that_we_do_not_read_are_not_missed() {
        let (mut peer, mut clock) = start(Rule::NothingQueued);
        for _ in 0..50 {
            assert_ne!(peer.tick(clock.next()), Verdict::Dead);
            peer.not_listening();
        }
    }
}
