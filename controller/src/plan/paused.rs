//! A machine that is started paused.
//!
//! No field says so that could stay as it is: `startStrategy` in the template would pause every later
//! start too. KubeVirt has an action for it, which takes a machine that is `Halted` and makes it
//! `Always`. So the machine is kept halted, KubeVirt is asked until the machine is no longer, and
//! then the wish has come true.

use apiserver_generic::Object;

use super::input::{RunState, Workspace};

/// How far a paused start is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PausedStart {
    /// None is wished.
    None,
    /// The machine is made first.
    Make,
    /// KubeVirt is to be asked.
    Ask,
    /// KubeVirt has started it.
    Over,
}

/// From the workspace's own machine.
pub(crate) fn paused_start(workspace: &Workspace, machine: Option<&Object>) -> PausedStart {
    if !workspace.start_paused {
        return PausedStart::None;
    }
    match machine.filter(|machine| machine.deletion_timestamp().is_none()) {
        None => PausedStart::Make,
        Some(machine) if strategy_of(machine) == Some(RunState::Stopped.strategy()) => {
            PausedStart::Ask
        }
        Some(_) => PausedStart::Over,
    }
}

fn strategy_of(machine: &Object) -> Option<&str> {
    machine.str_at("/spec/runStrategy")
}

/// `spec.runStrategy` of the machine.
pub(super) fn strategy(workspace: &Workspace) -> &'static str {
    match workspace.start_paused {
        true => RunState::Stopped.strategy(),
        false => workspace.run.strategy(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_machine_is_halted_until_kubevirt_has_started_it() {
        let workspace = |wish: bool| {
            let object = json!({"metadata": {"name": "w", "namespace": "n", "uid": "u"},
                "spec": {"type": "vm"}});
            let object = Object::from_value(object).unwrap();
            Workspace {
                start_paused: wish,
                ..Workspace::read(&object).unwrap()
            }
        };
        let machine = |strategy: &str| {
            Object::from_value(json!({"spec": {"runStrategy": strategy}})).unwrap()
        };
        let (halted, always) = (machine("Halted"), machine("Always"));
        let mut going = halted.clone();
        going.set_meta("deletionTimestamp", "2026-01-01T00:00:00Z");
        for (wish, machine, expected, strategy_wanted) in [
            (false, Some(&halted), PausedStart::None, "Always"),
            (true, None, PausedStart::Make, "Halted"),
            (true, Some(&going), PausedStart::Make, "Halted"),
            (true, Some(&halted), PausedStart::Ask, "Halted"),
            (true, Some(&always), PausedStart::Over, "Halted"),
        ] {
            let workspace = workspace(wish);
            assert_eq!(paused_start(&workspace, machine), expected);
            assert_eq!(strategy(&workspace), strategy_wanted);
        }
    }
}
