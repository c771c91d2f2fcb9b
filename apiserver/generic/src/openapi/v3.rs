//! OpenAPI 3.0, one document per group and version.

use serde_json::{Map, Value, json};

use super::{
    meta::{self, Flavor},
    names,
    operations::{self, Input, Kind, Operation, Output, PATCH_TYPES, Query},
};
use crate::Resource;

const FLAVOR: Flavor = Flavor::V3;

/// The document of the rows of one group and version.
pub(super) fn document(rows: &[&Resource], info: &Value) -> Result<Value, serde_json::Error> {
    let mut schemas = meta::definitions(FLAVOR)?;
    let mut paths = Map::new();
    for row in rows {
        let of_row = json!([gvk(row, row.kind)]);
        schemas.insert(names::definition(row), object_schema(row, &of_row));
        schemas.insert(names::list_definition(row), list_schema(row));
        for options in &row.options {
            let mut schema = options.schema.clone();
            schema["x-kubernetes-group-version-kind"] = json!([gvk(row, options.kind)]);
            describe_type(&mut schema);
            schemas.insert(names::kind_definition(row, options.kind), schema);
        }
        for path in operations::paths(row) {
            paths.insert(path.path.clone(), path_item(row, &path));
        }
    }
    Ok(json!({
        "openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas},
    }))
}

/// `{group, version, kind}`.
pub(super) fn gvk(row: &Resource, kind: &str) -> Value {
    json!({"group": row.group, "version": row.version, "kind": kind})
}

fn object_schema(row: &Resource, gvk: &Value) -> Value {
    let mut schema = row.schema.clone();
    schema["x-kubernetes-group-version-kind"] = gvk.clone();
    schema["properties"]["metadata"] = FLAVOR.object_meta();
    describe_type(&mut schema);
    schema
}

/// Says what `apiVersion` and `kind` are, where the row does not.
pub(super) fn describe_type(schema: &mut Value) {
    for (field, text) in [
        (
            "apiVersion",
            "Version of the API in which the object is written.",
        ),
        ("kind", "Kind of the object."),
    ] {
        let slot = &mut schema["properties"][field];
        if slot.get("description").is_none() {
            *slot = json!({"type": "string", "description": text});
        }
    }
}

fn list_schema(row: &Resource) -> Value {
    json!({
        "description": format!("A list of {}.", row.kind), "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string", "description": "Version of the API in which the list is written."},
            "kind": {"type": "string", "description": "Kind of the list."},
            "metadata": FLAVOR.list_meta(),
            "items": {"type": "array", "description": "The objects.",
                "items": FLAVOR.reference(&names::definition(row))},
        },
        "x-kubernetes-group-version-kind": [gvk(row, &format!("{}List", row.kind))],
    })
}

fn path_item(row: &Resource, path: &operations::Path) -> Value {
    let mut item = Map::new();
    for operation in &path.operations {
        item.insert(operation.method.to_owned(), render(row, operation));
    }
    if !path.parameters.is_empty() {
        let parameters: Vec<Value> = path
            .parameters
            .iter()
            .map(|name| {
                json!({
                    "name": name, "in": "path", "required": true,
                    "description": describe_parameter(name),
                    "schema": {"type": "string", "uniqueItems": true},
                })
            })
            .collect();
        item.insert("parameters".to_owned(), json!(parameters));
    }
    Value::Object(item)
}

/// What a path parameter is.
pub(super) fn describe_parameter(name: &str) -> &'static str {
    match name {
        "namespace" => "Namespace of the object.",
        "name" => "Name of the object.",
        "port" => "Port to connect to.",
        _ => "Path below the subresource.",
    }
}

fn render(row: &Resource, operation: &Operation) -> Value {
    let mut out = json!({
        "tags": [names::tag(row)], "description": operation.description,
        "operationId": operation.id, "responses": responses(row, operation),
        "x-kubernetes-action": operation.action,
        "x-kubernetes-group-version-kind": gvk(row, operation.kind),
    });
    if !operation.query.is_empty() {
        out["parameters"] = operation.query.iter().map(query).collect();
    }
    if let Some(body) = request_body(row, operation) {
        out["requestBody"] = body;
    }
    out
}

fn query(q: &Query) -> Value {
    let kind = match q.kind {
        Kind::Text => "string",
        Kind::Number => "integer",
        Kind::Flag => "boolean",
    };
    json!({
        "name": q.name, "in": "query", "description": q.description,
        "schema": {"type": kind, "uniqueItems": true},
    })
}

fn request_body(row: &Resource, operation: &Operation) -> Option<Value> {
    let meta = |name: &str| FLAVOR.reference(&format!("{}.{name}", names::META));
    let content = |kinds: &[&str], schema: Value| {
        let of = |kind: &&str| ((*kind).to_owned(), json!({ "schema": schema }));
        Value::Object(kinds.iter().map(of).collect())
    };
    Some(match operation.input {
        Input::Nothing => return None,
        Input::Object => {
            let schema = FLAVOR.reference(&names::definition(row));
            json!({"required": true,
                "content": content(&["application/json", "application/yaml"], schema)})
        }
        Input::Patch => json!({"required": true, "content": content(&PATCH_TYPES, meta("Patch"))}),
        Input::DeleteOptions => {
            json!({"content": content(&["application/json"], meta("DeleteOptions"))})
        }
        Input::Options => {
            let schema = FLAVOR.reference(&names::kind_definition(row, operation.kind));
            json!({"content": content(&["application/json", "application/yaml"], schema)})
        }
    })
}

fn responses(row: &Resource, operation: &Operation) -> Value {
    let (kinds, schema): (&[&str], Value) = match operation.output {
        Output::Object => (
            &["application/json", "application/yaml"],
            FLAVOR.reference(&names::definition(row)),
        ),
        Output::List => (
            &[
                "application/json",
                "application/yaml",
                "application/json;stream=watch",
            ],
            FLAVOR.reference(&names::list_definition(row)),
        ),
        Output::Status => (
            &["application/json", "application/yaml"],
            FLAVOR.reference(&format!("{}.Status", names::META)),
        ),
        Output::Any => (&["*/*"], json!({"type": "string"})),
    };
    let content: Map<String, Value> = kinds
        .iter()
        .map(|kind| ((*kind).to_owned(), json!({ "schema": schema })))
        .collect();
    let of = |code: &u16| {
        (
            code.to_string(),
            json!({"description": describe_code(*code), "content": content}),
        )
    };
    let mut all: Map<String, Value> = operation.codes.iter().map(of).collect();
    all.insert("401".to_owned(), json!({"description": "Unauthorized"}));
    Value::Object(all)
}

/// What a code means.
pub(super) fn describe_code(code: u16) -> &'static str {
    match code {
        201 => "Created",
        202 => "Accepted",
        _ => "OK",
    }
}
