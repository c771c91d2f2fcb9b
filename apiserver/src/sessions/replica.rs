//! Which replicas live, judged by our own clock.
//!
//! Each replica renews one Lease. One that could not renew for [`FENCE_AFTER`] has cut its exclusive streams;
//! others act on it only after they have seen its Lease unchanged for [`DEAD_AFTER`]. No two
//! clocks are compared: a Lease is a counter that must move.
//!
//! **A look takes time.** A Lease that a list shows was so at some moment between the question and the
//! answer. A mark is therefore new as of the answer, and still the same as of the question only.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use tokio::time::Instant;

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

/// A look at all Leases.
#[derive(Clone, Debug)]
pub struct Look {
    /// What was seen.
    pub beats: Vec<Beat>,
    /// When it was asked for.
    pub asked: Instant,
    /// When the answer was there.
    pub answered: Instant,
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
    seen: BTreeMap<String, Seen>,
    /// When the last look was asked for.
    as_of: Instant,
}

impl Observed {
    /// Nothing yet.
    pub fn new(me: ReplicaId, dead_after: Duration, now: Instant) -> Self {
        Self {
            me,
            dead_after,
            seen: BTreeMap::new(),
            as_of: now,
        }
    }

    /// Takes a fresh look at the Leases, and the replicas that sessions name. Looks may overlap; one
    /// that was asked for before the last is ignored.
    pub fn observe(&mut self, look: &Look, named: &BTreeSet<String>) {
        if look.asked < self.as_of {
            return;
        }
        self.as_of = look.asked;
        let beats = look.beats.iter();
        let marks: BTreeMap<&str, &str> = beats
            .map(|beat| (beat.replica.as_str(), beat.mark.as_str()))
            .collect();
        let named = named.iter().map(String::as_str);
        let names: BTreeSet<&str> = marks.keys().copied().chain(named).collect();
        let mut next = BTreeMap::new();
        for name in names {
            let mark = marks.get(name).map(|mark| (*mark).to_owned());
            let since = match self.seen.get(name) {
                Some(seen) if seen.mark == mark => seen.since,
                _ => look.answered,
            };
            next.insert(name.to_owned(), Seen { mark, since });
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
        let still = |seen: &Seen| self.as_of.saturating_duration_since(seen.since);
        match self.seen.get(replica) {
            Some(seen) if still(seen) >= self.dead_after => Fate::Dead,
            _ => Fate::Alive,
        }
    }

    /// How many replicas live, as far as their Leases say: at least one, which is this.
    pub fn living(&self) -> usize {
        let with_lease = self.seen.iter().filter(|(_, seen)| seen.mark.is_some());
        let living =
            with_lease.filter(|(name, _)| matches!(self.fate(name), Fate::Mine | Fate::Alive));
        living.count().max(1)
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

    /// A look that takes no time.
    fn look(beats: &[Beat], at: Instant) -> Look {
        Look {
            beats: beats.to_vec(),
            asked: at,
            answered: at,
        }
    }

    #[test]
    fn only_a_lease_that_we_saw_standing_still_is_dead() {
        let (mut seen, start) = observed();
        let at = |seconds| start + Duration::from_secs(seconds);
        let none = BTreeSet::new();
        assert_eq!(seen.fate("pod-2-a"), Fate::Alive, "never seen is not dead");
        seen.observe(&look(&[beat("pod-2-a", "1")], at(0)), &none);
        seen.observe(&look(&[beat("pod-2-a", "2")], at(14)), &none);
        seen.observe(&look(&[beat("pod-2-a", "2")], at(28)), &none);
        assert_eq!((seen.fate("pod-2-a"), seen.living()), (Fate::Alive, 1));
        seen.observe(&look(&[beat("pod-2-a", "2")], at(29)), &none);
        assert_eq!(seen.fate("pod-2-a"), Fate::Dead);
        assert_eq!(seen.dead_with_lease(), ["pod-2-a"]);
        let both = [beat("pod-1-n2", "7"), beat("pod-2-a", "3")];
        seen.observe(&look(&both, at(30)), &none);
        assert_eq!(seen.fate("pod-2-a"), Fate::Alive, "it came back");
        assert_eq!(seen.living(), 2);
    }

    #[test]
    fn the_time_that_a_look_takes_never_counts_against_a_replica() {
        let (mut seen, start) = observed();
        let at = |seconds| start + Duration::from_secs(seconds);
        let slow = |asked, answered| Look {
            beats: vec![beat("pod-2-a", "1")],
            asked: at(asked),
            answered: at(answered),
        };
        let none = BTreeSet::new();
        seen.observe(&slow(0, 4), &none);
        // The mark may be from second 14: the answer says nothing of what came after.
        seen.observe(&slow(14, 19), &none);
        assert_eq!(seen.fate("pod-2-a"), Fate::Alive);
        seen.observe(&slow(18, 30), &none);
        assert_eq!(seen.fate("pod-2-a"), Fate::Alive, "14 s are proved");
        seen.observe(&slow(19, 19), &none);
        assert_eq!(seen.fate("pod-2-a"), Fate::Dead);
        let mut renewed = slow(10, 40);
        renewed.beats = vec![beat("pod-2-a", "2")];
        seen.observe(&renewed, &none);
        assert_eq!(
            seen.fate("pod-2-a"),
            Fate::Dead,
            "an older look says nothing"
        );
    }

    #[test]
    fn a_replica_without_a_lease_is_given_the_same_time() {
        let (mut seen, start) = observed();
        let named = BTreeSet::from(["pod-3-b".to_owned()]);
        seen.observe(&look(&[], start), &named);
        assert_eq!(seen.fate("pod-3-b"), Fate::Alive);
        seen.observe(&look(&[], start + DEAD_AFTER), &named);
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
