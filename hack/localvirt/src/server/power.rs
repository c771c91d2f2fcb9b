//! `start`, `stop` and `restart`: which patch of the VirtualMachine each is.
//!
//! Mirrors `pkg/virt-api/rest/subresource.go` and `lifecycle.go`. [`plan`] decides, [`perform`] does.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    cluster::{Cluster, Place},
    reply::Failure,
    route::{Named, PowerVerb},
};
use crate::api::{Instance, Machine, Phase, RunStrategy, StateChange};

/// The body of such a request; each verb reads its own fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Options {
    /// `["All"]` changes nothing.
    pub dry_run: Vec<String>,
    /// Start with the processors stopped.
    pub paused: bool,
    /// Of `stop`.
    pub grace_period: Option<i64>,
    /// Of `restart`.
    pub grace_period_seconds: Option<i64>,
}

/// One JSON patch and where it goes.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Where.
    pub place: Place,
    /// What.
    pub operations: Value,
}

impl Step {
    fn new(place: Place, operations: Value) -> Self {
        Self { place, operations }
    }
}

/// Reads the machine and its instance, decides, and patches.
///
/// # Errors
/// What [`plan`] refuses, or the cluster.
pub async fn perform(
    cluster: &dyn Cluster,
    object: &Named,
    verb: PowerVerb,
    options: &Options,
) -> Result<(), Failure> {
    let vm = cluster.machine(object).await?;
    let vmi = match cluster.instance(object).await {
        Ok(vmi) => Some(vmi),
        Err(Failure::NotFound { .. }) => None,
        Err(failure) => return Err(failure),
    };
    let steps = plan(verb, &vm, vmi.as_ref(), options)?;
    if options.dry_run.iter().any(|d| d == "All") {
        return Ok(());
    }
    for step in steps {
        cluster.patch(object, step.place, step.operations).await?;
    }
    Ok(())
}

/// The body of `migrate`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MigrateOptions {
    /// `["All"]` changes nothing.
    pub dry_run: Vec<String>,
    /// Further labels of the node.
    pub added_node_selector: Value,
}

/// Asks for a migration of the machine's instance.
///
/// # Errors
/// When it does not run, or the cluster refuses.
pub async fn migrate(
    cluster: &dyn Cluster,
    object: &Named,
    options: &MigrateOptions,
) -> Result<(), Failure> {
    let vm = cluster.machine(object).await?;
    let vmi = cluster.instance(object).await?;
    if vmi.phase != Phase::Running {
        return Err(Failure::machine_conflict(vm.name(), "VM is not running"));
    }
    if options.dry_run.iter().any(|d| d == "All") {
        return Ok(());
    }
    cluster.migrate(object, &options.added_node_selector).await
}

/// The patches that the verb is.
///
/// # Errors
/// When the machine's state or strategy forbids it.
pub fn plan(
    verb: PowerVerb,
    vm: &Machine,
    vmi: Option<&Instance>,
    options: &Options,
) -> Result<Vec<Step>, Failure> {
    let strategy = vm
        .strategy
        .ok_or_else(|| Failure::Internal("RunStrategy must be specified".into()))?;
    match verb {
        PowerVerb::Start => start(vm, vmi, strategy, options),
        PowerVerb::Stop => stop(vm, vmi, strategy, options),
        PowerVerb::Restart => restart(vm, vmi, strategy, options),
    }
}

fn start(
    vm: &Machine,
    vmi: Option<&Instance>,
    strategy: RunStrategy,
    options: &Options,
) -> Result<Vec<Step>, Failure> {
    let conflict = |text: String| Err(Failure::machine_conflict(vm.name(), text));
    if vmi.is_some_and(|i| !i.phase.is_final() && i.phase != Phase::Unset) {
        return conflict("VM is already running".into());
    }
    let request = StateChange {
        action: "Start".into(),
        uid: None,
        data: options.paused.then(|| json!({ "paused": "true" })),
    };
    match (strategy, vmi.map(|i| (i.phase, i.uid()))) {
        (RunStrategy::Halted, _) if options.paused => requests(vm, vec![request]),
        (RunStrategy::Halted, _) => Ok(vec![switch(vm, RunStrategy::Always)]),
        (RunStrategy::RerunOnFailure, Some((Phase::Failed, _))) => {
            conflict("RerunOnFailure does not support starting VM from failed state".into())
        }
        (RunStrategy::RerunOnFailure, Some((Phase::Succeeded, uid))) => {
            requests(vm, vec![stop_of(uid), request])
        }
        (RunStrategy::Manual, Some((phase, uid))) if phase.is_final() => {
            requests(vm, vec![stop_of(uid), request])
        }
        (RunStrategy::Manual | RunStrategy::RerunOnFailure, _) => requests(vm, vec![request]),
        (other, _) => conflict(format!("{other:?} does not support manual start requests")),
    }
}

fn stop(
    vm: &Machine,
    vmi: Option<&Instance>,
    strategy: RunStrategy,
    options: &Options,
) -> Result<Vec<Step>, Failure> {
    let not_running = || Failure::machine_conflict(vm.name(), "VM is not running");
    let live = vmi.filter(|i| !i.phase.is_final());
    let mut steps = Vec::new();
    if let (Some(seconds), Some(vmi)) = (options.grace_period, live) {
        steps.push(grace(vmi, seconds));
    }
    match (strategy, live) {
        (RunStrategy::Always | RunStrategy::Once, _) => steps.push(switch(vm, RunStrategy::Halted)),
        (RunStrategy::Manual | RunStrategy::RerunOnFailure, Some(vmi)) => {
            steps.extend(requests(vm, vec![stop_of(vmi.uid())])?);
        }
        // A machine that is stopping anyway may be hurried.
        (RunStrategy::Halted | RunStrategy::WaitAsReceiver, Some(_)) if !steps.is_empty() => {}
        _ => return Err(not_running()),
    }
    Ok(steps)
}

fn restart(
    vm: &Machine,
    vmi: Option<&Instance>,
    strategy: RunStrategy,
    options: &Options,
) -> Result<Vec<Step>, Failure> {
    match options.grace_period_seconds {
        Some(seconds) if seconds > 0 => {
            let text = "For force restart, only gracePeriod=0 is supported for now";
            return Err(Failure::BadRequest(text.into()));
        }
        Some(seconds) if seconds < 0 => {
            return Err(Failure::BadRequest(
                "gracePeriod has to be greater or equal to 0".into(),
            ));
        }
        _ => {}
    }
    let conflict = |text: String| Err(Failure::machine_conflict(vm.name(), text));
    if matches!(
        strategy,
        RunStrategy::Halted | RunStrategy::Once | RunStrategy::WaitAsReceiver
    ) {
        return conflict(format!(
            "{strategy:?} does not support manual restart requests"
        ));
    }
    let Some(vmi) = vmi else {
        return conflict("VM is not running: Halted".into());
    };
    let again = StateChange {
        action: "Start".into(),
        uid: None,
        data: None,
    };
    let mut steps = requests(vm, vec![stop_of(vmi.uid()), again])?;
    if options.grace_period_seconds == Some(0) {
        // KubeVirt lets even a forced restart one second.
        steps.insert(0, grace(vmi, 1));
    }
    Ok(steps)
}

fn stop_of(uid: &str) -> StateChange {
    StateChange {
        action: "Stop".into(),
        uid: Some(uid.to_owned()),
        data: None,
    }
}

/// Sets the run strategy, unless somebody else changed it meanwhile.
fn switch(vm: &Machine, to: RunStrategy) -> Step {
    let (path, old, new) = if vm.uses_running {
        let on = to == RunStrategy::Always;
        ("/spec/running", json!(!on), json!(on))
    } else {
        ("/spec/runStrategy", json!(vm.strategy), json!(to))
    };
    let operations = json!([
        { "op": "test", "path": path, "value": old },
        { "op": "replace", "path": path, "value": new },
    ]);
    Step::new(Place::Machine, operations)
}

/// Leaves requests in the status, unless there are some already.
fn requests(vm: &Machine, wanted: Vec<StateChange>) -> Result<Vec<Step>, Failure> {
    if !vm.status.state_change_requests.is_empty() {
        return Err(Failure::Internal(
            "unable to complete request: stop/start already underway".into(),
        ));
    }
    let path = "/status/stateChangeRequests";
    let operations = json!([
        { "op": "test", "path": path, "value": null },
        { "op": "add", "path": path, "value": wanted },
    ]);
    Ok(vec![Step::new(Place::MachineStatus, operations)])
}

fn grace(vmi: &Instance, seconds: i64) -> Step {
    let path = "/spec/terminationGracePeriodSeconds";
    let old = &vmi.spec["terminationGracePeriodSeconds"];
    let operations = json!([
        { "op": "test", "path": path, "value": old },
        { "op": "add", "path": path, "value": seconds },
    ]);
    Step::new(Place::Instance, operations)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{instance, machine};

    fn vm(strategy: &str) -> Machine {
        machine(
            json!({"runStrategy": strategy, "template": {"spec": {}}}),
            json!({}),
        )
    }

    fn vmi(phase: &str) -> Instance {
        instance(json!({"domain": {}}), json!({ "phase": phase }))
    }

    fn planned(verb: PowerVerb, strategy: &str, phase: Option<&str>) -> Result<Vec<Step>, Failure> {
        let vmi = phase.map(vmi);
        plan(verb, &vm(strategy), vmi.as_ref(), &Options::default())
    }

    fn actions(step: &Step) -> Vec<String> {
        let list = step.operations[1]["value"].as_array().unwrap();
        list.iter()
            .map(|r| r["action"].as_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn always_and_halted_are_switched() {
        let start = planned(PowerVerb::Start, "Halted", None).unwrap();
        assert_eq!(start[0].place, Place::Machine);
        assert_eq!(start[0].operations[0]["value"], "Halted");
        assert_eq!(start[0].operations[1]["value"], "Always");
        let stop = planned(PowerVerb::Stop, "Always", Some("Running")).unwrap();
        assert_eq!(stop[0].operations[1]["value"], "Halted");
        let mut old = vm("Halted");
        old.uses_running = true;
        let start = plan(PowerVerb::Start, &old, None, &Options::default()).unwrap();
        assert_eq!(
            start[0].operations[1],
            json!({"op": "replace", "path": "/spec/running", "value": true})
        );
    }

    #[test]
    fn manual_machines_get_requests() {
        let cases = [
            (PowerVerb::Start, "Manual", None, vec!["Start"]),
            (
                PowerVerb::Start,
                "Manual",
                Some("Failed"),
                vec!["Stop", "Start"],
            ),
            (
                PowerVerb::Start,
                "RerunOnFailure",
                Some("Succeeded"),
                vec!["Stop", "Start"],
            ),
            (PowerVerb::Stop, "Manual", Some("Running"), vec!["Stop"]),
            (
                PowerVerb::Restart,
                "Always",
                Some("Running"),
                vec!["Stop", "Start"],
            ),
        ];
        for (verb, strategy, phase, want) in cases {
            let steps = planned(verb, strategy, phase).unwrap();
            assert_eq!(steps[0].place, Place::MachineStatus);
            assert_eq!(actions(&steps[0]), want, "{verb:?} {strategy} {phase:?}");
        }
    }

    #[test]
    fn what_a_state_or_strategy_forbids_is_a_conflict() {
        let cases = [
            (
                PowerVerb::Start,
                "Halted",
                Some("Running"),
                "VM is already running",
            ),
            (
                PowerVerb::Start,
                "Always",
                None,
                "Always does not support manual start requests",
            ),
            (
                PowerVerb::Start,
                "RerunOnFailure",
                Some("Failed"),
                "does not support starting VM from failed state",
            ),
            (PowerVerb::Stop, "Halted", None, "VM is not running"),
            (
                PowerVerb::Stop,
                "Manual",
                Some("Succeeded"),
                "VM is not running",
            ),
            (
                PowerVerb::Restart,
                "Halted",
                Some("Running"),
                "Halted does not support manual restart requests",
            ),
            (
                PowerVerb::Restart,
                "Always",
                None,
                "VM is not running: Halted",
            ),
        ];
        for (verb, strategy, phase, text) in cases {
            let failure = planned(verb, strategy, phase).unwrap_err();
            assert_eq!(failure.code(), 409, "{verb:?} {strategy} {phase:?}");
            assert!(failure.to_string().ends_with(text), "{failure}");
        }
    }

    #[test]
    fn a_second_request_waits_for_the_first() {
        let mut vm = vm("Manual");
        vm.status.state_change_requests = vec![stop_of("x")];
        let failure = plan(PowerVerb::Start, &vm, None, &Options::default()).unwrap_err();
        assert_eq!(failure.code(), 500);
        assert!(failure.to_string().ends_with("stop/start already underway"));
    }

    #[test]
    fn a_forced_restart_is_zero_seconds_and_nothing_else() {
        let with = |seconds| Options {
            grace_period_seconds: Some(seconds),
            ..Options::default()
        };
        let run = |seconds| {
            plan(
                PowerVerb::Restart,
                &vm("Always"),
                Some(&vmi("Running")),
                &with(seconds),
            )
        };
        assert_eq!(run(0).unwrap()[0].operations[1]["value"], 1);
        assert_eq!(run(5).unwrap_err().code(), 400);
        assert_eq!(run(-1).unwrap_err().code(), 400);
    }

    #[test]
    fn a_paused_start_of_a_halted_machine_is_a_request() {
        let options = Options {
            paused: true,
            ..Options::default()
        };
        let steps = plan(PowerVerb::Start, &vm("Halted"), None, &options).unwrap();
        assert_eq!(steps[0].operations[1]["value"][0]["data"]["paused"], "true");
    }
}
