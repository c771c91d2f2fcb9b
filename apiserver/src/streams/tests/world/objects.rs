//! The objects of the workspace `demo` of each type, as the controllers make them.

use serde_json::{Value, json};

use super::{LAUNCHER, MACHINE, PODS};

const VM: &str = "/apis/kubevirt.io/v1/namespaces/t1/virtualmachines/demo";
const SET: &str = "/apis/apps/v1/namespaces/t1/statefulsets/demo";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/t1/deployments/demo";
const REPLICA_SET: &str = "/apis/apps/v1/namespaces/t1/replicasets/demo-5d";

/// The workspace.
pub(super) fn workspace(kind: &str) -> Value {
    json!({"metadata": {"name": "demo", "namespace": "t1", "uid": "ws-uid"},
        "spec": {"type": kind, "template": {"spec": {"containers": [{"name": "main",
            "ports": [{"name": "http", "containerPort": 8080},
                {"containerPort": 53, "protocol": "UDP"}]}]}}}})
}

fn owner(api: &str, kind: &str, name: &str, uid: &str) -> Value {
    json!([{"apiVersion": api, "kind": kind, "name": name, "uid": uid, "controller": true}])
}

fn ours() -> Value {
    owner("kubeworkspaces.io/v1alpha1", "Workspace", "demo", "ws-uid")
}

/// All that belongs to it, running, by paths.
pub(super) fn children(kind: &str) -> Vec<(&'static str, Value)> {
    let items = match kind {
        "vm" => json!([launcher()]),
        "container" => json!([pod(
            "demo-0",
            &owner("apps/v1", "StatefulSet", "demo", "set-uid")
        )]),
        _ => json!([pod(
            "demo-5d-x",
            &owner("apps/v1", "ReplicaSet", "demo-5d", "replicaset-uid")
        )]),
    };
    let pods = json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": items});
    let mut all = workload(kind);
    all.push((PODS, pods));
    all
}

fn workload(kind: &str) -> Vec<(&'static str, Value)> {
    match kind {
        "vm" => vec![
            (
                VM,
                json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
                "metadata": {"name": "demo", "namespace": "t1", "uid": "vm-uid",
                    "ownerReferences": ours()}}),
            ),
            (
                MACHINE,
                json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
                "metadata": {"name": "demo", "namespace": "t1", "uid": "vmi-uid",
                    "ownerReferences": owner("kubevirt.io/v1", "VirtualMachine", "demo", "vm-uid")},
                "status": {"phase": "Running", "nodeName": "n1", "activePods": {"pod-uid": "n1"}}}),
            ),
        ],
        "container" => vec![(
            SET,
            json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": {"name": "demo", "namespace": "t1", "uid": "set-uid",
                "ownerReferences": ours()}}),
        )],
        _ => vec![
            (
                DEPLOYMENT,
                json!({"apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": "demo", "namespace": "t1", "uid": "deployment-uid",
                    "ownerReferences": ours()}}),
            ),
            (
                REPLICA_SET,
                json!({"apiVersion": "apps/v1", "kind": "ReplicaSet",
                "metadata": {"name": "demo-5d", "namespace": "t1", "uid": "replicaset-uid",
                    "ownerReferences": owner("apps/v1", "Deployment", "demo", "deployment-uid")}}),
            ),
        ],
    }
}

fn launcher() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "virt-launcher-demo-x", "namespace": "t1", "uid": "pod-uid"},
        "spec": {"nodeName": "n1"},
        "status": {"phase": "Running", "hostIP": "192.0.2.1", "podIPs": [{"ip": LAUNCHER}]}})
}

fn pod(name: &str, owner: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "t1", "uid": "pod-uid", "ownerReferences": owner},
        "spec": {"containers": [{"name": "main"}]},
        "status": {"phase": "Running",
            "containerStatuses": [{"name": "main", "state": {"running": {}}}]}})
}
