//! Labels and annotations of pods and machines: the workspace's, then its template's, then ours.

use apiservice::v1alpha1::{START_PAUSED, STOPPED};
use serde_json::{Map, Value};

use super::input::Workspace;
use super::problem::Problem;

/// Annotations of the Workspace that describe its own writing and would be wrong, or restart the pod
/// for nothing, on a pod.
const NOT_COPIED: [&str; 4] = [
    STOPPED,
    START_PAUSED,
    "kubectl.kubernetes.io/last-applied-configuration",
    "kubectl.kubernetes.io/restartedAt",
];

/// The fields of `metadata` that workspaces and templates have.
const LABELS: &str = "labels";
const ANNOTATIONS: &str = "annotations";

/// Labels, `ours` last: by them the pods are found. Somebody else's value for one of them is named.
pub(super) fn labels(
    workspace: &Workspace,
    ours: &Map<String, Value>,
    problems: &mut Vec<Problem>,
) -> Map<String, Value> {
    let of_template = template(workspace, LABELS);
    for (path, labels) in [
        ("metadata.labels", &workspace.labels),
        ("spec.template.metadata.labels", &of_template),
    ] {
        for (key, value) in labels {
            if ours.get(key).is_some_and(|own| own != value) {
                let why = "the workspace's pods are found by this label; it has no effect";
                problems.push(Problem::ignored(&format!("{path}[{key}]"), why));
            }
        }
    }
    let mut labels = workspace.labels.clone();
    labels.extend(of_template);
    labels.extend(ours.clone());
    labels
}

/// Annotations of a pod.
pub(super) fn annotations(workspace: &Workspace) -> Map<String, Value> {
    let mut annotations = workspace.annotations.clone();
    annotations.retain(|key, _| !NOT_COPIED.contains(&key.as_str()));
    annotations.extend(template(workspace, ANNOTATIONS));
    annotations
}

/// Annotations that the template alone has.
pub(super) fn template_annotations(workspace: &Workspace) -> Map<String, Value> {
    template(workspace, ANNOTATIONS)
}

fn template(workspace: &Workspace, field: &str) -> Map<String, Value> {
    let map = &workspace.spec["template"]["metadata"][field];
    map.as_object().cloned().unwrap_or_default()
}
