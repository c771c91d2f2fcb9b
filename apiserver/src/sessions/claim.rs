//! The claim on an exclusive stream as a state machine, decided over the stored object alone.
//!
//! ```text
//!            create                    successor written
//!   Free ─────────────► Held ───────────────────────────► Contested
//!    ▲                   │ deletionTimestamp                 │ the holder's stream has ended
//!    │                   ▼                                   ▼
//!    └──────────────── Ending                    Held, by the successor (HandedOver to it)
//!        stream ended, object removed
//! ```
//! `Abandoned` is any of them whose replica is dead: another replica removes it, or hands it over.

use apiserver_generic::{ApiError, Object};
use apiservice::v1alpha1::{GROUP, SessionSuccessor, WorkspaceSessionSpec};

use super::record;

/// What is known of the replica that an object names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// This very process.
    Mine,
    /// An earlier process of this container: it cannot be running.
    Predecessor,
    /// It may live.
    Alive,
    /// Its Lease was seen unchanged for so long that it has cut its streams.
    Dead,
}

/// What a stored session means for the claim on its stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Nobody holds it.
    Free,
    /// Somebody does.
    Held(WorkspaceSessionSpec),
    /// Somebody does, and is being ended.
    Ending(WorkspaceSessionSpec),
    /// Somebody does, and somebody else waits for it.
    Contested(WorkspaceSessionSpec, SessionSuccessor),
    /// It is ours now: our claim was waiting for it.
    HandedOver,
    /// Its holder is no more.
    Abandoned(Option<SessionSuccessor>),
}

/// Judges what is stored, for the claim `mine`.
pub fn judge(stored: Option<&Object>, fate: impl Fn(&str) -> Fate, mine: &str) -> Claim {
    let Some(object) = stored else {
        return Claim::Free;
    };
    let spec = record::read(object).spec;
    if spec.claim == mine {
        return Claim::HandedOver;
    }
    if matches!(fate(&spec.replica), Fate::Dead | Fate::Predecessor) {
        return Claim::Abandoned(spec.successor);
    }
    match spec.successor.clone() {
        _ if object.deletion_timestamp().is_some() => Claim::Ending(spec),
        Some(successor) => Claim::Contested(spec, successor),
        None => Claim::Held(spec),
    }
}

/// What the holder of a session is told by a change of its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Go on.
    Keep,
    /// Somebody takes it over.
    TakenOver,
    /// Somebody deleted the session.
    Ended,
    /// The object is gone or somebody else's: the claim is lost.
    Lost,
}

/// Reads a change for the holder who made the object with this UID by the claim `mine`.
pub fn notice(stored: Option<&Object>, uid: &str, mine: &str) -> Notice {
    let Some(object) = stored.filter(|object| object.uid() == Some(uid)) else {
        return Notice::Lost;
    };
    let spec = record::read(object).spec;
    match spec.successor {
        _ if spec.claim != mine => Notice::Lost,
        _ if object.deletion_timestamp().is_some() => Notice::Ended,
        Some(_) => Notice::TakenOver,
        None => Notice::Keep,
    }
}

/// 409 for a stream that somebody holds: who, since when, and what to do.
pub fn held(holder: &WorkspaceSessionSpec, ending: bool) -> ApiError {
    let mode = holder.mode.as_str();
    let workspace = &holder.workspace;
    let what = if ending {
        "it is being ended; try again in a moment".to_owned()
    } else {
        format!(
            "add ?takeover=true to take it over, or end it with: kubectl delete workspacesession {workspace}.{mode}"
        )
    };
    let why = format!(
        "the {mode} is held by user \"{}\" since {}; {what}",
        holder.user, holder.since
    );
    let error = ApiError::conflict(GROUP, "workspaces", workspace, &why)
        .cause("SessionHeld", &holder.user, "spec.user")
        .cause("SessionHeld", &holder.since, "spec.since")
        .cause("SessionHeld", mode, "spec.mode");
    if ending { error.retry_after(1) } else { error }
}

/// 409 for a caller whose take-over was itself taken over.
pub fn replaced(workspace: &str) -> ApiError {
    ApiError::conflict(
        GROUP,
        "workspaces",
        workspace,
        "another user asked for a take-over after you and gets the stream",
    )
    .cause(
        "SessionHeld",
        "replaced by a later take-over",
        "spec.successor",
    )
}

#[cfg(test)]
mod tests {
    use super::{super::record::tests::wish, *};

    fn session(replica: &str) -> Object {
        record::object(&wish("jane", "a1"), replica, "u1", "2026-01-02T03:04:05Z")
    }

    fn successor() -> SessionSuccessor {
        SessionSuccessor {
            user: "joe".into(),
            replica: "r2".into(),
            claim: "a2".into(),
            ..SessionSuccessor::default()
        }
    }

    fn deleted(mut object: Object) -> Object {
        object.set_meta("deletionTimestamp", "2026-01-02T03:05:00Z");
        object
    }

    #[test]
    fn every_state_is_told_apart() {
        let alive = |_: &str| Fate::Alive;
        let dead = |_: &str| Fate::Dead;
        let object = session("r1");
        let spec = record::read(&object).spec;
        let contested = record::with_successor(&object, &successor());
        assert_eq!(judge(None, alive, "a9"), Claim::Free);
        assert_eq!(judge(Some(&object), alive, "a9"), Claim::Held(spec.clone()));
        assert_eq!(judge(Some(&object), dead, "a9"), Claim::Abandoned(None));
        assert_eq!(
            judge(Some(&object), |_| Fate::Predecessor, "a9"),
            Claim::Abandoned(None)
        );
        assert_eq!(judge(Some(&object), alive, "a1"), Claim::HandedOver);
        assert_eq!(
            judge(Some(&deleted(object)), alive, "a9"),
            Claim::Ending(spec)
        );
        assert!(matches!(
            judge(Some(&contested), alive, "a9"),
            Claim::Contested(_, s) if s.claim == "a2"
        ));
        let handed = record::handed_over(&contested, &successor());
        assert_eq!(judge(Some(&handed), alive, "a2"), Claim::HandedOver);
        assert!(matches!(judge(Some(&handed), alive, "a9"), Claim::Held(s) if s.user == "joe"));
    }

    #[test]
    fn a_holder_reads_its_fate_in_its_object() {
        let object = session("r1");
        let contested = record::with_successor(&object, &successor());
        let handed = record::handed_over(&contested, &successor());
        for (stored, expected) in [
            (Some(object.clone()), Notice::Keep),
            (Some(contested), Notice::TakenOver),
            (Some(deleted(object)), Notice::Ended),
            (Some(handed), Notice::Lost),
            (None, Notice::Lost),
        ] {
            assert_eq!(notice(stored.as_ref(), "u1", "a1"), expected);
        }
        assert_eq!(notice(Some(&session("r1")), "u2", "a1"), Notice::Lost);
    }

    #[test]
    fn the_refusal_says_who_since_when_and_what_to_do() {
        let error = held(&record::read(&session("r1")).spec, false);
        assert_eq!(error.reason.code(), 409);
        for word in [
            "jane",
            "2026-01-02T03:04:05Z",
            "takeover=true",
            "workspacesession demo.console",
        ] {
            assert!(error.message.contains(word), "{word}: {}", error.message);
        }
        let causes = error.details.unwrap().causes;
        assert!(causes.iter().all(|c| c.reason == "SessionHeld"));
        assert_eq!(causes[0].message, "jane");
    }
}
