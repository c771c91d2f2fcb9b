//! OpenAPI 2.0 (Swagger), one document for all.
//!
//! kube-apiserver keeps of it what lies under our paths and merges that with its own.

use serde_json::{Map, Value, json};

use super::{
    meta::{self, Flavor},
    names,
    operations::{self, Input, Kind, Operation, Output, PATCH_TYPES, Query},
    swagger,
    v3::{describe_code, describe_parameter, describe_type, gvk},
};
use crate::Resource;

const FLAVOR: Flavor = Flavor::V2;

/// The document.
pub(super) fn document(rows: &[Resource], info: &Value) -> Result<Value, serde_json::Error> {
    let mut definitions = meta::definitions(FLAVOR)?;
    let mut paths = Map::new();
    for row in rows {
        definitions.insert(names::definition(row), object_schema(row));
        definitions.insert(names::list_definition(row), list_schema(row));
        for options in &row.options {
            let mut schema = swagger::strip(&options.schema);
            schema["x-kubernetes-group-version-kind"] = json!([gvk(row, options.kind)]);
            describe_type(&mut schema);
            definitions.insert(names::kind_definition(row, options.kind), schema);
        }
        for path in operations::paths(row) {
            paths.insert(path.path.clone(), path_item(row, &path));
        }
    }
    Ok(json!({"swagger": "2.0", "info": info, "paths": paths, "definitions": definitions}))
}

fn object_schema(row: &Resource) -> Value {
    let mut schema = swagger::strip(&row.schema);
    schema["x-kubernetes-group-version-kind"] = json!([gvk(row, row.kind)]);
    describe_type(&mut schema);
    schema["properties"]["metadata"] = FLAVOR.object_meta();
    schema
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
                    "name": name, "in": "path", "required": true, "type": "string",
                    "uniqueItems": true, "description": describe_parameter(name),
                })
            })
            .collect();
        item.insert("parameters".to_owned(), json!(parameters));
    }
    Value::Object(item)
}

fn render(row: &Resource, operation: &Operation) -> Value {
    let consumes: &[&str] = match operation.input {
        Input::Patch => &PATCH_TYPES,
        Input::Nothing => &["*/*"],
        Input::Object | Input::Options => &["application/json", "application/yaml"],
        Input::DeleteOptions => &["application/json"],
    };
    let produces: &[&str] = match operation.output {
        Output::Any => &["*/*"],
        Output::List => &[
            "application/json",
            "application/yaml",
            "application/json;stream=watch",
        ],
        Output::Object | Output::Status => &["application/json", "application/yaml"],
    };
    let mut parameters: Vec<Value> = body(row, operation).into_iter().collect();
    parameters.extend(operation.query.iter().map(query));
    let mut out = json!({
        "tags": [names::tag(row)], "description": operation.description,
        "operationId": operation.id, "schemes": ["https"],
        "consumes": consumes, "produces": produces, "responses": responses(row, operation),
        "x-kubernetes-action": operation.action,
        "x-kubernetes-group-version-kind": gvk(row, operation.kind),
    });
    if !parameters.is_empty() {
        out["parameters"] = json!(parameters);
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
        "name": q.name, "in": "query", "type": kind, "uniqueItems": true,
        "description": q.description,
    })
}

fn body(row: &Resource, operation: &Operation) -> Option<Value> {
    let meta = |name: &str| FLAVOR.reference(&format!("{}.{name}", names::META));
    let body = |schema: Value, required: bool| {
        let mut body = json!({"name": "body", "in": "body", "schema": schema});
        if required {
            body["required"] = json!(true);
        }
        body
    };
    match operation.input {
        Input::Nothing => None,
        Input::Object => Some(body(FLAVOR.reference(&names::definition(row)), true)),
        Input::Patch => Some(body(meta("Patch"), true)),
        Input::DeleteOptions => Some(body(meta("DeleteOptions"), false)),
        Input::Options => {
            let name = names::kind_definition(row, operation.kind);
            Some(body(FLAVOR.reference(&name), false))
        }
    }
}

fn responses(row: &Resource, operation: &Operation) -> Value {
    let schema = match operation.output {
        Output::Object => FLAVOR.reference(&names::definition(row)),
        Output::List => FLAVOR.reference(&names::list_definition(row)),
        Output::Status => FLAVOR.reference(&format!("{}.Status", names::META)),
        Output::Any => json!({"type": "string"}),
    };
    let of = |code: &u16| {
        (
            code.to_string(),
            json!({"description": describe_code(*code), "schema": schema}),
        )
    };
    let mut all: Map<String, Value> = operation.codes.iter().map(of).collect();
    all.insert("401".to_owned(), json!({"description": "Unauthorized"}));
    Value::Object(all)
}
