//! Which names were free a moment ago because a stream of them had ended, at whichever replica.
//!
//! An upstream may need a moment to notice an end of ours, and until then refuses whoever comes next
//! as if a stranger were there. The watch of sessions tells every end, because no name becomes free
//! without its object being removed; what ended before the watch stood is not known, and then any
//! name may be one of them.

use std::{collections::HashMap, sync::Arc, time::Duration};

use apiserver_generic::{Key, Revision};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::store::Inner;

/// How many ends are remembered one by one. Beyond, all names are as if they had just become free.
const MOST: usize = 4096;

/// Ends that may still matter.
#[derive(Debug, Default)]
pub(super) struct Ends(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// What ended earlier was not seen; `None`: nothing was.
    since: Option<Instant>,
    ended: HashMap<Key, Instant>,
}

impl Ends {
    /// From now on every end is told.
    pub(super) fn listening(&self, now: Instant) {
        let mut known = self.0.lock();
        known.since = Some(now);
        known.ended.clear();
    }

    /// The object of this name was removed.
    pub(super) fn note(&self, key: Key, now: Instant, lingers: Duration) {
        let mut known = self.0.lock();
        if known.ended.len() >= MOST {
            let matters = |at: &Instant| now.saturating_duration_since(*at) < lingers;
            known.ended.retain(|_, at| matters(at));
        }
        if known.ended.len() >= MOST {
            known.since = Some(now);
            known.ended.clear();
        }
        known.ended.insert(key, now);
    }

    /// The latest moment at which a stream of this name may have ended; `None` if that may be now.
    fn latest(&self, key: &Key) -> Option<Instant> {
        let known = self.0.lock();
        let since = known.since?;
        let ended = known.ended.get(key).copied();
        Some(ended.map_or(since, |at| at.max(since)))
    }
}

/// What came before a claim of ours.
pub struct Predecessor {
    inner: Arc<Inner>,
    key: Key,
    /// The claim itself: whatever ended before it is known once the watch is here.
    claimed: Revision,
}

impl Predecessor {
    pub(super) fn new(inner: Arc<Inner>, key: Key, claimed: Revision) -> Self {
        Self {
            inner,
            key,
            claimed,
        }
    }

    /// Until when an upstream may take the stream before this claim for one that lives.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn lingers_until(&self) -> Instant {
        let Inner { index, timing, .. } = &*self.inner;
        index.reached(self.claimed).await;
        let latest = index.ends.latest(&self.key);
        latest.unwrap_or_else(Instant::now) + timing.lingers
    }

    /// How long an upstream may need to notice an end.
    pub fn lingers(&self) -> Duration {
        self.inner.timing.lingers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINGERS: Duration = Duration::from_secs(5);

    fn key(name: &str) -> Key {
        Key {
            namespace: Some("t1".into()),
            name: name.into(),
        }
    }

    #[test]
    fn an_end_that_was_told_is_known_and_any_earlier_one_may_have_been() {
        let (ends, start) = (Ends::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(ends.latest(&key("a")), None, "nothing is known yet");
        ends.listening(at(1));
        assert_eq!(ends.latest(&key("a")), Some(at(1)));
        ends.note(key("a"), at(3), LINGERS);
        assert_eq!(ends.latest(&key("a")), Some(at(3)));
        assert_eq!(ends.latest(&key("b")), Some(at(1)));
        ends.listening(at(9));
        assert_eq!(ends.latest(&key("a")), Some(at(9)), "the watch was away");
    }

    #[test]
    fn more_ends_than_are_remembered_make_every_name_one_of_them() {
        let (ends, start) = (Ends::default(), Instant::now());
        ends.listening(start);
        let soon = start + Duration::from_secs(1);
        for n in 0..MOST {
            ends.note(key(&n.to_string()), soon, LINGERS);
        }
        assert_eq!(ends.latest(&key("quiet")), Some(start));
        ends.note(key("one-more"), soon, LINGERS);
        assert_eq!(ends.latest(&key("quiet")), Some(soon));
        // What does not matter any more makes room instead.
        let late = soon + LINGERS;
        for n in 0..MOST {
            ends.note(key(&n.to_string()), late, LINGERS);
        }
        assert_eq!(ends.latest(&key("quiet")), Some(soon));
        assert!(ends.0.lock().ended.len() <= MOST);
    }
}
