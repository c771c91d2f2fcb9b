//! Fields that are null.
//!
//! For a built-in type they mean the same as absent, since Go's decoder leaves the field alone;
//! manifests that were printed by Go have some (`creationTimestamp: null`). In a custom resource
//! they would be of the wrong type.

use serde_json::Value;

/// Drops null fields of structures, where the schema knows them. An entry of a map or of a list stays
/// as it is.
pub fn drop_nulls(value: &mut Value, schema: &Value) {
    match value {
        Value::Object(fields) => {
            let known = |key: &str| schema.get("properties").and_then(|p| p.get(key));
            fields.retain(|key, value| {
                !(value.is_null() && known(key).is_some_and(|s| s["nullable"] != true))
            });
            for (key, value) in fields {
                if let Some(of) = known(key).or_else(|| schema.get("additionalProperties")) {
                    drop_nulls(value, of);
                }
            }
        }
        Value::Array(items) => {
            if let Some(each) = schema.get("items") {
                items.iter_mut().for_each(|item| drop_nulls(item, each));
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_go_and_entries_stay() {
        let text = json!({"type": "string"});
        let schema = json!({"type": "object", "properties": {
            "time": text, "may": {"type": "string", "nullable": true},
            "map": {"type": "object", "additionalProperties": text},
            "list": {"type": "array", "items": {"type": "object", "properties": {"a": text}}},
        }});
        let mut value = json!({"time": null, "may": null, "unknown": null,
            "map": {"a": null}, "list": [null, {"a": null, "b": null}]});
        drop_nulls(&mut value, &schema);
        let left =
            json!({"may": null, "unknown": null, "map": {"a": null}, "list": [null, {"b": null}]});
        assert_eq!(value, left);
    }
}
