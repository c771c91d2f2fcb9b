//! A small resource table for tests.

use serde_json::json;

use crate::{
    Resource, Scope, Subresource, Verb,
    resource::{Column, OptionsKind, Rest, Streaming},
};

/// Namespaced robots with a status and a console, and cluster-wide boxes that can only be read.
pub(crate) fn rows() -> Vec<Resource> {
    let robot = Resource {
        group: "toys.example.com",
        version: "v1",
        kind: "Robot",
        plural: "robots",
        singular: "robot",
        short_names: &["rb"],
        categories: &["all"],
        scope: Scope::Namespaced,
        verbs: &Verb::ALL,
        subresources: vec![
            Subresource {
                name: "status",
                verbs: &[Verb::Get, Verb::Update, Verb::Patch],
                kind: "Robot",
                rest: Rest::None,
                streaming: Streaming::Never,
            },
            Subresource {
                name: "console",
                verbs: &[Verb::Get, Verb::Create],
                kind: "Robot",
                rest: Rest::None,
                streaming: Streaming::Upgrades,
            },
            Subresource {
                name: "proxy",
                verbs: &[Verb::Get, Verb::Update],
                kind: "RobotProxyOptions",
                rest: Rest::Path,
                streaming: Streaming::Always,
            },
            Subresource {
                name: "spin",
                verbs: &[Verb::Create],
                kind: "RobotSpinOptions",
                rest: Rest::None,
                streaming: Streaming::Never,
            },
        ],
        options: vec![OptionsKind {
            kind: "RobotSpinOptions",
            schema: json!({"type": "object", "properties": {"fast": {"type": "boolean"}}}),
        }],
        schema: json!({
            "description": "A robot.", "type": "object",
            "properties": {
                "apiVersion": {"type": "string"}, "kind": {"type": "string"},
                "metadata": {"type": "object"},
                "spec": {"type": "object", "description": "What it should do.", "properties": {
                    "speed": {"x-kubernetes-int-or-string": true,
                        "anyOf": [{"type": "integer"}, {"type": "string"}]},
                    "arm": {"type": "string", "nullable": true, "enum": ["left", "right"]},
                    "tags": {"type": "object", "additionalProperties": {"type": "string"}},
                }},
            },
        }),
        columns: vec![Column {
            name: "Speed",
            kind: "string",
            description: "How fast it is.",
            priority: 0,
        }],
    };
    let boxes = Resource {
        kind: "Box",
        plural: "boxes",
        singular: "box",
        short_names: &[],
        categories: &[],
        scope: Scope::Cluster,
        verbs: &[Verb::Get, Verb::List],
        subresources: Vec::new(),
        options: Vec::new(),
        ..robot.clone()
    };
    vec![robot, boxes]
}
