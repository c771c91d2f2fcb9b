//! What a migration does next: a function over the objects that it is about.

use k8s_openapi::{
    api::core::v1::Pod,
    jiff::{SignedDuration, Timestamp},
};

use super::{Migration, Phase};
use crate::{
    api::{Instance, Phase as InstancePhase},
    guestless::{NODES, Script, pod::node_of},
};

/// How long both launchers are there before the handover, and again after it. A guest without memory would move at once,
/// and nobody would see what KubeVirt shows for seconds.
pub const OVERLAP: SignedDuration = SignedDuration::from_secs(2);

/// What there is.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The instance to move.
    pub instance: Option<Instance>,
    /// The launcher that it is in.
    pub source: Option<Pod>,
    /// The launcher made for this migration.
    pub target: Option<Pod>,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing, until something changes.
    Keep,
    /// Look again after this time.
    Wait(SignedDuration),
    /// Make the target's Pod, on this node.
    Launch(&'static str),
    /// Write on the instance that it is being moved.
    Begin,
    /// The guest is in the target from now on.
    HandOver,
    /// Delete the source's Pod; the migration has succeeded.
    Finish,
    /// Delete the target's Pod; the instance stays where it is.
    Fail(&'static str),
}

/// Decides.
pub fn decide(migration: &Migration, seen: &Seen, now: Timestamp) -> Step {
    if migration.is_final() {
        return Step::Keep;
    }
    let Some(vmi) = &seen.instance else {
        return Step::Fail("the VirtualMachineInstance is not there");
    };
    let mine = vmi
        .migration
        .as_ref()
        .filter(|m| m.migration_uid == migration.uid());
    if vmi.phase.is_final() || vmi.is_deleted() {
        return Step::Fail("the VirtualMachineInstance has ended");
    }
    if let Some(state) = mine {
        return on_the_way(state, seen, now);
    }
    match vmi.migration.as_ref().filter(|m| m.is_under_way()) {
        Some(_) => Step::Fail("another migration of the VirtualMachineInstance is under way"),
        None => before(vmi, seen),
    }
}

fn before(vmi: &Instance, seen: &Seen) -> Step {
    if vmi.phase != InstancePhase::Running {
        return Step::Fail("the VirtualMachineInstance is not running");
    }
    if Script::of(vmi).is_none() {
        return Step::Fail(
            "the VirtualMachineInstance is not migratable: its guest stays on the one node",
        );
    }
    let Some(node) = seen.source.as_ref().and_then(node_of) else {
        return Step::Keep;
    };
    match &seen.target {
        Some(target) if runs(target) => Step::Begin,
        // Again, if it is there and its status was not written.
        _ => Step::Launch(if node == NODES[0] { NODES[1] } else { NODES[0] }),
    }
}

fn runs(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    phase == Some("Running")
}

fn on_the_way(state: &crate::api::MigrationState, seen: &Seen, now: Timestamp) -> Step {
    let since = |time: &Option<String>| {
        let time = time.as_ref().and_then(|t| t.parse::<Timestamp>().ok());
        time.map_or(OVERLAP, |time| now.duration_since(time))
    };
    if state.failed {
        return Step::Fail("the migration was given up");
    }
    if seen.target.is_none() {
        return Step::Fail("the target's Pod is gone");
    }
    let (passed, due) = if state.completed {
        (since(&state.end_timestamp), Step::Finish)
    } else {
        (since(&state.start_timestamp), Step::HandOver)
    };
    if passed >= OVERLAP {
        due
    } else {
        Step::Wait(OVERLAP - passed)
    }
}

/// The phase that a step leads to, if it is another one.
pub fn phase_after(step: &Step) -> Option<Phase> {
    match step {
        Step::Keep | Step::Wait(_) | Step::HandOver => None,
        Step::Launch(_) => Some(Phase::Scheduling),
        Step::Begin => Some(Phase::Running),
        Step::Finish => Some(Phase::Succeeded),
        Step::Fail(_) => Some(Phase::Failed),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        guestless::{self, pod::Binding},
        testing::instance,
    };

    fn now() -> Timestamp {
        "2026-11-30T12:00:10Z".parse().unwrap()
    }

    fn migration(phase: Phase) -> Migration {
        let mut migration = Migration {
            vmi_name: "demo".into(),
            phase,
            ..Migration::default()
        };
        migration.meta.uid = Some("m".into());
        migration
    }

    fn vmi(status: Value) -> Instance {
        let mut vmi = instance(json!({"domain": {}}), status);
        vmi.meta.annotations = Some([(guestless::ANNOTATION.to_owned(), "echo".to_owned())].into());
        vmi
    }

    fn seen(status: Value, with_target: bool) -> Seen {
        let vmi = vmi(status);
        let pod = |node| guestless::pod::pod(&vmi, Script::Echo, "p", node, Binding::Unbound);
        let mut target = pod(NODES[1]);
        target.status.get_or_insert_default().phase = Some("Running".into());
        Seen {
            source: Some(pod(NODES[0])),
            target: with_target.then_some(target),
            instance: Some(vmi),
        }
    }

    fn under_way(rest: Value) -> Value {
        let mut state = json!({"migrationUid": "m", "startTimestamp": "2026-11-30T12:00:00Z"});
        for (key, value) in rest.as_object().unwrap() {
            state[key] = value.clone();
        }
        json!({"phase": "Running", "migrationState": state})
    }

    fn decided(status: Value, with_target: bool) -> Step {
        decide(&migration(Phase::Unset), &seen(status, with_target), now())
    }

    #[test]
    fn a_migration_goes_through_its_steps() {
        let running = || json!({"phase": "Running"});
        let cases = [
            (running(), false, Step::Launch(NODES[1])),
            (running(), true, Step::Begin),
            (
                under_way(json!({"startTimestamp": "2026-11-30T12:00:09Z"})),
                true,
                Step::Wait(SignedDuration::from_secs(1)),
            ),
            (under_way(json!({})), true, Step::HandOver),
            (
                under_way(json!({"completed": true, "endTimestamp": "2026-11-30T12:00:09Z"})),
                true,
                Step::Wait(SignedDuration::from_secs(1)),
            ),
            (
                under_way(json!({"completed": true, "endTimestamp": "2026-11-30T12:00:05Z"})),
                true,
                Step::Finish,
            ),
        ];
        for (status, with_target, want) in cases {
            assert_eq!(decided(status.clone(), with_target), want, "{status}");
        }
        assert_eq!(
            decide(&migration(Phase::Succeeded), &Seen::default(), now()),
            Step::Keep
        );
    }

    #[test]
    fn what_cannot_be_moved_fails_in_words() {
        let other = json!({"phase": "Running", "migrationState": {"migrationUid": "x"}});
        let cases = [
            (json!({"phase": "Scheduled"}), false, "not running"),
            (json!({"phase": "Failed"}), false, "has ended"),
            (other, false, "another migration"),
            (under_way(json!({})), false, "the target's Pod is gone"),
        ];
        for (status, with_target, word) in cases {
            match decided(status.clone(), with_target) {
                Step::Fail(why) => assert!(why.contains(word), "{status}: {why}"),
                step => panic!("{status}: {step:?}"),
            }
        }
        assert!(matches!(
            decide(&migration(Phase::Unset), &Seen::default(), now()),
            Step::Fail(_)
        ));
        let real = Seen {
            instance: Some(instance(json!({"domain": {}}), json!({"phase": "Running"}))),
            ..Seen::default()
        };
        assert!(
            matches!(decide(&migration(Phase::Unset), &real, now()), Step::Fail(why) if why.contains("not migratable"))
        );
    }

    #[test]
    fn an_earlier_migration_that_is_over_is_in_nobodys_way() {
        let earlier =
            json!({"phase": "Running", "migrationState": {"migrationUid": "x", "completed": true}});
        assert_eq!(decided(earlier, false), Step::Launch(NODES[1]));
    }
}
