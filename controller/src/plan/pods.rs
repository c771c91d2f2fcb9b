//! StatefulSet of a container workspace, Deployment of a scratch one.

use serde_json::{Map, Value, json};

use super::input::Workspace;
use super::problem::Problem;
use super::{Child, ChildKind, labels, ports};
use crate::names::{WORKSPACE_NAME, child_name};

/// The StatefulSet.
pub(crate) fn stateful_set(workspace: &Workspace) -> (Child, Vec<Problem>) {
    let name = child_name(&workspace.owner.name);
    let mut problems = Vec::new();
    let child = Child {
        kind: ChildKind::StatefulSet,
        body: json!({
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": workspace.owner.child_metadata(&name),
            "spec": {
                "replicas": workspace.run.replicas(),
                "serviceName": name,
                "selector": {"matchLabels": selector("statefulset", workspace)},
                "template": template("statefulset", workspace, &mut problems),
            },
        }),
        name,
    };
    (child, problems)
}

/// The Deployment. The old pod ends before the new one begins: it is one person's workspace.
pub(crate) fn deployment(workspace: &Workspace) -> (Child, Vec<Problem>) {
    let name = child_name(&workspace.owner.name);
    let mut problems = Vec::new();
    let child = Child {
        kind: ChildKind::Deployment,
        body: json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": workspace.owner.child_metadata(&name),
            "spec": {
                "replicas": workspace.run.replicas(),
                "strategy": {"type": "Recreate"},
                "selector": {"matchLabels": selector("deployment", workspace)},
                "template": template("deployment", workspace, &mut problems),
            },
        }),
        name,
    };
    (child, problems)
}

/// Labels that select the pods: `statefulset: demo`.
pub(crate) fn selector(key: &str, workspace: &Workspace) -> Map<String, Value> {
    let mut labels = Map::new();
    labels.insert(key.to_owned(), json!(workspace.owner.name));
    labels
}

fn template(key: &str, workspace: &Workspace, problems: &mut Vec<Problem>) -> Value {
    let mut ours = selector(key, workspace);
    ours.insert(WORKSPACE_NAME.to_owned(), json!(workspace.owner.name));
    let mut metadata = json!({"labels": labels::labels(workspace, &ours, problems)});
    let annotations = labels::annotations(workspace);
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
