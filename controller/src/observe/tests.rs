use serde_json::json;

use super::*;
use crate::plan::{self, Facts, Settings};

fn object(value: Value) -> Object {
    Object::from_value(value).unwrap()
}

fn workspace(kind: &str, stopped: bool) -> Workspace {
    let annotations = if stopped {
        json!({"kubeworkspaces.io/stopped": ""})
    } else {
        json!({})
    };
    Workspace::read(&object(json!({
        "metadata": {"name": "demo", "namespace": "team", "uid": "ws", "generation": 3,
                     "annotations": annotations},
        "spec": {"type": kind, "template": {"spec": {"containers": [{"name": "main", "image": "r:1"}]}}},
    })))
    .unwrap()
}

fn owned(kind: &str, name: &str, uid: &str, by: (&str, &str, &str), status: Value) -> Object {
    object(json!({
        "kind": kind,
        "metadata": {"name": name, "uid": uid, "ownerReferences": [
            {"kind": by.0, "name": by.1, "uid": by.2, "controller": true}]},
        "status": status,
    }))
}

fn machine(status: Value) -> Object {
    owned(
        "VirtualMachine",
        "demo",
        "vm",
        ("Workspace", "demo", "ws"),
        status,
    )
}

fn instance(status: Value) -> Object {
    owned(
        "VirtualMachineInstance",
        "demo",
        "vmi",
        ("VirtualMachine", "demo", "vm"),
        status,
    )
}

fn launcher(status: Value) -> Object {
    owned(
        "Pod",
        "virt-launcher-demo-x",
        "pod",
        ("VirtualMachineInstance", "demo", "vmi"),
        status,
    )
}

fn stateful_set() -> Object {
    owned(
        "StatefulSet",
        "demo",
        "sts",
        ("Workspace", "demo", "ws"),
        json!({}),
    )
}

fn pod(status: Value) -> Object {
    owned(
        "Pod",
        "demo-0",
        "pod",
        ("StatefulSet", "demo", "sts"),
        status,
    )
}

struct Case<'a> {
    workspace: Workspace,
    kubevirt: bool,
    failure: Option<Failure>,
    workload: Option<&'a Object>,
    instance: Option<&'a Object>,
    pods: Vec<&'a Object>,
}

impl Case<'_> {
    fn of(kind: &str, stopped: bool) -> Self {
        Self {
            workspace: workspace(kind, stopped),
            kubevirt: true,
            failure: None,
            workload: None,
            instance: None,
            pods: Vec::new(),
        }
    }

    fn status(&self) -> WorkspaceStatus {
        let facts = Facts {
            kubevirt: self.kubevirt,
        };
        let plan = plan::plan(&self.workspace, &Settings::default(), None, facts);
        let situation = Situation {
            workspace: &self.workspace,
            plan: &plan,
            kubevirt: self.kubevirt,
            failure: self.failure.as_ref(),
            observed: Observed {
                workload: self.workload,
                instance: self.instance,
                pods: self.pods.clone(),
            },
            image: None,
        };
        status(&situation, &[], "2026-01-01T00:00:00Z".parse().unwrap())
    }

    fn told(&self) -> (String, i32, String) {
        let status = self.status();
        let ready = &status.conditions[0];
        assert_eq!(ready.type_, "Ready");
        assert_eq!(ready.status == "True", status.ready_replicas == 1);
        (
            status.phase.unwrap().as_str().to_owned(),
            status.ready_replicas,
            ready.reason.clone().unwrap(),
        )
    }
}

fn expect(case: &Case<'_>, phase: &str, ready: i32, reason: &str) {
    assert_eq!(case.told(), (phase.to_owned(), ready, reason.to_owned()));
}

fn ready_pod() -> Value {
    json!({
        "phase": "Running", "podIPs": [{"ip": "10.0.0.7"}, {"ip": "fd00::7"}],
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [
            {"name": "side", "state": {"waiting": {}}},
            {"name": "main", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}},
            {"name": "compute", "state": {"running": {}}}],
    })
}

#[test]
fn a_container_workspace_tells_its_state() {
    let set = stateful_set();
    let waiting = |reason: &str| {
        json!({"phase": "Pending", "containerStatuses": [{"name": "main",
            "state": {"waiting": {"reason": reason, "message": "no"}},
            "lastState": {"terminated": {"exitCode": 3, "reason": "Error"}}}]})
    };
    let table = [
        (ready_pod(), "Running", 1, "Ready"),
        (
            json!({"phase": "Running"}),
            "Running",
            0,
            "ContainersNotReady",
        ),
        (
            json!({"phase": "Pending"}),
            "Starting",
            0,
            "ContainerCreating",
        ),
        (waiting("ImagePullBackOff"), "Failed", 0, "ImagePullBackOff"),
        (waiting("CrashLoopBackOff"), "Failed", 0, "CrashLoopBackOff"),
        (
            waiting("ContainerCreating"),
            "Starting",
            0,
            "ContainerCreating",
        ),
        (
            json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "message": "0/1 nodes"}]}),
            "Pending",
            0,
            "Unschedulable",
        ),
        (
            json!({"phase": "Failed", "reason": "Evicted"}),
            "Failed",
            0,
            "Evicted",
        ),
        (json!({"phase": "Unknown"}), "Unknown", 0, "NodeUnreachable"),
    ];
    for (status, phase, ready, reason) in table {
        let pod = pod(status);
        let mut case = Case::of("container", false);
        case.workload = Some(&set);
        case.pods = vec![&pod];
        expect(&case, phase, ready, reason);
        case.workspace = workspace("container", true);
        expect(&case, "Stopping", 0, "Stopping");
    }
    let mut case = Case::of("container", false);
    expect(&case, "Pending", 0, "NotCreated");
    case.workload = Some(&set);
    expect(&case, "Pending", 0, "PodNotCreated");
    case.workspace = workspace("container", true);
    expect(&case, "Stopped", 0, "Stopped");
}

#[test]
fn addresses_and_state_are_those_of_the_right_container() {
    let (set, pod) = (stateful_set(), pod(ready_pod()));
    let mut case = Case::of("container", false);
    case.workload = Some(&set);
    case.pods = vec![&pod];
    let status = case.status();
    assert_eq!(status.address.as_deref(), Some("10.0.0.7"));
    assert_eq!(status.addresses, ["10.0.0.7", "fd00::7"]);
    assert!(status.container_state.contains_key("running"));
    assert_eq!(status.observed_generation, 3);
}

#[test]
fn pods_that_only_bear_the_label_are_not_the_workspaces() {
    let set = stateful_set();
    let foreign = owned(
        "Pod",
        "demo-0",
        "p",
        ("StatefulSet", "demo", "other"),
        ready_pod(),
    );
    let bare = object(json!({"metadata": {"name": "x", "uid": "x"}, "status": ready_pod()}));
    let mut case = Case::of("container", false);
    case.workload = Some(&set);
    case.pods = vec![&foreign, &bare];
    expect(&case, "Pending", 0, "PodNotCreated");
}

#[test]
fn a_scratch_pod_is_found_through_its_replica_set() {
    let deployment = owned(
        "Deployment",
        "demo",
        "d",
        ("Workspace", "demo", "ws"),
        json!({}),
    );
    let mut pod = owned(
        "Pod",
        "demo-abc-x",
        "p",
        ("ReplicaSet", "demo-abc", "rs"),
        ready_pod(),
    );
    pod.metadata_mut()
        .insert("labels".into(), json!({"pod-template-hash": "abc"}));
    let mut case = Case::of("scratch", false);
    case.workload = Some(&deployment);
    case.pods = vec![&pod];
    expect(&case, "Running", 1, "Ready");
    let refused = owned(
        "Deployment",
        "demo",
        "d",
        ("Workspace", "demo", "ws"),
        json!({
        "conditions": [{"type": "ReplicaFailure", "status": "True", "message": "quota"}]}),
    );
    case.workload = Some(&refused);
    case.pods = vec![];
    expect(&case, "Failed", 0, "PodRefused");
}

#[test]
fn a_machine_tells_its_state() {
    let vm = machine(json!({"printableStatus": "Running"}));
    let running =
        instance(json!({"phase": "Running", "nodeName": "n", "activePods": {"pod": "n"}}));
    let paused =
        instance(json!({"phase": "Running", "conditions": [{"type": "Paused", "status": "True"}]}));
    let scheduling = instance(json!({"phase": "Scheduling"}));
    let off = instance(json!({"phase": "Succeeded"}));
    let crashed = instance(json!({"phase": "Failed"}));
    let ready = launcher(ready_pod());
    let starting = launcher(json!({"phase": "Pending"}));
    let full = launcher(json!({"phase": "Pending", "conditions": [
        {"type": "PodScheduled", "status": "False", "message": "no memory"}]}));
    for (instance, launcher, phase, count, reason) in [
        (Some(&running), Some(&ready), "Running", 1, "Ready"),
        (
            Some(&running),
            Some(&starting),
            "Running",
            0,
            "LauncherNotReady",
        ),
        (Some(&paused), Some(&ready), "Running", 0, "Paused"),
        (
            Some(&scheduling),
            Some(&full),
            "Pending",
            0,
            "Unschedulable",
        ),
        (
            Some(&scheduling),
            Some(&starting),
            "Starting",
            0,
            "Starting",
        ),
        (Some(&off), None, "Starting", 0, "GuestPoweredOff"),
        (Some(&crashed), None, "Failed", 0, "GuestFailed"),
        (None, None, "Starting", 0, "Starting"),
    ] {
        let mut case = Case::of("vm", false);
        case.workload = Some(&vm);
        case.instance = instance;
        case.pods = launcher.into_iter().collect();
        expect(&case, phase, count, reason);
    }
}

#[test]
fn kubevirts_own_words_come_through() {
    let refusal =
        json!({"conditions": [{"type": "Failure", "status": "True", "message": "bad video"}]});
    for (status, phase, reason) in [
        (refusal, "Failed", "MachineRefused"),
        (
            json!({"printableStatus": "ErrorUnschedulable"}),
            "Pending",
            "ErrorUnschedulable",
        ),
        (
            json!({"printableStatus": "ImagePullBackOff"}),
            "Failed",
            "ImagePullBackOff",
        ),
        (
            json!({"printableStatus": "CrashLoopBackOff"}),
            "Failed",
            "CrashLoopBackOff",
        ),
        (
            json!({"printableStatus": "Provisioning"}),
            "Starting",
            "Provisioning",
        ),
        (json!({"printableStatus": "Unknown"}), "Unknown", "Unknown"),
    ] {
        let vm = machine(status);
        let mut case = Case::of("vm", false);
        case.workload = Some(&vm);
        expect(&case, phase, 0, reason);
    }
}

#[test]
fn a_stopped_machine_is_stopping_until_its_instance_is_gone() {
    let vm = machine(json!({"printableStatus": "Stopping"}));
    let running = instance(json!({"phase": "Running"}));
    let ended = instance(json!({"phase": "Succeeded"}));
    let pod = launcher(ready_pod());
    let mut case = Case::of("vm", true);
    case.workload = Some(&vm);
    case.instance = Some(&running);
    expect(&case, "Stopping", 0, "Stopping");
    case.instance = Some(&ended);
    case.pods = vec![&pod];
    expect(&case, "Stopping", 0, "Stopping");
    case.pods = vec![];
    expect(&case, "Stopped", 0, "Stopped");
    case.instance = None;
    expect(&case, "Stopped", 0, "Stopped");
}

#[test]
fn what_stands_in_the_way_is_the_reason() {
    let mut case = Case::of("vm", false);
    case.kubevirt = false;
    expect(&case, "Pending", 0, "KubeVirtNotInstalled");
    let available = |status: WorkspaceStatus| {
        let all = status.conditions;
        let one = all.into_iter().find(|c| c.type_ == "KubeVirtAvailable");
        one.unwrap().status
    };
    assert_eq!(available(case.status()), "False");
    case.kubevirt = true;
    assert_eq!(available(case.status()), "True");
    case.failure = Some(Failure {
        reason: "NameConflict",
        message: "Service demo is there".into(),
    });
    expect(&case, "Failed", 0, "NameConflict");
}

#[test]
fn a_machine_of_another_owner_is_not_reported() {
    let foreign = owned(
        "VirtualMachine",
        "demo",
        "vm",
        ("Workspace", "demo", "old"),
        json!({}),
    );
    let instance = instance(json!({"phase": "Running"}));
    let pod = launcher(ready_pod());
    let mut case = Case::of("vm", false);
    case.workload = Some(&foreign);
    case.instance = Some(&instance);
    case.pods = vec![&pod];
    expect(&case, "Pending", 0, "NotCreated");
    assert_eq!(case.status().address, None);
}

#[test]
fn during_a_migration_the_launcher_on_the_instances_node_counts() {
    let vm = machine(json!({}));
    let instance = instance(
        json!({"phase": "Running", "nodeName": "b", "activePods": {"pod": "b", "p2": "a"}}),
    );
    let on = |uid: &str, node: &str, ip: &str| {
        let mut pod = launcher(json!({"phase": "Running", "podIPs": [{"ip": ip}],
            "conditions": [{"type": "Ready", "status": "True"}]}));
        pod.set_meta("uid", uid);
        pod.fields_mut()
            .insert("spec".into(), json!({"nodeName": node}));
        pod
    };
    let (source, target) = (on("p2", "a", "10.0.0.1"), on("pod", "b", "10.0.0.2"));
    let mut case = Case::of("vm", false);
    case.workload = Some(&vm);
    case.instance = Some(&instance);
    case.pods = vec![&source, &target];
    assert_eq!(case.status().address.as_deref(), Some("10.0.0.2"));
    assert_eq!(case.status().node_name.as_deref(), Some("b"));
}

#[test]
fn a_workspace_that_is_being_deleted_says_so_and_what_holds_it() {
    let (machine, instance) = (
        machine(json!({"ready": true})),
        instance(json!({"phase": "Running"})),
    );
    let pod = launcher(json!({"podIPs": [{"ip": "10.0.0.7"}]}));
    for kind in ["vm", "container", "scratch"] {
        let case = Case {
            workspace: Workspace {
                ending: Some(vec!["a.io/b".into(), "c".into()]),
                ..workspace(kind, false)
            },
            workload: Some(&machine),
            instance: Some(&instance),
            pods: vec![&pod],
            ..Case::of(kind, false)
        };
        let status = case.status();
        assert_eq!(status.phase, Some(Phase::Terminating), "{kind}");
        assert_eq!(status.ready_replicas, 0);
        let ready = &status.conditions[0];
        assert_eq!(
            (ready.type_.as_str(), ready.status.as_str()),
            ("Ready", "False")
        );
        assert_eq!(
            ready.message.as_deref(),
            Some("it is being deleted; it goes when these finalizers are removed: a.io/b, c")
        );
        assert!(status.conditions.iter().all(|c| c.type_ != "FullyApplied"));
    }
}
