//! What a plan is made from, as read views over stored objects.

use apiserver_generic::Object;
use apiservice::v1alpha1::{START_PAUSED, STOPPED, WorkspaceType};
use serde_json::{Map, Value, json};

use crate::names::Owner;

/// Whether the workspace should run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// It should.
    Running,
    /// Its owner stopped it.
    Stopped,
}

impl RunState {
    /// Replicas of a StatefulSet or Deployment.
    pub(crate) fn replicas(self) -> i32 {
        i32::from(self == Self::Running)
    }

    /// KubeVirt's `runStrategy`.
    pub(crate) fn strategy(self) -> &'static str {
        match self {
            Self::Running => "Always",
            Self::Stopped => "Halted",
        }
    }
}

/// A Workspace, as far as plans need it. Its pod stays JSON, so that quantities and fields that
/// our types do not know reach the pod as their author wrote them.
#[derive(Clone, Debug)]
pub struct Workspace {
    /// Name, namespace and UID.
    pub owner: Owner,
    /// `metadata.generation`.
    pub generation: i64,
    /// Type.
    pub kind: WorkspaceType,
    /// Whether it should run.
    pub run: RunState,
    /// Whether a machine is to be started so that it is paused, and was not yet.
    pub start_paused: bool,
    /// While it is being deleted: the finalizers that hold it.
    pub ending: Option<Vec<String>>,
    /// Labels, which its pods get too.
    pub labels: Map<String, Value>,
    /// Annotations.
    pub annotations: Map<String, Value>,
    /// `spec`.
    pub spec: Value,
}

impl Workspace {
    /// Reads a stored Workspace; `None` if it lacks what every stored object has.
    pub fn read(object: &Object) -> Option<Self> {
        let kind = match object.str_at("/spec/type").unwrap_or_default() {
            "" | "container" => WorkspaceType::Container,
            "scratch" => WorkspaceType::Scratch,
            "vm" => WorkspaceType::Vm,
            _ => return None,
        };
        let map = |pointer| {
            let map = object.pointer(pointer).and_then(Value::as_object);
            map.cloned().unwrap_or_default()
        };
        let run = match object.annotation(STOPPED) {
            Some(_) => RunState::Stopped,
            None => RunState::Running,
        };
        Some(Self {
            owner: Owner {
                name: Some(object.name())
                    .filter(|name| !name.is_empty())?
                    .to_owned(),
                namespace: object.namespace()?.to_owned(),
                uid: object.uid()?.to_owned(),
            },
            generation: object.generation(),
            kind,
            run,
            start_paused: kind == WorkspaceType::Vm
                && run == RunState::Running
                && object.annotation(START_PAUSED).is_some(),
            ending: object.deletion_timestamp().map(|_| {
                let finalizers = object.finalizers().into_iter();
                finalizers.map(str::to_owned).collect()
            }),
            labels: map("/metadata/labels"),
            annotations: map("/metadata/annotations"),
            spec: object
                .pointer("/spec")
                .cloned()
                .unwrap_or_else(|| json!({})),
        })
    }

    /// `spec.template.spec`.
    pub fn pod_spec(&self) -> &Value {
        &self.spec["template"]["spec"]
    }

    /// The first container, which is the workspace itself.
    pub fn main_container(&self) -> &Value {
        &self.pod_spec()["containers"][0]
    }

    /// Its image, empty when there is none.
    pub fn image(&self) -> &str {
        self.main_container()["image"].as_str().unwrap_or_default()
    }
}

/// What the cluster offers at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Whether KubeVirt's kinds are served.
    pub kubevirt: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_value_of_the_annotation_stops() {
        let mut workspace = json!({
            "metadata": {"name": "w", "namespace": "n", "uid": "u"}, "spec": {"type": "vm"},
        });
        let run = |value: &Value| {
            Workspace::read(&Object::from_value(value.clone()).unwrap())
                .unwrap()
                .run
        };
        assert_eq!(run(&workspace), RunState::Running);
        workspace["metadata"]["annotations"] = json!({STOPPED: ""});
        assert_eq!(run(&workspace), RunState::Stopped);
    }

    #[test]
    fn only_a_machine_that_is_to_run_is_started_paused() {
        for (kind, annotations, expected) in [
            ("vm", json!({START_PAUSED: ""}), true),
            ("vm", json!({START_PAUSED: "", STOPPED: ""}), false),
            ("vm", json!({}), false),
            ("container", json!({START_PAUSED: ""}), false),
        ] {
            let workspace = json!({
                "metadata": {"name": "w", "namespace": "n", "uid": "u", "annotations": annotations},
                "spec": {"type": kind},
            });
            let workspace = Workspace::read(&Object::from_value(workspace).unwrap()).unwrap();
            assert_eq!(workspace.start_paused, expected, "{kind} {annotations}");
        }
    }
}
