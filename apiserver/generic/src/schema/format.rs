//! The values in an object that have a certain `format`, wherever they are.

use serde_json::Value;

/// Every value whose schema has this format, with its field path as kube-apiserver spells it: an entry
/// of a map is `limits[cpu]`.
pub fn with_format<'v>(schema: &Value, value: &'v Value, format: &str) -> Vec<(String, &'v Value)> {
    let mut found = Vec::new();
    walk(schema, value, (format, String::new()), &mut found);
    found
}

fn walk<'v>(
    schema: &Value,
    value: &'v Value,
    (format, path): (&str, String),
    found: &mut Vec<(String, &'v Value)>,
) {
    if schema["format"] == format {
        found.push((path, value));
        return;
    }
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                let known = &schema["properties"][name];
                let (schema, path) = match known.is_object() {
                    true if path.is_empty() => (known, name.clone()),
                    true => (known, format!("{path}.{name}")),
                    false => (&schema["additionalProperties"], format!("{path}[{name}]")),
                };
                if schema.is_object() {
                    walk(schema, value, (format, path), found);
                }
            }
        }
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                let path = format!("{path}[{index}]");
                walk(&schema["items"], value, (format, path), found);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_found_in_lists_and_maps_and_nowhere_else() {
        let size = json!({"format": "quantity"});
        let schema = json!({"properties": {
            "size": size,
            "list": {"items": {"properties": {"limits": {"additionalProperties": size}}}},
            "text": {"type": "string"}
        }});
        let value = json!({"size": 1, "text": "2", "other": {"size": 3},
            "list": [{"limits": {"cpu": "x", "a.io/b": null}}, 5]});
        let found = with_format(&schema, &value, "quantity");
        let mut paths: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
        paths.sort_unstable();
        assert_eq!(
            paths,
            ["list[0].limits[a.io/b]", "list[0].limits[cpu]", "size"]
        );
    }
}
