//! What is said about a machine: `status` of the VirtualMachine.
//!
//! Mirrors `updateStatus` in KubeVirt's `pkg/virt-controller/watch/vm/vm.go`.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::decide::{pending_requests, start_failure};
use crate::api::{Condition, Instance, Machine, Phase, RunStrategy, VmStatus, set_condition};

/// Conditions of the machine itself; all others are copies of its instance's.
const OWN: [&str; 2] = ["Failure", "RestartRequired"];

/// What the reconciler found out beside the two objects.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Why no instance could be made.
    pub failure: Option<String>,
    /// The template has changed since the instance was made.
    pub restart_required: bool,
}

/// The status that the machine should have.
pub fn status_of(
    vm: &Machine,
    vmi: Option<&Instance>,
    found: &Findings,
    now: Timestamp,
) -> VmStatus {
    let ready = vmi
        .and_then(|i| i.condition("Ready"))
        .is_some_and(Condition::is_true);
    let failure = start_failure(vm, vmi, now);
    let generation = vm.meta.generation.unwrap_or_default();
    let mut status = VmStatus {
        created: vmi.is_some(),
        ready,
        printable_status: String::new(),
        conditions: conditions(vm, vmi, found, &now.to_string()),
        state_change_requests: pending_requests(vm, vmi),
        start_failure: failure,
        run_strategy: vm.strategy,
        observed_generation: generation,
        desired_generation: generation,
    };
    status.printable_status = printable(vm, vmi, &status).to_owned();
    status
}

/// The status as a merge patch; what is not there any more becomes null.
pub fn patch(status: &VmStatus) -> Result<Value, serde_json::Error> {
    let mut value = serde_json::to_value(status)?;
    for (key, empty) in [
        ("stateChangeRequests", json!([])),
        ("runStrategy", json!(null)),
    ] {
        if value[key] == empty {
            value[key] = Value::Null;
        }
    }
    Ok(json!({ "status": value }))
}

fn conditions(vm: &Machine, vmi: Option<&Instance>, found: &Findings, now: &str) -> Vec<Condition> {
    let mut list = vm.status.conditions.clone();
    let copied: Vec<Condition> = vmi.map(|i| i.conditions.clone()).unwrap_or_default();
    list.retain(|c| c.kind == "Ready" || copied.iter().any(|k| k.kind == c.kind));
    for condition in copied {
        set_condition(&mut list, condition, now);
    }
    if vmi.is_none() {
        set_condition(
            &mut list,
            Condition::new("Ready", false, "VMINotExists", "VMI does not exist"),
            now,
        );
    }
    let own = [
        found
            .failure
            .as_ref()
            .map(|why| Condition::new("Failure", true, "FailedCreate", why)),
        found.restart_required.then(|| {
            let text = "a non-live-updatable field was changed in the template spec";
            Condition::new("RestartRequired", true, "RestartRequired", text)
        }),
    ];
    for condition in own.into_iter().flatten() {
        // Kept from before, so that its time does not move.
        if let Some(old) = vm
            .status
            .conditions
            .iter()
            .find(|c| c.kind == condition.kind)
        {
            list.push(old.clone());
        }
        set_condition(&mut list, condition, now);
    }
    list.sort_by_key(|c| (OWN.contains(&c.kind.as_str()), c.kind != "Ready"));
    list
}

/// The first word that fits, in KubeVirt's order.
fn printable(vm: &Machine, vmi: Option<&Instance>, status: &VmStatus) -> &'static str {
    if vm.is_deleted() {
        return "Terminating";
    }
    let halted = matches!(
        vm.strategy,
        Some(RunStrategy::Halted | RunStrategy::WaitAsReceiver) | None
    );
    let Some(vmi) = vmi else {
        return absent(halted, status, vm);
    };
    let paused = vmi.condition("Paused").is_some_and(Condition::is_true);
    match vmi.phase {
        _ if vmi.phase.is_final() => finished(halted, status),
        _ if vmi.is_deleted() || halted || vm.wants_stop_of(vmi.uid()) => "Stopping",
        Phase::Running if is_migrating(vmi) => "Migrating",
        Phase::Running if paused => "Paused",
        Phase::Running => "Running",
        _ => trouble(vmi).unwrap_or("Starting"),
    }
}

fn is_migrating(vmi: &Instance) -> bool {
    let migration = vmi.migration.as_ref();
    migration.is_some_and(|m| m.start_timestamp.is_some() && m.is_under_way())
}

fn absent(halted: bool, status: &VmStatus, vm: &Machine) -> &'static str {
    let starts = vm.wants_start() || vm.strategy == Some(RunStrategy::Always);
    match (halted, &status.start_failure) {
        (false, Some(_)) if starts => "CrashLoopBackOff",
        (false, None) if starts && vm.status.created => "Starting",
        _ => "Stopped",
    }
}

fn finished(halted: bool, status: &VmStatus) -> &'static str {
    if !halted && status.start_failure.is_some() {
        "CrashLoopBackOff"
    } else {
        "Stopped"
    }
}

/// Why an instance does not get up.
fn trouble(vmi: &Instance) -> Option<&'static str> {
    let is_false = |kind: &str| vmi.condition(kind).filter(|c| c.status == "False");
    if let Some(synchronized) = is_false("Synchronized") {
        match synchronized.reason.as_str() {
            "ErrImagePull" => return Some("ErrImagePull"),
            "ImagePullBackOff" => return Some("ImagePullBackOff"),
            "FailedPvcNotFound" => return Some("ErrorPvcNotFound"),
            _ => {}
        }
    }
    is_false("PodScheduled")
        .filter(|c| c.reason == "Unschedulable")
        .map(|_| "ErrorUnschedulable")
}

#[cfg(test)]
mod tests {
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

    fn vmi(status: Value) -> Instance {
        instance(json!({"domain": {}}), status)
    }

    #[test]
    fn the_printable_status_is_kubevirts_word() {
        let condition = |kind: &str, status: &str, reason: &str| json!({"type": kind, "status": status, "reason": reason});
        let cases = [
            ("Halted", None, "Stopped"),
            ("Always", Some(json!({"phase": "Pending"})), "Starting"),
            ("Always", Some(json!({"phase": "Running"})), "Running"),
            ("Halted", Some(json!({"phase": "Running"})), "Stopping"),
            (
                "Always",
                Some(json!({"phase": "Running", "conditions": [condition("Paused", "True", "")]})),
                "Paused",
            ),
            (
                "Always",
                Some(json!({"phase": "Failed"})),
                "CrashLoopBackOff",
            ),
            ("Once", Some(json!({"phase": "Succeeded"})), "Stopped"),
            (
                "Always",
                Some(
                    json!({"phase": "Scheduling", "conditions": [condition("Synchronized", "False", "ErrImagePull")]}),
                ),
                "ErrImagePull",
            ),
            (
                "Always",
                Some(
                    json!({"phase": "Scheduling", "conditions": [condition("PodScheduled", "False", "Unschedulable")]}),
                ),
                "ErrorUnschedulable",
            ),
        ];
        for (strategy, status, want) in cases {
            let instance = status.clone().map(vmi);
            let got = status_of(
                &vm(strategy, json!({})),
                instance.as_ref(),
                &Findings::default(),
                now(),
            );
            assert_eq!(got.printable_status, want, "{strategy} {status:?}");
        }
    }

    #[test]
    fn without_an_instance_the_machine_is_not_ready_and_says_why() {
        let status = status_of(&vm("Halted", json!({})), None, &Findings::default(), now());
        assert!(!status.created && !status.ready);
        assert_eq!(status.conditions[0].reason, "VMINotExists");
    }

    #[test]
    fn the_instances_conditions_are_copied_and_go_with_it() {
        let running = vmi(json!({"phase": "Running", "conditions": [
            {"type": "Ready", "status": "True"}, {"type": "AgentConnected", "status": "True"}]}));
        let first = status_of(
            &vm("Always", json!({})),
            Some(&running),
            &Findings::default(),
            now(),
        );
        assert!(first.ready && first.created);
        let kinds: Vec<&str> = first.conditions.iter().map(|c| c.kind.as_str()).collect();
        assert_eq!(kinds, ["Ready", "AgentConnected"]);
        let later = vm("Halted", serde_json::to_value(&first).unwrap());
        let later = status_of(&later, None, &Findings::default(), now());
        assert_eq!(later.conditions.len(), 1);
        assert_eq!(later.conditions[0].status, "False");
    }

    #[test]
    fn a_failure_stays_as_long_as_it_is_found() {
        let found = Findings {
            failure: Some("no memory".into()),
            restart_required: false,
        };
        let first = status_of(&vm("Always", json!({})), None, &found, now());
        let failure = first
            .conditions
            .iter()
            .find(|c| c.kind == "Failure")
            .unwrap();
        assert_eq!(
            (failure.reason.as_str(), failure.message.as_str()),
            ("FailedCreate", "no memory")
        );
        let vm = vm("Always", serde_json::to_value(&first).unwrap());
        let next = "2026-11-30T13:00:00Z".parse().unwrap();
        assert_eq!(
            status_of(&vm, None, &found, next),
            first,
            "nothing moves while nothing changes"
        );
        let healed = status_of(&vm, None, &Findings::default(), next);
        assert!(healed.conditions.iter().all(|c| c.kind != "Failure"));
    }

    #[test]
    fn requests_that_are_done_are_taken_away_by_the_patch() {
        let patch = patch(&VmStatus::default()).unwrap();
        assert_eq!(patch["status"]["stateChangeRequests"], Value::Null);
        assert_eq!(patch["status"]["startFailure"], Value::Null);
    }
}
