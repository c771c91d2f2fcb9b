//! A kind for tests of what stands on strategies.

use serde_json::{Value, json};

use crate::{
    Cause, Object, Resource, Scope, Strategy, Verb,
    registry::invalid,
    resource::{Column, Rest, Streaming, Subresource},
};

/// A kind with a spec, a status and one rule: `spec.size` is at most 9.
pub(crate) struct Widgets(Resource);

impl Widgets {
    pub(crate) fn new() -> Self {
        Self(Resource {
            group: "example.com",
            version: "v1",
            kind: "Widget",
            plural: "widgets",
            singular: "widget",
            short_names: &[],
            categories: &[],
            scope: Scope::Namespaced,
            verbs: &Verb::ALL,
            subresources: vec![
                Subresource {
                    name: "status",
                    verbs: &[Verb::Get, Verb::Update, Verb::Patch],
                    kind: "Widget",
                    rest: Rest::None,
                    streaming: Streaming::Never,
                },
                Subresource {
                    name: "port",
                    verbs: &[Verb::Get],
                    kind: "Widget",
                    rest: Rest::Segment,
                    streaming: Streaming::Upgrades,
                },
            ],
            options: Vec::new(),
            schema: json!({"type": "object", "properties": {
                "spec": {"type": "object", "properties": {"size": {"type": "integer"}, "colour": {"type": "string"}}},
                "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
            }}),
            columns: vec![Column {
                name: "Size",
                kind: "integer",
                description: "",
                priority: 0,
            }],
        })
    }
}

fn keep(new: &mut Object, old: &Object, field: &str) {
    match old.fields().get(field) {
        Some(value) => new.fields_mut().insert(field.to_owned(), value.clone()),
        None => new.fields_mut().remove(field),
    };
}

impl Strategy for Widgets {
    fn resource(&self) -> &Resource {
        &self.0
    }

    fn default(&self, object: &mut Object) {
        let spec = object.fields_mut().entry("spec").or_insert(json!({}));
        if let Value::Object(spec) = spec {
            spec.entry("colour").or_insert(json!("red"));
        }
    }

    fn prepare_for_create(&self, object: &mut Object) {
        object.fields_mut().remove("status");
    }

    fn prepare_for_update(&self, new: &mut Object, old: &Object, subresource: Option<&str>) {
        keep(
            new,
            old,
            if subresource.is_some() {
                "spec"
            } else {
                "status"
            },
        );
    }

    fn validate(&self, object: &Object) -> Vec<Cause> {
        match object.pointer("/spec/size").and_then(Value::as_i64) {
            Some(size) if size > 9 => vec![invalid("spec.size", &json!(size), "must be at most 9")],
            _ => Vec::new(),
        }
    }

    fn validate_update(&self, new: &Object, _: &Object, _: Option<&str>) -> Vec<Cause> {
        self.validate(new)
    }

    fn cells(&self, object: &Object, _: i64) -> Vec<Value> {
        vec![object.pointer("/spec/size").cloned().unwrap_or_default()]
    }
}
