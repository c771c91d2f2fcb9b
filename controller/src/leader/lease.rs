//! The Lease as data, and what may be done about it.
//!
//! Rules of `k8s.io/client-go/tools/leaderelection`, with one change: no wall clock is compared.
//! Who wants the Lease must itself have seen it unchanged for its whole duration.

use std::time::{Duration, Instant};

use apiserver_generic::Object;
use jiff::Timestamp;
use serde_json::{Value, json};

/// Times of the election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// A Lease that did not change for this time may be taken.
    pub duration: Duration,
    /// A leader that could not renew for this time stops leading.
    pub deadline: Duration,
    /// Pause between renewals, and between attempts to take the Lease.
    pub retry: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(15),
            deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

/// The Lease as it was last seen, and since when it has been so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    version: String,
    since: Instant,
}

impl Seen {
    /// Keeps the time while the Lease does not change.
    pub(super) fn look(before: Option<Self>, lease: &Object, now: Instant) -> Self {
        let version = lease.resource_version().unwrap_or_default().to_owned();
        match before {
            Some(seen) if seen.version == version => seen,
            _ => Self {
                version,
                since: now,
            },
        }
    }
}

/// Whether the Lease may be taken by `me` at this moment.
pub(super) fn may_take(lease: &Object, seen: &Seen, me: &str, now: Instant) -> bool {
    let holder = lease.str_at("/spec/holderIdentity").unwrap_or_default();
    let seconds = lease
        .pointer("/spec/leaseDurationSeconds")
        .and_then(Value::as_u64);
    let duration = Duration::from_secs(seconds.unwrap_or_default());
    holder.is_empty() || holder == me || now.saturating_duration_since(seen.since) >= duration
}

/// The first Lease.
pub(super) fn first(name: &str, namespace: &str, me: &str, times: &Times, now: Timestamp) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "holderIdentity": me,
            "leaseDurationSeconds": times.duration.as_secs(),
            "acquireTime": micro(now),
            "renewTime": micro(now),
            "leaseTransitions": 0,
        },
    })
}

/// The Lease taken over, or renewed if `me` holds it already.
pub(super) fn held(lease: &Object, me: &str, times: &Times, now: Timestamp) -> Object {
    let mut lease = lease.clone();
    let is_mine = lease.str_at("/spec/holderIdentity") == Some(me);
    let transitions = lease
        .pointer("/spec/leaseTransitions")
        .and_then(Value::as_u64);
    let spec = lease
        .fields_mut()
        .entry("spec")
        .or_insert_with(|| json!({}));
    spec["renewTime"] = json!(micro(now));
    spec["leaseDurationSeconds"] = json!(times.duration.as_secs());
    if !is_mine {
        spec["holderIdentity"] = json!(me);
        spec["acquireTime"] = json!(micro(now));
        spec["leaseTransitions"] = json!(transitions.unwrap_or_default() + 1);
    }
    lease
}

/// The Lease given back, so that another need not wait.
pub(super) fn released(lease: &Object, now: Timestamp) -> Object {
    let mut lease = lease.clone();
    let spec = lease
        .fields_mut()
        .entry("spec")
        .or_insert_with(|| json!({}));
    spec["holderIdentity"] = json!("");
    spec["leaseDurationSeconds"] = json!(1);
    spec["renewTime"] = json!(micro(now));
    lease
}

/// `metav1.MicroTime`.
fn micro(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(holder: &str, version: &str) -> Object {
        Object::from_value(json!({
            "metadata": {"resourceVersion": version},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "leaseTransitions": 4},
        }))
        .unwrap()
    }

    #[test]
    fn a_lease_is_taken_only_after_it_was_seen_unchanged_for_its_duration() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let seen = Seen::look(None, &lease("b", "1"), at(0));
        assert!(!may_take(&lease("b", "1"), &seen, "a", at(14)));
        assert!(may_take(&lease("b", "1"), &seen, "a", at(15)));
        // A renewal starts the time anew, whatever the clocks of others say.
        let seen = Seen::look(Some(seen), &lease("b", "2"), at(14));
        assert!(!may_take(&lease("b", "2"), &seen, "a", at(28)));
        let seen = Seen::look(Some(seen), &lease("b", "2"), at(20));
        assert!(may_take(&lease("b", "2"), &seen, "a", at(29)));
    }

    #[test]
    fn a_lease_that_is_free_or_ones_own_is_taken_at_once() {
        let now = Instant::now();
        for holder in ["", "a"] {
            let seen = Seen::look(None, &lease(holder, "1"), now);
            assert!(may_take(&lease(holder, "1"), &seen, "a", now));
        }
    }

    #[test]
    fn taking_counts_as_a_transition_and_renewing_does_not() {
        let (times, now) = (Times::default(), "2026-01-01T00:00:00.5Z".parse().unwrap());
        let taken = held(&lease("b", "1"), "a", &times, now);
        assert_eq!(taken.pointer("/spec/leaseTransitions"), Some(&json!(5)));
        assert_eq!(
            taken.str_at("/spec/acquireTime"),
            Some("2026-01-01T00:00:00.500000Z")
        );
        let renewed = held(&taken, "a", &times, "2026-01-01T00:00:02Z".parse().unwrap());
        assert_eq!(renewed.pointer("/spec/leaseTransitions"), Some(&json!(5)));
        assert_eq!(
            renewed.str_at("/spec/acquireTime"),
            taken.str_at("/spec/acquireTime")
        );
        assert_eq!(
            renewed.resource_version(),
            Some("1"),
            "it is a compare-and-swap"
        );
        let free = released(&renewed, now);
        assert_eq!(free.str_at("/spec/holderIdentity"), Some(""));
    }

    #[test]
    fn a_leader_is_done_before_its_lease_can_be_taken() {
        let times = Times::default();
        assert!(times.deadline + times.retry < times.duration);
    }
}
