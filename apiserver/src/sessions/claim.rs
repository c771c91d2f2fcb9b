//! The claim on an exclusive stream as a state machine, decided over the stored object alone.
//!
//! ```text
//!            create                    successor written
//!   Free ─────────────► Held ───────────────────────────► Contested
//!    ▲                   │ ▲ deletionTimestamp               │ the holder's stream has ended
//!    │                   ▼ └───────────┐ confirmed           ▼
//!    ├──────────────── Ending          └────────────────── Offered (HandedOver to the successor)
//!    │   stream ended, object removed                        │ nobody comes
//!    └───────────────────────────────────────────────────────┘
//! ```
//! `Abandoned` is any of them whose replica is dead: another replica removes it, or hands it over.
//! Only in `Held`, `Contested` and `Ending` may there be a stream: who was offered a session confirms
//! by compare-and-swap before they dial, so that an offer can be withdrawn by anybody.

use apiserver_generic::Object;
use apiservice::v1alpha1::{SessionSuccessor, WorkspaceSessionSpec};

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
    /// It was handed to somebody who has not come for it yet.
    Offered(WorkspaceSessionSpec),
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
        _ if spec.offered => Claim::Offered(spec),
        Some(successor) => Claim::Contested(spec, successor),
        None => Claim::Held(spec),
    }
}

/// What the holder of a session is told by a change of its object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Notice {
    /// Go on.
    #[default]
    Keep,
    /// Somebody takes it over.
    TakenOver,
    /// Somebody deleted the session.
    Ended,
    /// The object is gone or somebody else's, or it cannot be proved any more that it is not.
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
    }

    #[test]
    fn an_offer_is_no_hold_until_it_is_confirmed() {
        let alive = |_: &str| Fate::Alive;
        let contested = record::with_successor(&session("r1"), &successor());
        let offered = record::handed_over(&contested, &successor());
        assert_eq!(judge(Some(&offered), alive, "a2"), Claim::HandedOver);
        assert!(matches!(judge(Some(&offered), alive, "a9"), Claim::Offered(s) if s.user == "joe"));
        let gone = |replica: &str| {
            if replica == "r2" {
                Fate::Dead
            } else {
                Fate::Alive
            }
        };
        assert_eq!(judge(Some(&offered), gone, "a9"), Claim::Abandoned(None));
        let taken = record::taken(&offered, &wish("joe", "a2"), "r2", "now");
        assert!(matches!(judge(Some(&taken), alive, "a9"), Claim::Held(s) if s.user == "joe"));
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
}
