//! What there is to tell, from what changed. Pure.

use apiservice::v1alpha1::{Condition, Phase, WorkspaceStatus};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType};

use crate::kinds::Kind;

/// Notes are cut to what an Event may hold.
const LONGEST: usize = 1024;

/// Something to tell about a workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    warning: bool,
    reason: String,
    action: &'static str,
    note: String,
    child: Option<Child>,
}

/// A child that an event is about too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Child {
    pub(crate) kind: Kind,
    pub(crate) name: String,
}

impl Notice {
    fn new(warning: bool, reason: &str, action: &'static str, note: &str) -> Self {
        Self {
            warning,
            reason: reason.to_owned(),
            action,
            note: note[..note.floor_char_boundary(LONGEST)].to_owned(),
            child: None,
        }
    }

    pub(super) fn into_event(self, namespace: &str) -> Event {
        let kind = match self.warning {
            true => EventType::Warning,
            false => EventType::Normal,
        };
        Event {
            type_: kind,
            reason: self.reason,
            note: Some(self.note),
            action: self.action.to_owned(),
            secondary: self.child.map(|child| ObjectReference {
                api_version: Some(child.kind.resource().api_version),
                kind: Some(child.kind.to_string()),
                name: Some(child.name),
                namespace: Some(namespace.to_owned()),
                ..ObjectReference::default()
            }),
        }
    }
}

/// A child was made.
pub(crate) fn created(child: Child) -> Notice {
    let note = format!("created {} {}", child.kind, child.name);
    Notice {
        child: Some(child),
        ..Notice::new(false, "Created", "Create", &note)
    }
}

/// A machine's image is in no catalog entry.
pub(crate) fn unresolved(image: &str) -> Notice {
    let note = format!(
        "no Image of the catalog has the image {image:?}: the machine is made with defaults and \
         without cloud-init"
    );
    Notice::new(true, "ImageUnresolved", "Resolve", &note)
}

/// What a new status tells that the one before did not.
pub(crate) fn notices(before: &WorkspaceStatus, after: &WorkspaceStatus) -> Vec<Notice> {
    let mut notices = Vec::new();
    notices.extend(of_phase(before, after));
    if !notices.iter().any(|notice| notice.warning) {
        notices.extend(of_problems(before, after));
    }
    notices
}

/// The workspace came to run, to rest, or to grief.
fn of_phase(before: &WorkspaceStatus, after: &WorkspaceStatus) -> Option<Notice> {
    let ready = condition(after, "Ready");
    let (reason, message) = (text(&ready?.reason), text(&ready?.message));
    let changed = before.phase != after.phase;
    match after.phase? {
        Phase::Running if after.ready_replicas > 0 && before.ready_replicas == 0 => Some(
            Notice::new(false, "Started", "Start", "the workspace is ready"),
        ),
        Phase::Stopped if changed => Some(Notice::new(
            false,
            "Stopped",
            "Stop",
            "the workspace is stopped",
        )),
        Phase::Failed if changed || reason != reason_before(before, "Ready") => {
            Some(Notice::new(true, reason, "Reconcile", message))
        }
        Phase::Terminating if changed => Some(Notice::new(false, "Terminating", "Delete", message)),
        _ => None,
    }
}

/// Something is asked for and cannot be had, whatever the phase: KubeVirt is missing, a name is
/// taken, a field is not supported.
fn of_problems(before: &WorkspaceStatus, after: &WorkspaceStatus) -> Option<Notice> {
    if after.phase == Some(Phase::Terminating) {
        return None;
    }
    let problem = |kind| {
        let now = condition(after, kind).filter(|c| c.status == "False")?;
        let (reason, message) = (text(&now.reason), text(&now.message));
        let known = reason == reason_before(before, kind)
            && condition(before, kind).is_some_and(|c| c.status == "False");
        (!known).then(|| Notice::new(true, reason, "Reconcile", message))
    };
    problem("Reconciled").or_else(|| problem("FullyApplied"))
}

fn condition<'a>(status: &'a WorkspaceStatus, kind: &str) -> Option<&'a Condition> {
    status.conditions.iter().find(|c| c.type_ == kind)
}

fn reason_before<'a>(status: &'a WorkspaceStatus, kind: &str) -> &'a str {
    condition(status, kind).map_or("", |c| text(&c.reason))
}

fn text(value: &Option<String>) -> &str {
    value.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Phase, ready replicas, and conditions as (type, status, reason).
    fn status(phase: &str, ready: i32, conditions: &[(&str, &str, &str)]) -> WorkspaceStatus {
        let conditions: Vec<_> = conditions
            .iter()
            .map(|(kind, status, reason)| {
                json!({"type": kind, "status": status, "reason": reason, "message": "m"})
            })
            .collect();
        let value = json!({"phase": phase, "readyReplicas": ready, "conditions": conditions});
        serde_json::from_value(value).unwrap()
    }

    fn told(before: &WorkspaceStatus, after: &WorkspaceStatus) -> Vec<(bool, String)> {
        let notices = notices(before, after).into_iter();
        notices.map(|n| (n.warning, n.reason)).collect()
    }

    #[test]
    fn each_change_is_told_once() {
        let new = WorkspaceStatus::default();
        let starting = status("Starting", 0, &[("Ready", "False", "Scheduling")]);
        let running = status("Running", 1, &[("Ready", "True", "Ready")]);
        let unready = status("Running", 0, &[("Ready", "False", "NotReady")]);
        let stopping = status("Stopping", 0, &[("Ready", "False", "Stopping")]);
        let stopped = status("Stopped", 0, &[("Ready", "False", "Stopped")]);
        let taken = [
            ("Ready", "False", "NameConflict"),
            ("Reconciled", "False", "NameConflict"),
        ];
        let conflict = status("Failed", 0, &taken);
        let missing = [
            ("Ready", "False", "KubeVirtNotInstalled"),
            ("Reconciled", "False", "KubeVirtNotInstalled"),
            ("FullyApplied", "False", "KubeVirtNotInstalled"),
        ];
        let waiting = status("Pending", 0, &missing);
        let lacking = [
            ("Ready", "True", "Ready"),
            ("Reconciled", "True", "Applied"),
            ("FullyApplied", "False", "NotSupported"),
        ];
        let lacks = status("Running", 1, &lacking);
        let ends = status(
            "Terminating",
            0,
            &[
                ("Ready", "False", "Terminating"),
                ("Reconciled", "False", "Terminating"),
            ],
        );
        for (before, after, expected) in [
            (&new, &starting, vec![]),
            (&starting, &running, vec![(false, "Started")]),
            (&running, &running, vec![]),
            (&running, &unready, vec![]),
            (&unready, &running, vec![(false, "Started")]),
            (&running, &stopping, vec![]),
            (&stopping, &stopped, vec![(false, "Stopped")]),
            (&new, &conflict, vec![(true, "NameConflict")]),
            (&conflict, &conflict, vec![]),
            (&new, &waiting, vec![(true, "KubeVirtNotInstalled")]),
            (&waiting, &waiting, vec![]),
            (&waiting, &conflict, vec![(true, "NameConflict")]),
            (&running, &lacks, vec![(true, "NotSupported")]),
            (&lacks, &lacks, vec![]),
            (&running, &ends, vec![(false, "Terminating")]),
            (&ends, &ends, vec![]),
        ] {
            let expected: Vec<_> = expected
                .into_iter()
                .map(|(warning, reason): (bool, &str)| (warning, reason.to_owned()))
                .collect();
            assert_eq!(told(before, after), expected, "{before:?}\n{after:?}");
        }
    }

    #[test]
    fn an_event_names_the_child_and_fits() {
        let child = Child {
            kind: Kind::StatefulSet,
            name: "code".into(),
        };
        let event = created(child).into_event("team");
        let related = event.secondary.unwrap();
        assert_eq!(event.note.as_deref(), Some("created StatefulSet code"));
        assert_eq!(
            (related.api_version.as_deref(), related.namespace.as_deref()),
            (Some("apps/v1"), Some("team"))
        );
        let long = unresolved(&"ä".repeat(2000)).into_event("team");
        assert!(long.note.unwrap().len() <= LONGEST);
    }
}
