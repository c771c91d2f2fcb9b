//! Which replicas live, judged by our own clock.
//!
//! Each replica renews one Lease. One that could not renew for [`FENCE_AFTER`] has cut its exclusive streams;
//! others act on it only after they have seen its Lease unchanged for [`DEAD_AFTER`]. No two
//! clocks are compared: a Lease is a counter that must move.

use std::{
    collections::HashMap,
    fmt,
    time::{Duration, Instant},
};

use super::claim::Fate;

/// How often the Lease is renewed.
pub const RENEW_EVERY: Duration = Duration::from_secs(3);
/// How long a replica holds streams after the last renewal that succeeded, counted from the start of
/// the request.
pub const FENCE_AFTER: Duration = Duration::from_secs(10);
/// How long a Lease must be seen unchanged before others act.
pub const DEAD_AFTER: Duration = Duration::from_secs(15);

/// Who we are: the pod, and this start of its container.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReplicaId {
    pod_uid: String,
    nonce: String,
}

impl ReplicaId {
    /// From the pod's UID (or another name that no other replica has) and a nonce without dashes,
    /// fresh at each start.
    pub fn new(pod_uid: impl Into<String>, nonce: impl Into<String>) -> Self {
        let nonce: String = nonce.into();
        Self {
            pod_uid: pod_uid.into(),
            nonce: nonce.replace('-', ""),
        }
    }

    /// Whether `other` names an earlier process of the same container.
    fn is_predecessor(&self, other: &str) -> bool {
        other
            .rsplit_once('-')
            .is_some_and(|(pod, nonce)| pod == self.pod_uid && nonce != self.nonce)
    }
}

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.pod_uid, self.nonce)
    }
}

/// A Lease as it was seen: whose, and a mark that changes with each renewal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beat {
    /// The replica.
    pub replica: String,
    /// The Lease's resourceVersion.
    pub mark: String,
}

#[derive(Debug)]
struct Seen {
    mark: Option<String>,
    since: Instant,
}

/// What this replica has seen of the others.
#[derive(Debug)]
pub struct Observed {
    me: ReplicaId,
    dead_after: Duration,
    seen: HashMap<String, Seen>,
    now: Instant,
}

impl Observed {
    /// Nothing yet.
    pub fn new(me: ReplicaId, dead_after: Duration, now: Instant) -> Self {
        Self {
            me,
            dead_after,
            seen: HashMap::new(),
            now,
        }
    }

    /// Takes a fresh list of Leases, and the replicas that sessions name.
    pub fn observe(&mut self, beats: &[Beat], named: &[String], now: Instant) {
        self.now = now;
        let marks: HashMap<&str, &str> = beats
            .iter()
            .map(|beat| (beat.replica.as_str(), beat.mark.as_str()))
            .collect();
        let mut next = HashMap::new();
        let names = beats.iter().map(|beat| &beat.replica).chain(named);
        for name in names {
            let mark = marks.get(name.as_str()).map(|mark| (*mark).to_owned());
            let since = match self.seen.get(name) {
                Some(seen) if seen.mark == mark => seen.since,
                _ => now,
            };
            next.insert(name.clone(), Seen { mark, since });
        }
        self.seen = next;
    }

    /// What became of a replica, as of the last observation.
    pub fn fate(&self, replica: &str) -> Fate {
        if replica == self.me.to_string() {
            return Fate::Mine;
        }
        if self.me.is_predecessor(replica) {
            return Fate::Predecessor;
        }
        let still = self
            .seen
            .get(replica)
            .is_some_and(|seen| self.now.saturating_duration_since(seen.since) >= self.dead_after);
        if still { Fate::Dead } else { Fate::Alive }
    }

    /// Replicas that have a Lease and are dead.
    pub fn dead_with_lease(&self) -> Vec<String> {
        let with_lease = self.seen.iter().filter(|(_, seen)| seen.mark.is_some());
        let gone = |name: &&String| matches!(self.fate(name), Fate::Dead | Fate::Predecessor);
        with_lease
            .map(|(name, _)| name)
            .filter(gone)
            .cloned()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beat(replica: &str, mark: &str) -> Beat {
        Beat {
            replica: replica.into(),
            mark: mark.into(),
        }
    }

    fn observed() -> (Observed, Instant) {
        let start = Instant::now();
        let me = ReplicaId::new("pod-1", "n2");
        (Observed::new(me, DEAD_AFTER, start), start)
    }

    #[test]
    fn only_a_lease_that_we_saw_standing_still_is_dead() {
        let (mut seen, start) = observed();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(seen.fate("pod-2-a"), Fate::Alive, "never seen is not dead");
        seen.observe(&[beat("pod-2-a", "1")], &[], at(0));
        seen.observe(&[beat("pod-2-a", "2")], &[], at(14));
        seen.observe(&[beat("pod-2-a", "2")], &[], at(28));
        assert_eq!(seen.fate("pod-2-a"), Fate::Alive);
        seen.observe(&[beat("pod-2-a", "2")], &[], at(29));
        assert_eq!(seen.fate("pod-2-a"), Fate::Dead);
        assert_eq!(seen.dead_with_lease(), ["pod-2-a"]);
        seen.observe(&[beat("pod-2-a", "3")], &[], at(30));
        assert_eq!(seen.fate("pod-2-a"), Fate::Alive, "it came back");
    }

    #[test]
    fn a_replica_without_a_lease_is_given_the_same_time() {
        let (mut seen, start) = observed();
        let named = ["pod-3-b".to_owned()];
        seen.observe(&[], &named, start);
        assert_eq!(seen.fate("pod-3-b"), Fate::Alive);
        seen.observe(&[], &named, start + DEAD_AFTER);
        assert_eq!(seen.fate("pod-3-b"), Fate::Dead);
        assert!(seen.dead_with_lease().is_empty());
    }

    #[test]
    fn a_container_that_restarted_knows_its_predecessor_at_once() {
        let (seen, _) = observed();
        assert_eq!(seen.fate("pod-1-n1"), Fate::Predecessor);
        assert_eq!(seen.fate("pod-1-n2"), Fate::Mine);
        assert_eq!(seen.fate("pod-11-n1"), Fate::Alive);
    }
}
