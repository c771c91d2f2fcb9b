//! Whether a machine's instance should be created, deleted, or left alone.
//!
//! Mirrors `syncRunStrategy` in KubeVirt's `pkg/virt-controller/watch/vm/vm.go`.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::api::{Instance, Machine, Phase, RunStrategy, StartFailure, StateChange};

/// The longest wait between two attempts to start.
const MAX_BACKOFF_SECONDS: i64 = 300;

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Everything is as it should be.
    Keep,
    /// Create the instance.
    Create {
        /// With its vCPUs stopped.
        paused: bool,
    },
    /// Set `runStrategy` to `Always`: a halted machine was asked to start, and the request stays until it has.
    Unhalt,
    /// Delete the instance.
    Delete,
    /// Delete the failed instance and leave a request to start again.
    DeleteAndRestart,
    /// Start, but not before this time: the last attempts failed.
    Wait(Timestamp),
}

/// Decides from the machine, its instance (if there is one) and the time.
pub fn decide(vm: &Machine, vmi: Option<&Instance>, now: Timestamp) -> Action {
    // Neither or both of `running` and `runStrategy`: KubeVirt refuses such a machine at admission.
    let Some(strategy) = vm.strategy else {
        return Action::Keep;
    };
    match vmi {
        Some(vmi) if vmi.is_deleted() => Action::Keep,
        Some(vmi) => with_instance(vm, vmi, strategy),
        None => without_instance(vm, strategy, now),
    }
}

fn with_instance(vm: &Machine, vmi: &Instance, strategy: RunStrategy) -> Action {
    let stop_requested = vm.wants_stop_of(vmi.uid());
    match strategy {
        RunStrategy::Halted | RunStrategy::WaitAsReceiver => Action::Delete,
        RunStrategy::Always if stop_requested || vmi.phase.is_final() => Action::Delete,
        RunStrategy::RerunOnFailure if stop_requested => Action::Delete,
        RunStrategy::RerunOnFailure if vmi.phase == Phase::Failed => Action::DeleteAndRestart,
        RunStrategy::RerunOnFailure if vmi.phase == Phase::Succeeded => Action::Delete,
        RunStrategy::Manual if stop_requested => Action::Delete,
        _ => Action::Keep,
    }
}

fn without_instance(vm: &Machine, strategy: RunStrategy, now: Timestamp) -> Action {
    let paused = vm.wants_paused_start();
    // A strategy that starts once has done so if it is the one that was acted on last.
    let is_new = vm.status.run_strategy != Some(strategy);
    let start = match strategy {
        RunStrategy::Always => true,
        RunStrategy::Halted if vm.wants_start() => return Action::Unhalt,
        RunStrategy::Halted | RunStrategy::WaitAsReceiver => false,
        RunStrategy::Manual => vm.wants_start(),
        RunStrategy::RerunOnFailure => vm.wants_start() || is_new,
        RunStrategy::Once => is_new,
    };
    match (start, retry_after(vm)) {
        (false, _) => Action::Keep,
        (true, Some(time)) if time > now => Action::Wait(time),
        (true, _) => Action::Create { paused },
    }
}

fn retry_after(vm: &Machine) -> Option<Timestamp> {
    let failure = vm.status.start_failure.as_ref()?;
    failure.retry_after_timestamp.as_ref()?.parse().ok()
}

/// The requests that are still to be acted on: a stop is done when its instance is gone, a start when there
/// is one that lives.
pub fn pending_requests(vm: &Machine, vmi: Option<&Instance>) -> Vec<StateChange> {
    let mut requests = vm.status.state_change_requests.as_slice();
    while let [first, rest @ ..] = requests {
        let done = match (first.action.as_str(), vmi) {
            ("Stop", Some(vmi)) => first.uid.as_deref() != Some(vmi.uid()),
            ("Stop", None) => true,
            ("Start", Some(vmi)) => !vmi.is_deleted() && !vmi.phase.is_final(),
            ("Start", None) => false,
            _ => true,
        };
        if !done {
            break;
        }
        requests = rest;
    }
    requests.to_vec()
}

/// Counts instances that failed before they ran; each is waited for longer, `n² × 10 s` up to five minutes.
pub fn start_failure(vm: &Machine, vmi: Option<&Instance>, now: Timestamp) -> Option<StartFailure> {
    let old = vm.status.start_failure.clone();
    let Some(vmi) = vmi else { return old };
    if vmi.ever_ran() {
        return None;
    }
    let counted = matches!(&old, Some(f) if f.last_failed_vmi_uid == vmi.uid());
    if vmi.phase != Phase::Failed || counted {
        return old;
    }
    let count = old
        .map_or(0, |f| f.consecutive_fail_count)
        .saturating_add(1);
    let seconds = (i64::from(count).saturating_pow(2) * 10).min(MAX_BACKOFF_SECONDS);
    Some(StartFailure {
        consecutive_fail_count: count,
        last_failed_vmi_uid: vmi.uid().to_owned(),
        retry_after_timestamp: Some((now + SignedDuration::from_secs(seconds)).to_string()),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{instance, machine};

    fn now() -> Timestamp {
        "2026-11-30T12:00:00Z".parse().unwrap()
    }

    fn vm(strategy: &str, status: Value) -> Machine {
        machine(
            json!({"runStrategy": strategy, "template": {"spec": {}}}),
            status,
        )
    }

    fn vmi(phase: &str) -> Instance {
        instance(json!({"domain": {}}), json!({ "phase": phase }))
    }

    #[test]
    fn every_strategy_has_its_way_with_an_absent_instance() {
        let start = json!([{"action": "Start"}]);
        let paused = json!([{"action": "Start", "data": {"paused": "true"}}]);
        let cases = [
            ("Always", json!({}), Action::Create { paused: false }),
            ("Halted", json!({}), Action::Keep),
            (
                "Halted",
                json!({"stateChangeRequests": paused}),
                Action::Unhalt,
            ),
            ("Manual", json!({}), Action::Keep),
            (
                "Manual",
                json!({"stateChangeRequests": start}),
                Action::Create { paused: false },
            ),
            (
                "Manual",
                json!({"stateChangeRequests": paused}),
                Action::Create { paused: true },
            ),
            ("Once", json!({}), Action::Create { paused: false }),
            ("Once", json!({"runStrategy": "Once"}), Action::Keep),
            (
                "RerunOnFailure",
                json!({"runStrategy": "Halted"}),
                Action::Create { paused: false },
            ),
            (
                "RerunOnFailure",
                json!({"runStrategy": "RerunOnFailure"}),
                Action::Keep,
            ),
        ];
        for (strategy, status, want) in cases {
            assert_eq!(
                decide(&vm(strategy, status.clone()), None, now()),
                want,
                "{strategy} {status}"
            );
        }
    }

    #[test]
    fn every_strategy_has_its_way_with_an_instance() {
        let cases = [
            ("Always", "Running", Action::Keep),
            ("Always", "Succeeded", Action::Delete),
            ("Always", "Failed", Action::Delete),
            ("Halted", "Running", Action::Delete),
            ("Manual", "Succeeded", Action::Keep),
            ("Once", "Failed", Action::Keep),
            ("RerunOnFailure", "Running", Action::Keep),
            ("RerunOnFailure", "Failed", Action::DeleteAndRestart),
            ("RerunOnFailure", "Succeeded", Action::Delete),
        ];
        for (strategy, phase, want) in cases {
            let action = decide(&vm(strategy, json!({})), Some(&vmi(phase)), now());
            assert_eq!(action, want, "{strategy} {phase}");
        }
    }

    #[test]
    fn a_stop_is_for_one_instance_only() {
        let stop = |uid: &str| {
            vm(
                "Manual",
                json!({"stateChangeRequests": [{"action": "Stop", "uid": uid}]}),
            )
        };
        let vmi = vmi("Running");
        assert_eq!(decide(&stop(vmi.uid()), Some(&vmi), now()), Action::Delete);
        assert_eq!(decide(&stop("another"), Some(&vmi), now()), Action::Keep);
        assert_eq!(pending_requests(&stop("another"), Some(&vmi)), []);
        assert_eq!(pending_requests(&stop(vmi.uid()), Some(&vmi)).len(), 1);
    }

    #[test]
    fn a_restart_keeps_its_start_until_there_is_an_instance_again() {
        let old = vmi("Running");
        let vm = vm(
            "Manual",
            json!({"stateChangeRequests": [
            {"action": "Stop", "uid": old.uid()}, {"action": "Start"}]}),
        );
        assert_eq!(pending_requests(&vm, Some(&old)).len(), 2);
        let rest = pending_requests(&vm, None);
        assert_eq!(rest.len(), 1);
        assert_eq!(rest[0].action, "Start");
    }

    #[test]
    fn failures_before_running_are_waited_for_longer_each_time() {
        let failed = vmi("Failed");
        let first = start_failure(&vm("Always", json!({})), Some(&failed), now()).unwrap();
        assert_eq!(
            first.retry_after_timestamp.as_deref(),
            Some("2026-11-30T12:00:10Z")
        );
        let third = vm(
            "Always",
            json!({"startFailure": {"consecutiveFailCount": 2, "lastFailedVMIUID": "x"}}),
        );
        let third = start_failure(&third, Some(&failed), now()).unwrap();
        assert_eq!(third.consecutive_fail_count, 3);
        assert_eq!(
            third.retry_after_timestamp.as_deref(),
            Some("2026-11-30T12:01:30Z")
        );
        let waiting = vm("Always", json!({ "startFailure": third }));
        assert_eq!(
            start_failure(&waiting, Some(&failed), now()),
            Some(third),
            "counted once"
        );
        assert!(matches!(decide(&waiting, None, now()), Action::Wait(_)));
    }

    #[test]
    fn an_instance_that_ran_clears_the_back_off() {
        let ran = instance(
            json!({"domain": {}}),
            json!({"phase": "Failed", "phaseTransitionTimestamps": [
            {"phase": "Running", "phaseTransitionTimestamp": "2026-11-30T11:00:00Z"}]}),
        );
        let vm = vm(
            "Always",
            json!({"startFailure": {"consecutiveFailCount": 2}}),
        );
        assert_eq!(start_failure(&vm, Some(&ran), now()), None);
    }
}
