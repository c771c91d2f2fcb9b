//! Conditions: what KubeVirt says about an object, one type at a time.

use serde::{Deserialize, Serialize};

/// One condition of a VirtualMachine or VirtualMachineInstance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// `Ready`, `Paused`, …
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False`, `Unknown`.
    pub status: String,
    /// One word for programs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// A sentence for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// When `status` last changed, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<String>,
}

impl Condition {
    /// A condition without a time; [`set`] gives it one.
    pub fn new(kind: &str, status: bool, reason: &str, message: &str) -> Self {
        Self {
            kind: kind.to_owned(),
            status: if status { "True" } else { "False" }.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            last_transition_time: None,
        }
    }

    /// Whether the condition holds.
    pub fn is_true(&self) -> bool {
        self.status == "True"
    }
}

/// Puts `wanted` into `conditions`; its time is `now` only if the status changed.
pub fn set(conditions: &mut Vec<Condition>, mut wanted: Condition, now: &str) {
    let old = conditions.iter_mut().find(|c| c.kind == wanted.kind);
    let unchanged_since = old
        .as_ref()
        .filter(|c| c.status == wanted.status)
        .and_then(|c| c.last_transition_time.clone());
    wanted.last_transition_time = Some(unchanged_since.unwrap_or_else(|| now.to_owned()));
    match old {
        Some(slot) => *slot = wanted,
        None => conditions.push(wanted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transition_time_moves_only_with_the_status() {
        let mut list = Vec::new();
        set(&mut list, Condition::new("Ready", false, "A", ""), "t1");
        set(&mut list, Condition::new("Ready", false, "B", ""), "t2");
        assert_eq!(list[0].last_transition_time.as_deref(), Some("t1"));
        assert_eq!(list[0].reason, "B");
        set(&mut list, Condition::new("Ready", true, "", ""), "t3");
        assert_eq!(list[0].last_transition_time.as_deref(), Some("t3"));
        assert_eq!(list.len(), 1);
    }
}
