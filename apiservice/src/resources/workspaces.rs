//! `workspaces`: the row and the strategy.

use apiserver_generic::{
    Cause, Object, Resource, Scope, Strategy, Subresource, Verb,
    resource::{Rest, Streaming},
    schema::drop_nulls,
};
use serde_json::{Value, json};

use super::{actions, cells, isolate_status};
use crate::{schema, v1alpha1, validation};

/// The part of the status that only the server itself writes, by this name: `status.ssh`. It is no
/// subresource that a request could name.
pub const HOST_KEYS: &str = "status/ssh";

/// Decides about workspaces.
pub struct WorkspaceStrategy {
    row: Resource,
}

impl WorkspaceStrategy {
    /// The strategy with its row.
    #[allow(clippy::new_without_default)] // `default` is the trait's word for filling in defaults
    pub fn new() -> Self {
        Self { row: row() }
    }
}

fn row() -> Resource {
    Resource {
        group: v1alpha1::GROUP,
        version: v1alpha1::VERSION,
        kind: "Workspace",
        plural: "workspaces",
        singular: "workspace",
        short_names: &["ws"],
        categories: &["all"],
        scope: Scope::Namespaced,
        verbs: &Verb::ALL,
        subresources: vec![
            Subresource {
                name: "status",
                verbs: &[Verb::Get, Verb::Patch, Verb::Update],
                kind: "Workspace",
                rest: Rest::None,
                streaming: Streaming::Never,
            },
            stream("console", Rest::None),
            stream("vnc", Rest::None),
            stream("ssh", Rest::None),
            stream("portforward", Rest::Path),
            Subresource {
                name: "proxy",
                verbs: &[
                    Verb::Create,
                    Verb::Delete,
                    Verb::Get,
                    Verb::Patch,
                    Verb::Update,
                ],
                kind: "WorkspaceProxyOptions",
                rest: Rest::Path,
                streaming: Streaming::Always,
            },
            Subresource {
                name: "screenshot",
                verbs: &[Verb::Get],
                kind: "Workspace",
                rest: Rest::None,
                streaming: Streaming::Never,
            },
        ]
        .into_iter()
        .chain(actions::subresources())
        .collect(),
        options: actions::options(),
        schema: schema::of::<v1alpha1::Workspace>(),
        columns: vec![
            cells::text("Type", "How the workspace runs: container, scratch or vm."),
            cells::text("Status", "Where the workspace is in its life."),
            cells::text("Ready", "1 when the workspace can be used."),
            cells::text(
                "Image",
                "The main container's image, or the guest's root disk.",
            ),
            cells::text("Address", "The workspace's address on the pod network."),
            cells::AGE,
            cells::wide("Node", "The node that the workspace runs on."),
            cells::wide("Reason", "Why the workspace is not ready."),
        ],
    }
}

/// A subresource that upgrades. `create` is what the server asks for beside kube-apiserver's `get`.
fn stream(name: &'static str, rest: Rest) -> Subresource {
    Subresource {
        name,
        verbs: &[Verb::Create, Verb::Get],
        kind: "WorkspaceSession",
        rest,
        streaming: Streaming::Upgrades,
    }
}

impl Strategy for WorkspaceStrategy {
    fn resource(&self) -> &Resource {
        &self.row
    }

    fn default(&self, object: &mut Object) {
        if let Some(Value::Object(spec)) = object.fields_mut().get_mut("spec") {
            spec.entry("type").or_insert_with(|| json!("container"));
            if let Some(template) = spec.get_mut("template") {
                let pointer = "/properties/spec/properties/template";
                let schema = self.row.schema.pointer(pointer);
                drop_nulls(template, schema.unwrap_or(&Value::Null));
            }
        }
    }

    fn prepare_for_create(&self, object: &mut Object) {
        object.fields_mut().remove("status");
    }

    fn prepare_for_update(&self, new: &mut Object, old: &Object, subresource: Option<&str>) {
        if subresource == Some(HOST_KEYS) {
            let keys = new.pointer("/status/ssh").cloned();
            *new = old.clone();
            set_host_keys(new, keys);
        } else {
            isolate_status(new, old, subresource);
            set_host_keys(new, old.pointer("/status/ssh").cloned());
        }
    }

    fn validate(&self, object: &Object) -> Vec<Cause> {
        validation::workspace(&self.row.schema, object)
    }

    fn validate_update(&self, new: &Object, old: &Object, subresource: Option<&str>) -> Vec<Cause> {
        validation::workspace_update(&self.row.schema, new, old, subresource)
    }

    fn selectable_fields(&self) -> &[&'static str] {
        &["spec.type", "status.phase"]
    }

    fn cells(&self, object: &Object, now: i64) -> Vec<Value> {
        let ready = object
            .pointer("/status/readyReplicas")
            .and_then(Value::as_i64)
            .unwrap_or(0);
        vec![
            string_or(object, "/spec/type", "container"),
            json!(status(object)),
            json!(ready.to_string()),
            cells::string(object, "/spec/template/spec/containers/0/image"),
            cells::string(object, "/status/address"),
            cells::age(object, now),
            cells::string(object, "/status/nodeName"),
            json!(not_ready_reason(object)),
        ]
    }
}

fn set_host_keys(object: &mut Object, keys: Option<Value>) {
    let fields = object.fields_mut();
    let status = match keys {
        Some(_) => fields.entry("status").or_insert_with(|| json!({})),
        None => match fields.get_mut("status") {
            Some(status) => status,
            None => return,
        },
    };
    // `status: null` clears the status and not the keys; what is no object is refused by validation.
    if status.is_null() && keys.is_some() {
        *status = json!({});
    }
    match (status.as_object_mut(), keys) {
        (Some(status), Some(keys)) => status.insert("ssh".to_owned(), keys),
        (Some(status), None) => status.remove("ssh"),
        (None, _) => None,
    };
}

fn string_or(object: &Object, pointer: &str, default: &str) -> Value {
    json!(
        object
            .str_at(pointer)
            .filter(|s| !s.is_empty())
            .unwrap_or(default)
    )
}

fn status(object: &Object) -> &str {
    if object.deletion_timestamp().is_some() {
        return v1alpha1::Phase::Terminating.as_str();
    }
    object
        .str_at("/status/phase")
        .unwrap_or(v1alpha1::Phase::Pending.as_str())
}

fn not_ready_reason(object: &Object) -> &str {
    object
        .pointer("/status/conditions")
        .and_then(Value::as_array)
        .and_then(|list| {
            list.iter()
                .find(|c| c["type"] == "Ready" && c["status"] != "True")
        })
        .and_then(|c| c["reason"].as_str())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_that_go_has_printed_is_taken() {
        let strategy = WorkspaceStrategy::new();
        let mut object = Object::from_value(json!({"metadata": {"name": "demo"}, "spec": {
            "template": {
                "metadata": {"creationTimestamp": null, "labels": null},
                "spec": {"volumes": null, "containers": [{"name": "a", "image": "i", "args": null}]}}}}))
        .unwrap();
        strategy.default(&mut object);
        assert_eq!(strategy.validate(&object), vec![]);
        let template =
            json!({"metadata": {}, "spec": {"containers": [{"name": "a", "image": "i"}]}});
        assert_eq!(object.pointer("/spec/template"), Some(&template));
    }

    #[test]
    fn host_keys_are_written_by_the_server_alone() {
        let object = |status: Value| {
            Object::from_value(
                json!({"metadata": {"name": "demo"}, "spec": {"x": 1}, "status": status}),
            )
            .unwrap()
        };
        let strategy = WorkspaceStrategy::new();
        let update = |old: &Value, new: &Value, subresource| {
            let (old, mut new) = (object(old.clone()), object(new.clone()));
            strategy.prepare_for_update(&mut new, &old, subresource);
            new.pointer("/status").cloned().unwrap()
        };
        let pinned = json!({"phase": "Running", "ssh": {"pinnedAt": "1"}});
        let forged = json!({"phase": "Stopped", "ssh": {"pinnedAt": "2"}});
        let cleared = json!({"phase": "Stopped"});
        for subresource in [None, Some("status")] {
            for new in [&forged, &cleared, &Value::Null] {
                let now = update(&pinned, new, subresource);
                assert_eq!(now.get("ssh"), pinned.get("ssh"), "{subresource:?} {new}");
            }
            let now = update(&cleared, &forged, subresource);
            assert_eq!(now.get("ssh"), None, "{subresource:?}");
        }
        let now = update(&pinned, &forged, Some(HOST_KEYS));
        assert_eq!(now, json!({"phase": "Running", "ssh": {"pinnedAt": "2"}}));
    }

    #[test]
    fn a_row_tells_what_a_person_wants_to_know() {
        let object = Object::from_value(json!({
            "metadata": {"name": "demo", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"type": "vm", "template": {"spec": {"containers": [{"name": "a", "image": "img:1"}]}}},
            "status": {"phase": "Running", "readyReplicas": 1, "address": "10.0.0.7"}
        }))
        .unwrap();
        let now = "2026-01-01T00:00:20Z"
            .parse::<jiff::Timestamp>()
            .unwrap()
            .as_second();
        let cells = WorkspaceStrategy::new().cells(&object, now);
        assert_eq!(
            json!(cells[..6]),
            json!(["vm", "Running", "1", "img:1", "10.0.0.7", "20s"])
        );
    }
}
