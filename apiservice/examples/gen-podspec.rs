//! Writes `schema/podspec.json`: the closure of PodSpec from a kube-apiserver's own OpenAPI v3.
//!
//! ```sh
//! kubectl get --raw /openapi/v3/api/v1 | cargo run -p apiservice --example gen-podspec > apiservice/schema/podspec.json
//! ```

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

const PREFIX: &str = "#/components/schemas/";
const ROOT: &str = "io.k8s.api.core.v1.PodSpec";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let document: Value = serde_json::from_reader(std::io::stdin())?;
    let schemas = document["components"]["schemas"]
        .as_object()
        .ok_or("no components.schemas")?;
    let mut done = BTreeMap::new();
    let mut todo = BTreeSet::from([ROOT.to_owned()]);
    while let Some(name) = todo.pop_first() {
        let schema = schemas
            .get(&name)
            .ok_or_else(|| format!("no schema {name}"))?;
        references(schema, &mut todo);
        done.insert(name, schema.clone());
        todo.retain(|name| !done.contains_key(name));
    }
    println!(
        "{}",
        serde_json::to_string(&json!({"root": ROOT, "schemas": done}))?
    );
    Ok(())
}

fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            if let Some(name) = map
                .get("$ref")
                .and_then(Value::as_str)
                .and_then(|r| r.strip_prefix(PREFIX))
            {
                found.insert(name.to_owned());
            }
            map.values().for_each(|v| references(v, found));
        }
        Value::Array(list) => list.iter().for_each(|v| references(v, found)),
        _ => {}
    }
}
