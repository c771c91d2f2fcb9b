//! Conditions: what is said, and since when.

use apiservice::v1alpha1::Condition;
use jiff::Timestamp;

/// Messages are for people; a longer one is cut.
const LONGEST: usize = 1024;

/// A condition without its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fact {
    pub(crate) kind: &'static str,
    pub(crate) holds: bool,
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl Fact {
    pub(crate) fn new(kind: &'static str, holds: bool, reason: &str, message: &str) -> Self {
        Self {
            kind,
            holds,
            reason: reason.to_owned(),
            message: cut(message),
        }
    }
}

/// Gives facts their times: `lastTransitionTime` moves only when `status` changes.
pub(crate) fn stamp(
    facts: Vec<Fact>,
    before: &[Condition],
    generation: i64,
    now: Timestamp,
) -> Vec<Condition> {
    facts
        .into_iter()
        .map(|fact| {
            let status = if fact.holds { "True" } else { "False" };
            let since = before
                .iter()
                .find(|old| old.type_ == fact.kind && old.status == status)
                .and_then(|old| old.last_transition_time.clone());
            Condition {
                type_: fact.kind.to_owned(),
                status: status.to_owned(),
                reason: Some(fact.reason),
                message: Some(fact.message),
                last_transition_time: Some(since.unwrap_or_else(|| second(now))),
                last_probe_time: None,
                observed_generation: Some(generation),
            }
        })
        .collect()
}

/// Kubernetes times have whole seconds.
fn second(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn cut(message: &str) -> String {
    if message.len() <= LONGEST {
        return message.to_owned();
    }
    let end = message.floor_char_boundary(LONGEST - '…'.len_utf8());
    format!("{}…", &message[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time: &str) -> Timestamp {
        time.parse().unwrap()
    }

    #[test]
    fn the_time_moves_only_with_the_status() {
        let fact = |holds, reason: &str| vec![Fact::new("Ready", holds, reason, "m")];
        let first = stamp(
            fact(false, "Starting"),
            &[],
            1,
            at("2026-01-01T00:00:00.7Z"),
        );
        assert_eq!(
            first[0].last_transition_time.as_deref(),
            Some("2026-01-01T00:00:00Z")
        );
        let second = stamp(
            fact(false, "Unschedulable"),
            &first,
            2,
            at("2026-01-01T00:01:00Z"),
        );
        assert_eq!(
            second[0].last_transition_time,
            first[0].last_transition_time
        );
        assert_eq!(second[0].reason.as_deref(), Some("Unschedulable"));
        let third = stamp(fact(true, "Ready"), &second, 2, at("2026-01-01T00:02:00Z"));
        assert_eq!(
            third[0].last_transition_time.as_deref(),
            Some("2026-01-01T00:02:00Z")
        );
    }

    #[test]
    fn long_messages_are_cut_at_a_character() {
        let fact = Fact::new("Ready", false, "R", &"ä".repeat(LONGEST));
        assert!(fact.message.len() <= LONGEST && fact.message.ends_with('…'));
    }
}
