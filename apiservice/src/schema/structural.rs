//! From a Rust type to a structural schema: no `$ref`, no `nullable`, enums as `enum`.

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value, json};

/// The structural schema of a kind; `metadata` stays an object that ObjectMeta describes.
pub fn of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::openapi3().with(|s| s.inline_subschemas = true);
    let mut schema = settings
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value();
    tidy(&mut schema);
    let properties = &mut schema["properties"];
    properties["apiVersion"] = json!({"type": "string", "description":
        "APIVersion defines the versioned schema of this representation of an object."});
    properties["kind"] = json!({"type": "string", "description":
        "Kind is a string value representing the REST resource this object represents."});
    properties["metadata"] = json!({"type": "object", "description": "Standard object metadata."});
    schema
}

/// The structural schema of options, which have a type and no metadata.
pub fn of_options<T: JsonSchema>() -> Value {
    let mut schema = of::<T>();
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.remove("metadata");
    }
    schema
}

fn tidy(schema: &mut Value) {
    let Value::Object(fields) = schema else {
        return;
    };
    for key in ["$schema", "title", "nullable", "components"] {
        fields.remove(key);
    }
    // An integer type's bounds stay, its Rust name as format goes.
    if fields
        .get("format")
        .and_then(Value::as_str)
        .is_some_and(|f| f.starts_with("uint"))
    {
        fields.insert("format".to_owned(), json!("int32"));
    }
    unwrap_single(fields);
    enumerate(fields);
    plain_texts(fields);
    if let Some(Value::Array(values)) = fields.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    // serde's empty values are no defaults that anybody means to have written into objects.
    if fields
        .get("default")
        .is_none_or(|d| d.as_str().is_none_or(str::is_empty))
    {
        fields.remove("default");
    }
    for key in ["items", "additionalProperties"] {
        if let Some(value) = fields.get_mut(key) {
            tidy(value);
        }
    }
    if let Some(Value::Object(properties)) = fields.get_mut("properties") {
        properties.values_mut().for_each(tidy);
    }
}

/// Doc comments are wrapped for the code's readers; descriptions flow.
fn plain_texts(fields: &mut Map<String, Value>) {
    if let Some(Value::String(text)) = fields.get_mut("description") {
        *text = text
            .split("\n\n")
            .map(|paragraph| paragraph.replace('\n', " "))
            .collect::<Vec<_>>()
            .join("\n\n");
    }
}

/// `allOf: [x]` and `anyOf: [x, {nullable}]`, which schemars writes around described fields.
fn unwrap_single(fields: &mut Map<String, Value>) {
    for key in ["allOf", "anyOf"] {
        let Some(Value::Array(list)) = fields.get(key) else {
            continue;
        };
        let Some(Value::Object(inner)) = list.first().cloned() else {
            continue;
        };
        fields.remove(key);
        for (name, value) in inner {
            fields.entry(name).or_insert(value);
        }
    }
}

/// `oneOf` of constants is an `enum` whose values are described together.
fn enumerate(fields: &mut Map<String, Value>) {
    let Some(Value::Array(variants)) = fields.get("oneOf") else {
        return;
    };
    let values: Vec<Value> = variants
        .iter()
        .flat_map(|v| {
            v["enum"]
                .as_array()
                .cloned()
                .unwrap_or_else(|| vec![v["const"].clone()])
        })
        .collect();
    fields.remove("oneOf");
    fields.insert("type".to_owned(), json!("string"));
    fields.insert("enum".to_owned(), Value::Array(values));
}
