//! The catalog entry of a workspace: found once, recorded in `status.image`, and from then on read
//! from there, so that an edit of the catalog never changes a machine behind its owner's back.
//!
//! Credentials are no part of the record, which many may read. They go from the entry into the
//! cloud-init Secret when that is made, and stay there.

use apiserver_generic::Object;
use apiservice::v1alpha1::{Image, ImageSpec, ResolvedImage, View};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::problem::Problem;
use super::userdata;

/// What of a catalog entry shapes a machine: `status.image.settings`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Settings {
    /// The image reference that was looked up.
    pub image: String,
    /// UID and generation of the entry that the user-data is from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
    /// Whether the machine has user-data.
    pub cloud_init: bool,
    /// Shell of consoles in a container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_shell: Option<String>,
    /// Account of the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_user: Option<String>,
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
    /// Guest profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vm_profile: Option<String>,
    /// Port of the agent in the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_port: Option<u16>,
}

impl Settings {
    /// Reads the record of a workspace, if it is about the image that the workspace has now.
    pub fn recorded(workspace: &Object, reference: &str) -> Option<(ResolvedImage, Self)> {
        let record = workspace.pointer("/status/image")?.clone();
        let record: ResolvedImage = serde_json::from_value(record).ok()?;
        let settings = Value::Object(record.settings.clone());
        let settings: Self = serde_json::from_value(settings).ok()?;
        (settings.image == reference).then_some((record, settings))
    }

    fn of(object: &Object, spec: &ImageSpec) -> Self {
        let agent_port = spec
            .proxy_config
            .as_ref()
            .and_then(|proxy| proxy.agent_port);
        Self {
            image: spec.image.clone(),
            entry: object
                .uid()
                .map(|uid| format!("{uid}/{}", object.generation())),
            cloud_init: userdata::wanted(spec),
            default_shell: named(spec.default_shell.as_ref()),
            default_user: spec.default_user.clone(),
            persistent_root_disk: spec.persistent_root_disk.unwrap_or_default(),
            memory_limit: spec.memory_limit.clone(),
            memory_request: spec.memory_request.clone(),
            video_device: named(spec.video_device.as_ref()),
            sound_device: named(spec.sound_device.as_ref()),
            vm_profile: named(spec.vm_profile.as_ref()),
            agent_port: agent_port
                .and_then(|port| u16::try_from(port).ok())
                .filter(|port| *port > 0),
        }
    }

    fn into_map(self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(map)) => map,
            _ => Map::new(),
        }
    }
}

/// Looks a reference up among the Images. Of several entries the oldest counts, then the first by
/// name, so that one added later changes nothing. No entry is a result, too, and is recorded.
pub fn resolve(reference: &str, images: &[Object]) -> (ResolvedImage, Settings) {
    let age = |image: &&Object| {
        let created = image.str_at("/metadata/creationTimestamp").unwrap_or("~");
        (created.to_owned(), image.name().to_owned())
    };
    let entry = images
        .iter()
        .filter(|image| image.str_at("/spec/image") == Some(reference))
        .min_by_key(age)
        // An entry that validation would refuse is skipped: it is never fatal.
        .and_then(|object| Some((object, Image::read(object).ok()?)));
    let Some((object, image)) = entry else {
        let settings = Settings {
            image: reference.to_owned(),
            ..Settings::default()
        };
        return (record(None, &settings), settings);
    };
    let settings = Settings::of(object, &image.spec);
    (record(Some(object), &settings), settings)
}

/// The user-data of a machine whose record says that it has some, from the entry as it is now.
pub fn user_data(record: &ResolvedImage, images: &[Object]) -> Result<String, Problem> {
    let entry = images
        .iter()
        .find(|image| image.uid() == Some(record.uid.as_str()))
        .and_then(|image| Image::read(image).ok());
    let gone = || {
        Problem::ignored(
            "status.image",
            &format!(
                "the Image {} is gone; the Secret with the user-data cannot be made again if it is lost",
                record.name
            ),
        )
    };
    let rendered = userdata::render(&entry.ok_or_else(gone)?.spec)?;
    rendered.ok_or_else(gone)
}

fn record(image: Option<&Object>, settings: &Settings) -> ResolvedImage {
    ResolvedImage {
        name: image
            .map(|image| image.name().to_owned())
            .unwrap_or_default(),
        uid: image.and_then(Object::uid).unwrap_or_default().to_owned(),
        generation: image.map(Object::generation).unwrap_or_default(),
        settings: settings.clone().into_map(),
    }
}

fn named(value: Option<&String>) -> Option<String> {
    value.filter(|value| !value.is_empty()).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn image(name: &str, created: &str, reference: &str) -> Object {
        Object::from_value(json!({
            "metadata": {"name": name, "creationTimestamp": created, "uid": name},
            "spec": {"image": reference, "defaultPort": 22, "memoryLimit": "2Gi",
                     "defaultUser": "dev", "defaultPassword": "s3cret", "defaultCloudInit": true},
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
        let (record, settings) = resolve("r:1", &images);
        assert_eq!(record.name, "y");
        assert_eq!(settings.memory_limit, Some(json!("2Gi")));
        assert_eq!(resolve("r:3", &images).0.name, "");
    }

    #[test]
    fn a_record_is_read_back_until_the_workspaces_image_changes() {
        let (record, settings) = resolve("r:1", &[image("b", "2026-01-02T00:00:00Z", "r:1")]);
        let workspace = Object::from_value(json!({"status": {"image": record}})).unwrap();
        let read = Settings::recorded(&workspace, "r:1").unwrap();
        assert_eq!(read, (record, settings));
        assert_eq!(Settings::recorded(&workspace, "r:2"), None);
    }

    #[test]
    fn no_credential_is_recorded() {
        let images = [image("b", "2026-01-02T00:00:00Z", "r:1")];
        let (record, _) = resolve("r:1", &images);
        assert!(!json!(record).to_string().contains("s3cret"));
        assert!(user_data(&record, &images).unwrap().contains("dev:s3cret"));
        let problem = user_data(&record, &[]).unwrap_err();
        assert!(problem.message.contains("Image b is gone"));
    }

    #[test]
    fn only_a_possible_agent_port_counts() {
        for (port, expected) in [
            (0, None),
            (-1, None),
            (65536, None),
            (1, Some(1)),
            (44787, Some(44787)),
            (65535, Some(65535)),
        ] {
            let spec: ImageSpec = serde_json::from_value(json!({
                "image": "r:1", "defaultPort": 1, "proxyConfig": {"agentPort": port},
            }))
            .unwrap();
            let settings = Settings::of(&Object::default(), &spec);
            assert_eq!(settings.agent_port, expected, "{port}");
        }
    }
}
