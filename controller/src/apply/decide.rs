//! What to do about one child, from what is wanted, what is there, and what was done before.

use std::time::{Duration, Instant};

use apiserver_generic::Object;

use crate::names::MADE_FROM;
use crate::observe::{controller_of, is_owned};
use crate::plan::{Child, ChildKind};

/// A change that somebody else made to a child is undone at most this often: the Workspace decides
/// in the end, without a fight.
pub(crate) const UNDO_AFTER: Duration = Duration::from_secs(120);

/// The step to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It is not there: make it.
    Create,
    /// It is ours: bring it into form.
    Update {
        /// UID of the object that was judged.
        uid: String,
    },
    /// It is as we left it.
    Keep,
    /// Somebody changed it; undo that after this time.
    UndoLater(Duration),
    /// It is ours and being deleted: it is made anew once it is gone.
    Wait,
    /// It is not ours.
    Conflict {
        /// Whose it is, in words.
        owner: String,
    },
}

/// What was applied last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Applied {
    /// Digest of the body.
    pub(crate) body: [u8; 32],
    /// [`version`] of what came of it.
    pub(crate) version: String,
    /// When.
    pub(crate) at: Instant,
}

/// Decides about a child that should exist; `body` is the digest of its body.
pub(crate) fn step(
    owner: &str,
    child: &Child,
    body: [u8; 32],
    live: Option<&Object>,
    applied: Option<&Applied>,
    now: Instant,
) -> Step {
    let Some(live) = live else {
        return Step::Create;
    };
    if !is_owned(live, owner) {
        return Step::Conflict { owner: whose(live) };
    }
    if live.deletion_timestamp().is_some() {
        return Step::Wait;
    }
    let update = Step::Update {
        uid: live.uid().unwrap_or_default().to_owned(),
    };
    if child.kind == ChildKind::Secret {
        return if made_alike(child, live) {
            Step::Keep
        } else {
            update
        };
    }
    match applied.filter(|applied| applied.body == body) {
        None => update,
        Some(applied) if applied.version == version(live) => Step::Keep,
        Some(applied) => {
            let since = now.saturating_duration_since(applied.at);
            match UNDO_AFTER.checked_sub(since) {
                Some(rest) if !rest.is_zero() => Step::UndoLater(rest),
                _ => update,
            }
        }
    }
}

/// A mark of an object's desired state: generation where there is one, so that status is no change.
pub(crate) fn version(live: &Object) -> String {
    let uid = live.uid().unwrap_or_default();
    match live.generation() {
        0 => format!("{uid}/rv{}", live.resource_version().unwrap_or_default()),
        generation => format!("{uid}/{generation}"),
    }
}

/// Secrets are written once for each catalog entry and then left alone, so that neither an edit
/// of the catalog nor its loss changes them.
fn made_alike(child: &Child, live: &Object) -> bool {
    let wanted = child.body["metadata"]["annotations"][MADE_FROM].as_str();
    wanted.is_some() && wanted == live.annotation(MADE_FROM)
}

fn whose(live: &Object) -> String {
    match controller_of(live) {
        Some(owner) => format!("it belongs to {} {}", owner.kind, owner.name),
        None => "it belongs to nobody".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn child(kind: ChildKind) -> Child {
        Child {
            kind,
            name: "demo".into(),
            body: json!({"metadata": {"annotations": {MADE_FROM: "a/1"}}}),
        }
    }

    fn live(owner: Value, generation: i64) -> Object {
        Object::from_value(json!({"metadata": {
            "uid": "u", "generation": generation, "resourceVersion": "7",
            "annotations": {MADE_FROM: "a/1"}, "ownerReferences": owner}}))
        .unwrap()
    }

    fn ours() -> Value {
        json!([{"kind": "Workspace", "name": "demo", "uid": "ws", "controller": true}])
    }

    fn applied(body: u8, version: &str, at: Instant) -> Applied {
        Applied {
            body: [body; 32],
            version: version.into(),
            at,
        }
    }

    #[test]
    fn what_is_not_ours_is_never_touched() {
        for (owner, words) in [
            (json!([]), "belongs to nobody"),
            (
                json!([{"kind": "Workspace", "name": "demo", "uid": "old", "controller": true}]),
                "Workspace demo",
            ),
            (
                json!([{"kind": "Workspace", "name": "demo", "uid": "ws"}]),
                "belongs to nobody",
            ),
            (
                json!([{"kind": "HelmRelease", "name": "x", "uid": "ws", "controller": true}]),
                "HelmRelease x",
            ),
        ] {
            let live = live(owner, 1);
            let service = child(ChildKind::Service);
            let step = step("ws", &service, [1; 32], Some(&live), None, Instant::now());
            assert!(
                matches!(&step, Step::Conflict { owner } if owner.contains(words)),
                "{step:?}"
            );
        }
    }

    #[test]
    fn a_child_is_written_only_when_something_changed() {
        let now = Instant::now();
        let set = child(ChildKind::StatefulSet);
        let update = Step::Update { uid: "u".into() };
        let current = live(ours(), 2);
        let decide =
            |applied: Option<&Applied>| step("ws", &set, [1; 32], Some(&current), applied, now);
        assert_eq!(step("ws", &set, [1; 32], None, None, now), Step::Create);
        assert_eq!(decide(None), update);
        assert_eq!(decide(Some(&applied(1, "u/2", now))), Step::Keep);
        assert_eq!(decide(Some(&applied(2, "u/2", now))), update);
    }

    #[test]
    fn a_foreign_change_is_undone_but_not_at_once() {
        let at = Instant::now();
        let machine = child(ChildKind::VirtualMachine);
        let changed = live(ours(), 3);
        let seen = applied(1, "u/2", at);
        let after = |seconds| {
            let now = at + Duration::from_secs(seconds);
            step("ws", &machine, [1; 32], Some(&changed), Some(&seen), now)
        };
        assert_eq!(after(30), Step::UndoLater(Duration::from_secs(90)));
        assert_eq!(after(120), Step::Update { uid: "u".into() });
        assert_eq!(after(500), Step::Update { uid: "u".into() });
    }

    #[test]
    fn a_secret_is_rewritten_only_for_another_catalog_entry() {
        let now = Instant::now();
        let mut secret = child(ChildKind::Secret);
        let current = live(ours(), 0);
        let decide = |secret: &Child| step("ws", secret, [1; 32], Some(&current), None, now);
        assert_eq!(decide(&secret), Step::Keep);
        secret.body["metadata"]["annotations"][MADE_FROM] = json!("b/1");
        assert_eq!(decide(&secret), Step::Update { uid: "u".into() });
    }

    #[test]
    fn what_is_being_deleted_is_waited_for() {
        let mut dying = live(ours(), 1);
        dying.set_meta("deletionTimestamp", "2026-01-01T00:00:00Z");
        let service = child(ChildKind::Service);
        let step = step("ws", &service, [1; 32], Some(&dying), None, Instant::now());
        assert_eq!(step, Step::Wait);
    }

    #[test]
    fn status_is_no_change_of_the_desired_state() {
        assert_eq!(version(&live(ours(), 4)), "u/4");
        assert_eq!(version(&live(ours(), 0)), "u/rv7");
    }
}
