//! Evenly spaced turns: what keeps a crowd of tasks from asking the control plane all at once.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

/// Gives out turns, one after the other, so many a second.
#[derive(Debug, Default)]
pub struct Pacer {
    next: Mutex<Option<Instant>>,
}

impl Pacer {
    /// Waits for a turn, at this rate. Turns come in the order in which they were asked for; a rate that
    /// is not positive counts as one in a thousand seconds.
    ///
    /// # Cancel safety
    /// A turn that is not waited for is lost; nobody gets it instead.
    pub async fn turn(&self, per_second: f64) {
        let at = self.reserve(Instant::now(), gap(per_second));
        sleep_until(at).await;
    }

    fn reserve(&self, now: Instant, gap: Duration) -> Instant {
        let mut next = self.next.lock();
        let at = next.map_or(now, |next| next.max(now));
        *next = Some(at + gap);
        at
    }
}

fn gap(per_second: f64) -> Duration {
    Duration::from_secs_f64(1.0 / per_second.max(0.001))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_spaced_and_a_pause_earns_no_burst() {
        let pacer = Pacer::default();
        let start = Instant::now();
        let gap = gap(20.0);
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(pacer.reserve(start, gap), at(0));
        assert_eq!(pacer.reserve(start, gap), at(50));
        assert_eq!(pacer.reserve(at(10), gap), at(100));
        assert_eq!(pacer.reserve(at(5_000), gap), at(5_000));
        assert_eq!(pacer.reserve(at(5_000), gap), at(5_050));
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_passes_at_the_rate() {
        let pacer = Pacer::default();
        let start = Instant::now();
        let turns = (0..41).map(|_| pacer.turn(20.0));
        futures::future::join_all(turns).await;
        assert_eq!(start.elapsed().as_secs(), 2);
    }
}
