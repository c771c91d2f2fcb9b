//! What a plan is made from, as read views over stored objects.

use apiserver_generic::Object;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::names::{Owner, STOPPED};

/// `spec.type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkspaceType {
    /// A StatefulSet of one pod.
    Container,
    /// A Deployment of one pod.
    Scratch,
    /// A KubeVirt VirtualMachine.
    Vm,
}

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

/// A Workspace, as far as plans need it.
#[derive(Clone, Debug)]
pub struct Workspace {
    /// Name, namespace and UID.
    pub owner: Owner,
    /// Type.
    pub kind: WorkspaceType,
    /// Whether it should run.
    pub run: RunState,
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
            kind,
            run,
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

/// A catalog entry as it was when the workspace was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ImageRecord {
    /// The reference that was looked up.
    pub image: String,
    /// The Image that had it; `None` if none had.
    pub entry: Option<Entry>,
}

/// An Image as it was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.generation`.
    pub generation: i64,
    /// What machines are made from.
    pub settings: Settings,
}

/// The part of an Image's spec that shapes machines.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Settings {
    /// Whether user and password become user-data.
    pub default_cloud_init: bool,
    /// User-data, which wins over the generated one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_user_data: Option<String>,
    /// Account of the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_user: Option<String>,
    /// Its password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_password: Option<String>,
    /// Whether the root disk should outlive a stop.
    pub persistent_root_disk: bool,
    /// Memory of the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<Value>,
    /// Memory of the launcher pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_request: Option<Value>,
    /// Display adapter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub video_device: Option<String>,
    /// Sound card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sound_device: Option<String>,
    /// Windows profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vm_profile: Option<String>,
    /// How the proxy reaches the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_config: Option<ProxySettings>,
}

/// The part of `proxyConfig` that opens ports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxySettings {
    /// Port of the agent in the guest; 0 is none.
    pub agent_port: i64,
}

impl ImageRecord {
    /// Looks a reference up among the Images. Of several the oldest counts, then the first by
    /// name, so that an entry added later changes nothing.
    pub fn resolve(reference: &str, images: &[Object]) -> Self {
        let age = |image: &&Object| {
            let created = image.str_at("/metadata/creationTimestamp").unwrap_or("~");
            (created.to_owned(), image.name().to_owned())
        };
        let entry = images
            .iter()
            .filter(|image| image.str_at("/spec/image") == Some(reference))
            .min_by_key(age)
            .map(Entry::read);
        Self {
            image: reference.to_owned(),
            entry,
        }
    }

    /// What the entry says, or the defaults.
    pub fn settings(&self) -> Settings {
        let entry = self.entry.as_ref();
        entry
            .map(|entry| entry.settings.clone())
            .unwrap_or_default()
    }
}

impl Entry {
    fn read(image: &Object) -> Self {
        // A field of a type that the schema would refuse leaves the defaults: it is never fatal.
        let spec = image.pointer("/spec").cloned().unwrap_or_default();
        Self {
            name: image.name().to_owned(),
            uid: image.uid().unwrap_or_default().to_owned(),
            generation: image.generation(),
            settings: serde_json::from_value(spec).unwrap_or_default(),
        }
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

    fn image(name: &str, created: &str, reference: &str) -> Object {
        Object::from_value(json!({
            "metadata": {"name": name, "creationTimestamp": created, "uid": name},
            "spec": {"image": reference, "memoryLimit": "2Gi"},
        }))
        .unwrap()
    }

    #[test]
    fn the_oldest_entry_of_a_reference_counts() {
        let images = [
            image("b", "2026-01-02T00:00:00Z", "r:1"),
            image("z", "2026-01-01T00:00:00Z", "r:1"),
            image("y", "2026-01-01T00:00:00Z", "r:1"),
            image("a", "2025-01-01T00:00:00Z", "r:2"),
        ];
        let record = ImageRecord::resolve("r:1", &images);
        let entry = record.entry.unwrap();
        assert_eq!(entry.name, "y");
        assert_eq!(entry.settings.memory_limit, Some(json!("2Gi")));
        assert_eq!(ImageRecord::resolve("r:3", &images).entry, None);
    }

    #[test]
    fn a_record_survives_being_stored() {
        let record = ImageRecord::resolve("r:1", &[image("b", "2026-01-02T00:00:00Z", "r:1")]);
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<ImageRecord>(&text).unwrap(), record);
    }

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
}
