//! What Swagger 2.0 allows in a schema: leaving out what it lacks, and checking a document.
//!
//! kube-apiserver turns the merged document into protobuf with a strict parser. One unknown key in
//! one definition of one server makes that form 503 for every client in the cluster.

use serde_json::{Map, Value};

/// Keys of a Swagger 2.0 schema object, beside those that begin with `x-`.
const SCHEMA_KEYS: [&str; 30] = [
    "$ref",
    "format",
    "title",
    "description",
    "default",
    "multipleOf",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "maxProperties",
    "minProperties",
    "required",
    "enum",
    "type",
    "items",
    "allOf",
    "properties",
    "additionalProperties",
    "discriminator",
    "readOnly",
    "xml",
    "externalDocs",
    "example",
];

fn known(key: &str) -> bool {
    key.starts_with("x-") || SCHEMA_KEYS.contains(&key)
}

/// An OpenAPI 3.0 schema without what Swagger 2.0 lacks. What it then says is weaker, never wrong:
/// a field that may be null has no type, since a type would forbid null.
pub(super) fn strip(schema: &Value) -> Value {
    let Value::Object(map) = schema else {
        return schema.clone();
    };
    let nullable = map.get("nullable").and_then(Value::as_bool) == Some(true);
    let int_or_string = map.contains_key("x-kubernetes-int-or-string");
    let mut out = Map::new();
    for (key, value) in map {
        let typed = matches!(key.as_str(), "type" | "properties" | "items" | "enum");
        let dropped = nullable && typed || int_or_string && key == "type";
        if !known(key) || dropped || (key == "default" && value.is_null()) {
            continue;
        }
        out.insert(key.clone(), strip_value(key, value));
    }
    Value::Object(out)
}

fn strip_value(key: &str, value: &Value) -> Value {
    match (key, value) {
        ("properties", Value::Object(fields)) => {
            let field = |(name, schema): (&String, &Value)| (name.clone(), strip(schema));
            Value::Object(fields.iter().map(field).collect())
        }
        ("allOf", Value::Array(list)) => list.iter().map(strip).collect(),
        ("items" | "additionalProperties", schema) => strip(schema),
        _ => value.clone(),
    }
}

/// Checks what the strict parser would trip over: schema keys, names and dangling references.
pub(super) fn check(document: &Value) -> Result<(), String> {
    let empty = Map::new();
    let definitions = document["definitions"].as_object().unwrap_or(&empty);
    for (name, schema) in definitions {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if !name.chars().all(plain) {
            return Err(format!(
                "definition {name:?} has a name with other characters than A-Z a-z 0-9 . _ -"
            ));
        }
        check_schema(schema, name)?;
    }
    check_references(document, definitions)
}

fn check_schema(schema: &Value, at: &str) -> Result<(), String> {
    let Value::Object(map) = schema else {
        return if schema.is_boolean() {
            Ok(())
        } else {
            Err(format!("{at} is no schema"))
        };
    };
    for (key, value) in map {
        if !known(key) {
            return Err(format!("{at} has the key {key:?}"));
        }
        let below = format!("{at}.{key}");
        match (key.as_str(), value) {
            ("properties", Value::Object(fields)) => {
                for (name, schema) in fields {
                    check_schema(schema, &format!("{below}.{name}"))?;
                }
            }
            ("allOf", Value::Array(list)) => {
                for schema in list {
                    check_schema(schema, &below)?;
                }
            }
            ("items" | "additionalProperties", schema) => check_schema(schema, &below)?,
            _ => {}
        }
    }
    Ok(())
}

fn check_references(value: &Value, definitions: &Map<String, Value>) -> Result<(), String> {
    match value {
        Value::Object(map) => {
            if let Some(Value::String(reference)) = map.get("$ref") {
                let target = reference.strip_prefix("#/definitions/");
                if !target.is_some_and(|name| definitions.contains_key(name)) {
                    return Err(format!("{reference:?} refers to nothing"));
                }
            }
            map.values()
                .try_for_each(|v| check_references(v, definitions))
        }
        Value::Array(list) => list
            .iter()
            .try_for_each(|v| check_references(v, definitions)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_swagger_lacks_is_left_out_at_every_depth() {
        let schema = json!({
            "type": "object", "oneOf": [{}], "x-kubernetes-validations": [{"rule": "true"}],
            "properties": {
                "nullable": {"type": "string"},
                "maybe": {"type": "object", "nullable": true, "properties": {"a": {}}, "description": "d"},
                "port": {"x-kubernetes-int-or-string": true, "type": "string", "anyOf": []},
                "list": {"type": "array", "items": {"type": "string", "not": {}, "default": null}},
                "map": {"type": "object", "additionalProperties": {"type": "string", "const": 1}},
            },
        });
        let stripped = strip(&schema);
        assert_eq!(
            stripped,
            json!({
                "type": "object", "x-kubernetes-validations": [{"rule": "true"}],
                "properties": {
                    "nullable": {"type": "string"},
                    "maybe": {"description": "d"},
                    "port": {"x-kubernetes-int-or-string": true},
                    "list": {"type": "array", "items": {"type": "string"}},
                    "map": {"type": "object", "additionalProperties": {"type": "string"}},
                },
            })
        );
        assert_eq!(check_schema(&stripped, "x"), Ok(()));
        assert!(check_schema(&schema, "x").unwrap_err().contains("oneOf"));
    }

    #[test]
    fn names_and_references_are_checked() {
        for (definitions, fault) in [
            (json!({"a/b": {}}), "other characters"),
            (json!({"a": {"SchemaProps": 1}}), "SchemaProps"),
            (
                json!({"a": {"$ref": "#/definitions/b"}}),
                "refers to nothing",
            ),
            (json!({"a": {"items": {"nullable": true}}}), "a.items"),
        ] {
            let error = check(&json!({ "definitions": definitions })).unwrap_err();
            assert!(error.contains(fault), "{error}");
        }
    }
}
