//! The schema of `metadata`, which is the same for all objects
//! (`k8s.io/apimachinery/pkg/apis/meta/v1/types.go`, ObjectMeta).

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::prune::Node;
use crate::Object;

static OBJECT_META: LazyLock<Value> = LazyLock::new(|| {
    let string = json!({"type": "string"});
    let integer = json!({"type": "integer"});
    let boolean = json!({"type": "boolean"});
    let strings = json!({"type": "object", "additionalProperties": string});
    json!({"type": "object", "properties": {
        "name": string, "generateName": string, "namespace": string, "selfLink": string,
        "uid": string, "resourceVersion": string, "generation": integer,
        "creationTimestamp": string, "deletionTimestamp": string,
        "deletionGracePeriodSeconds": integer,
        "labels": strings, "annotations": strings,
        "finalizers": {"type": "array", "items": string},
        "ownerReferences": {"type": "array", "items": {"type": "object", "properties": {
            "apiVersion": string, "kind": string, "name": string, "uid": string,
            "controller": boolean, "blockOwnerDeletion": boolean,
        }}},
        "managedFields": {"type": "array", "items": {"type": "object", "properties": {
            "manager": string, "operation": string, "apiVersion": string, "time": string,
            "fieldsType": string, "subresource": string,
            "fieldsV1": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }}},
    }})
});

/// The schema of `metadata`, for objects that hold another's, as a pod template does.
pub fn object_meta() -> Value {
    OBJECT_META.clone()
}

pub(super) fn prune_metadata(object: &mut Object) -> Vec<String> {
    let mut unknown = Vec::new();
    if let Some(metadata) = object.fields_mut().get_mut("metadata") {
        Node::of(&OBJECT_META).prune(metadata, "metadata", &mut unknown);
    }
    unknown
}

/// Refuses metadata whose fields have the wrong JSON type, in the words of Go's decoder; drops
/// fields that are null, which mean the same as absent.
///
/// # Errors
/// The first fault.
pub fn check_metadata(object: &mut Object) -> Result<(), String> {
    match object.fields_mut().get_mut("metadata") {
        None => Ok(()),
        Some(metadata) => check(metadata, &OBJECT_META, "metadata"),
    }
}

fn check(value: &mut Value, schema: &Value, path: &str) -> Result<(), String> {
    let wanted = schema["type"].as_str().unwrap_or_default();
    match (wanted, value) {
        ("object", Value::Object(fields)) => {
            fields.retain(|_, value| !value.is_null());
            for (key, value) in fields {
                let properties = schema.get("properties").and_then(|p| p.get(key));
                let Some(of) = properties.or_else(|| schema.get("additionalProperties")) else {
                    continue;
                };
                let is_map = schema.get("properties").is_none();
                let path = if is_map {
                    path.to_owned()
                } else {
                    format!("{path}.{key}")
                };
                check(value, of, &path)?;
            }
            Ok(())
        }
        ("array", Value::Array(items)) => {
            let each = &schema["items"];
            items
                .iter_mut()
                .try_for_each(|item| check(item, each, path))
        }
        ("string", Value::String(_)) | ("boolean", Value::Bool(_)) => Ok(()),
        ("integer", Value::Number(n)) if n.is_i64() => Ok(()),
        (_, other) => Err(format!(
            "json: cannot unmarshal {} into Go struct field ObjectMeta.{path} of type {}",
            type_of(other),
            go_type(wanted)
        )),
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn go_type(schema_type: &str) -> &str {
    match schema_type {
        "integer" => "int64",
        "boolean" => "bool",
        "object" => "map[string]interface {}",
        "array" => "[]interface {}",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_types_are_refused_and_nulls_dropped() {
        for (metadata, fault) in [
            (json!({"name": "a", "labels": null, "generation": 1}), None),
            (
                json!({"labels": {"a": 1}}),
                Some("number into Go struct field ObjectMeta.metadata.labels of type string"),
            ),
            (
                json!({"name": 7}),
                Some("number into Go struct field ObjectMeta.metadata.name of type string"),
            ),
            (
                json!({"ownerReferences": [{"controller": "yes"}]}),
                Some(
                    "string into Go struct field ObjectMeta.metadata.ownerReferences.controller of type bool",
                ),
            ),
            (
                json!([]),
                Some(
                    "array into Go struct field ObjectMeta.metadata of type map[string]interface {}",
                ),
            ),
        ] {
            let mut object = Object::from_value(json!({"metadata": metadata})).unwrap();
            match (check_metadata(&mut object), fault) {
                (Ok(()), None) => assert!(object.metadata().unwrap().get("labels").is_none()),
                (Err(is), Some(expected)) => assert!(is.ends_with(expected), "{is}"),
                (is, expected) => panic!("{metadata}: {is:?}, not {expected:?}"),
            }
        }
    }
}
