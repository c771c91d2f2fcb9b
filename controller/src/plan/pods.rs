//! StatefulSet of a container workspace, Deployment of a scratch one.

use apiservice::v1alpha1::STOPPED;
use serde_json::{Map, Value, json};

use super::input::Workspace;
use super::{Child, ChildKind, ports};
use crate::names::{WORKSPACE_NAME, child_name};

/// Annotations that describe the Workspace's own writing and would be wrong, or restart the pod
/// for nothing, on a pod.
const NOT_COPIED: [&str; 3] = [
    STOPPED,
    "kubectl.kubernetes.io/last-applied-configuration",
    "kubectl.kubernetes.io/restartedAt",
];

/// The StatefulSet.
pub(crate) fn stateful_set(workspace: &Workspace) -> Child {
    let name = child_name(&workspace.owner.name);
    Child {
        kind: ChildKind::StatefulSet,
        body: json!({
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": workspace.owner.child_metadata(&name),
            "spec": {
                "replicas": workspace.run.replicas(),
                "serviceName": name,
                "selector": {"matchLabels": selector("statefulset", workspace)},
                "template": template("statefulset", workspace),
            },
        }),
        name,
    }
}

/// The Deployment. The old pod ends before the new one begins: it is one person's workspace.
pub(crate) fn deployment(workspace: &Workspace) -> Child {
    let name = child_name(&workspace.owner.name);
    Child {
        kind: ChildKind::Deployment,
        body: json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": workspace.owner.child_metadata(&name),
            "spec": {
                "replicas": workspace.run.replicas(),
                "strategy": {"type": "Recreate"},
                "selector": {"matchLabels": selector("deployment", workspace)},
                "template": template("deployment", workspace),
            },
        }),
        name,
    }
}

/// Labels that select the pods: `statefulset: demo`.
pub(crate) fn selector(key: &str, workspace: &Workspace) -> Map<String, Value> {
    let mut labels = Map::new();
    labels.insert(key.to_owned(), json!(workspace.owner.name));
    labels
}

fn template(key: &str, workspace: &Workspace) -> Value {
    let mut labels = workspace.labels.clone();
    labels.extend(selector(key, workspace));
    labels.insert(WORKSPACE_NAME.to_owned(), json!(workspace.owner.name));
    let mut annotations = workspace.annotations.clone();
    annotations.retain(|key, _| !NOT_COPIED.contains(&key.as_str()));
    let mut metadata = json!({"labels": labels});
    if !annotations.is_empty() {
        metadata["annotations"] = Value::Object(annotations);
    }
    json!({"metadata": metadata, "spec": pod_spec(workspace)})
}

/// The pod as the workspace has it; a main container without ports gets the default one.
fn pod_spec(workspace: &Workspace) -> Value {
    let mut spec = workspace.pod_spec().clone();
    if ports::none_declared(workspace.main_container())
        && let Some(container) = spec.pointer_mut("/containers/0")
    {
        container["ports"] = json!([ports::default_container_port()]);
    }
    spec
}
