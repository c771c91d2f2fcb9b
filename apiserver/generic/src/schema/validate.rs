//! Types, required fields, enums, bounds and lengths.

use serde_json::{Map, Value};

use crate::Cause;

/// At most this many causes are reported for one object; more help nobody.
const MAX_CAUSES: usize = 32;

/// Every place where `value` breaks `schema`; `path` is the field path of `value` (empty for the root).
pub fn validate(schema: &Value, value: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    check(schema, value, path, &mut causes);
    causes
}

fn check(schema: &Value, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    if causes.len() >= MAX_CAUSES {
        return;
    }
    if value.is_null() && schema["nullable"] == Value::Bool(true) {
        return;
    }
    if let Some(cause) = wrong_type(schema, value, path) {
        causes.push(cause);
        return;
    }
    causes.extend(outside_enum(schema, value, path));
    match value {
        Value::Object(map) => check_object(schema, map, path, causes),
        Value::Array(list) => check_array(schema, list, path, causes),
        Value::String(text) => check_string(schema, text, path, causes),
        Value::Number(_) => check_number(schema, value, path, causes),
        Value::Null | Value::Bool(_) => {}
    }
}

fn wrong_type(schema: &Value, value: &Value, path: &str) -> Option<Cause> {
    if schema["x-kubernetes-int-or-string"] == Value::Bool(true) {
        let quantity = schema["format"] == "quantity";
        let fits = value.is_string()
            || value.is_i64()
            || value.is_u64()
            || (quantity && value.is_number());
        return (!fits).then(|| type_cause(path, "integer,string", value));
    }
    let wanted = schema["type"].as_str()?;
    let fits = match wanted {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        _ => true,
    };
    (!fits).then(|| type_cause(path, wanted, value))
}

fn type_cause(path: &str, wanted: &str, value: &Value) -> Cause {
    let got = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let place = if path.is_empty() {
        String::new()
    } else {
        format!("{path} ")
    };
    cause(
        "FieldValueTypeInvalid",
        format!("Invalid value: \"{got}\": {place}in body must be of type {wanted}: \"{got}\""),
        path,
    )
}

fn outside_enum(schema: &Value, value: &Value, path: &str) -> Option<Cause> {
    let allowed = schema["enum"].as_array()?;
    if allowed.contains(value) {
        return None;
    }
    let list: Vec<String> = allowed.iter().map(Value::to_string).collect();
    let text = format!(
        "Unsupported value: {value}: supported values: {}",
        list.join(", ")
    );
    Some(cause("FieldValueNotSupported", text, path))
}

fn check_object(schema: &Value, map: &Map<String, Value>, path: &str, causes: &mut Vec<Cause>) {
    for name in schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
    {
        if !map.contains_key(name) {
            causes.push(cause(
                "FieldValueRequired",
                "Required value".into(),
                &child(path, name),
            ));
        }
    }
    let known = schema["properties"].as_object();
    let additional = &schema["additionalProperties"];
    for (name, value) in map {
        if let Some(schema) = known.and_then(|known| known.get(name)) {
            check(schema, value, &child(path, name), causes);
        } else if additional.is_object() {
            check(additional, value, &child(path, name), causes);
        }
    }
}

fn check_array(schema: &Value, list: &[Value], path: &str, causes: &mut Vec<Cause>) {
    for (key, less) in [("minItems", true), ("maxItems", false)] {
        let Some(bound) = schema[key].as_u64() else {
            continue;
        };
        let count = list.len() as u64;
        if (less && count < bound) || (!less && count > bound) {
            let word = if less { "at least" } else { "at most" };
            let text =
                format!("Invalid value: {count}: {path} in body should have {word} {bound} items");
            causes.push(cause("FieldValueInvalid", text, path));
        }
    }
    for (index, value) in list.iter().enumerate() {
        check(&schema["items"], value, &format!("{path}[{index}]"), causes);
    }
}

fn check_string(schema: &Value, text: &str, path: &str, causes: &mut Vec<Cause>) {
    let length = text.chars().count() as u64;
    if schema["minLength"].as_u64().is_some_and(|min| length < min) {
        causes.push(cause(
            "FieldValueRequired",
            "Required value: must not be empty".into(),
            path,
        ));
    }
    if let Some(max) = schema["maxLength"].as_u64().filter(|max| length > *max) {
        let text = format!("Too long: may not be more than {max} bytes");
        causes.push(cause("FieldValueTooLong", text, path));
    }
}

fn check_number(schema: &Value, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let Some(number) = value.as_f64() else { return };
    if let Some(min) = schema["minimum"].as_f64().filter(|min| number < *min) {
        let text = format!(
            "Invalid value: {value}: {path} in body should be greater than or equal to {min}"
        );
        causes.push(cause("FieldValueInvalid", text, path));
    }
    if let Some(max) = schema["maximum"].as_f64().filter(|max| number > *max) {
        let text =
            format!("Invalid value: {value}: {path} in body should be less than or equal to {max}");
        causes.push(cause("FieldValueInvalid", text, path));
    }
}

fn child(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

fn cause(reason: &str, message: String, field: &str) -> Cause {
    Cause {
        reason: reason.to_owned(),
        message,
        field: field.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_fault_names_its_field_and_kind() {
        let schema = json!({
            "type": "object",
            "required": ["spec"],
            "properties": {
                "spec": {"type": "object", "required": ["image"], "properties": {
                    "type": {"type": "string", "enum": ["a", "b"]},
                    "port": {"type": "integer", "minimum": 1, "maximum": 65535},
                    "list": {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}},
                    "map": {"type": "object", "additionalProperties": {"type": "string"}},
                    "cpu": {"x-kubernetes-int-or-string": true, "format": "quantity"},
                    "tcp": {"x-kubernetes-int-or-string": true}
                }}
            }
        });
        let table = [
            (json!({}), vec![("spec", "FieldValueRequired")]),
            (json!({"spec": 1}), vec![("spec", "FieldValueTypeInvalid")]),
            (
                json!({"spec": {"type": "c", "image": 1}}),
                vec![("spec.type", "FieldValueNotSupported")],
            ),
            (
                json!({"spec": {"image": 1, "port": 0}}),
                vec![("spec.port", "FieldValueInvalid")],
            ),
            (
                json!({"spec": {"image": 1, "port": "x"}}),
                vec![("spec.port", "FieldValueTypeInvalid")],
            ),
            (
                json!({"spec": {"image": 1, "list": []}}),
                vec![("spec.list", "FieldValueInvalid")],
            ),
            (
                json!({"spec": {"image": 1, "list": ["a", ""]}}),
                vec![("spec.list[1]", "FieldValueRequired")],
            ),
            (
                json!({"spec": {"image": 1, "map": {"k": true}}}),
                vec![("spec.map.k", "FieldValueTypeInvalid")],
            ),
            (
                json!({"spec": {"image": 1, "cpu": 0.5, "tcp": "http"}}),
                vec![],
            ),
            (
                json!({"spec": {"image": 1, "tcp": 0.5}}),
                vec![("spec.tcp", "FieldValueTypeInvalid")],
            ),
        ];
        for (value, expected) in table {
            let causes = validate(&schema, &value, "");
            let found: Vec<_> = causes
                .iter()
                .map(|c| (c.field.as_str(), c.reason.as_str()))
                .collect();
            assert_eq!(found, expected, "{value}");
        }
    }
}
