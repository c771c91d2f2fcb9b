//! PodSpec's schema, taken from kube-apiserver's OpenAPI v3 and made structural.
//!
//! `schema/podspec.json` is generated (`examples/gen-podspec.rs`); it holds the closure of PodSpec
//! with `$ref`s, as kube-apiserver publishes it (Apache-2.0).

use std::sync::OnceLock;

use serde_json::{Map, Value, json};

const DOCUMENT: &str = include_str!("../../schema/podspec.json");
const PREFIX: &str = "#/components/schemas/";

/// Deeper than any path in PodSpec; a cycle would otherwise never end.
const MAX_DEPTH: usize = 32;

/// The structural schema of PodSpec, every reference inlined.
pub fn pod_spec() -> Value {
    static SCHEMA: OnceLock<Value> = OnceLock::new();
    SCHEMA.get_or_init(build).clone()
}

fn build() -> Value {
    let document: Value = serde_json::from_str(DOCUMENT).unwrap_or_default();
    let root = document["root"].as_str().unwrap_or_default();
    inline(&document["schemas"], &document["schemas"][root], MAX_DEPTH)
}

fn inline(all: &Value, schema: &Value, depth: usize) -> Value {
    if depth == 0 {
        return json!({"x-kubernetes-preserve-unknown-fields": true});
    }
    let Value::Object(fields) = schema else {
        return schema.clone();
    };
    if let Some(name) = reference(fields) {
        return with_siblings(
            special(name).unwrap_or_else(|| inline(all, &all[name], depth - 1)),
            fields,
        );
    }
    let mut out = Map::new();
    for (key, value) in fields {
        match (key.as_str(), value) {
            // Go's zero values, not defaults that anybody means; `protocol` is a list-map key.
            ("default", value) if value != "TCP" => {}
            // Built-in types say strategic merge; we do not, so kubectl must not read it.
            ("x-kubernetes-patch-strategy" | "x-kubernetes-patch-merge-key", _) => {}
            ("properties", Value::Object(map)) => {
                let inlined = map
                    .iter()
                    .map(|(k, v)| (k.clone(), inline(all, v, depth - 1)))
                    .collect();
                out.insert(key.clone(), Value::Object(inlined));
            }
            ("items" | "additionalProperties", value) => {
                out.insert(key.clone(), inline(all, value, depth - 1));
            }
            (_, value) => {
                out.insert(key.clone(), value.clone());
            }
        }
    }
    Value::Object(out)
}

/// The name that `$ref`, or `allOf` with a single `$ref`, points at.
fn reference(fields: &Map<String, Value>) -> Option<&str> {
    let direct = fields.get("$ref");
    let wrapped = || fields.get("allOf")?.as_array()?.first()?.get("$ref");
    direct.or_else(wrapped)?.as_str()?.strip_prefix(PREFIX)
}

fn with_siblings(mut schema: Value, fields: &Map<String, Value>) -> Value {
    for (key, value) in fields {
        if key == "description" || key.starts_with("x-kubernetes-map-type") {
            schema[key] = value.clone();
        }
    }
    schema
}

/// Types whose JSON form a structural schema spells differently.
fn special(name: &str) -> Option<Value> {
    let last = name.rsplit('.').next()?;
    match last {
        "Quantity" => Some(json!({"x-kubernetes-int-or-string": true, "format": "quantity"})),
        "IntOrString" => Some(json!({"x-kubernetes-int-or-string": true})),
        "Time" | "MicroTime" => Some(json!({"type": "string", "format": "date-time"})),
        "FieldsV1" => Some(json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_is_inlined_and_lists_keep_their_keys() {
        let schema = pod_spec();
        let text = schema.to_string();
        assert!(!text.contains("$ref") && !text.contains("patch-strategy"));
        let ports = &schema["properties"]["containers"]["items"]["properties"]["ports"];
        assert_eq!(
            ports["x-kubernetes-list-map-keys"],
            json!(["containerPort", "protocol"])
        );
        let limits = &schema["properties"]["containers"]["items"]["properties"]["resources"]["properties"]
            ["limits"];
        assert_eq!(
            limits["additionalProperties"]["x-kubernetes-int-or-string"],
            json!(true)
        );
        assert_eq!(schema["required"], json!(["containers"]));
    }
}
