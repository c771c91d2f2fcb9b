//! The shared types of `meta.v1`.
//!
//! `meta.v1.json` holds the definitions as kube-apiserver 1.37 publishes them in OpenAPI v2 (from
//! `k8s.io/apimachinery`, Apache License 2.0, The Kubernetes Authors), without their groups,
//! versions and kinds. When kube-apiserver merges version 2 of all servers, a definition that
//! differs from its own of the same name is kept beside it under a new name, and a kind that two
//! definitions carry breaks consumers; equal ones without kinds are simply one.

use serde_json::{Map, Value, json};

use super::names::META;

const DEFINITIONS: &str = include_str!("meta.v1.json");

/// Where definitions are referred to: `#/definitions/` or `#/components/schemas/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flavor {
    /// Swagger 2.0.
    V2,
    /// OpenAPI 3.0.
    V3,
}

impl Flavor {
    /// `{"$ref": …}`.
    pub(super) fn reference(self, name: &str) -> Value {
        let place = match self {
            Self::V2 => "#/definitions/",
            Self::V3 => "#/components/schemas/",
        };
        json!({ "$ref": format!("{place}{name}") })
    }

    /// A reference with a description beside it. Version 3.0 ignores what stands beside `$ref`, so
    /// it goes into an `allOf` there.
    fn described(self, name: &str, description: &str) -> Value {
        let reference = self.reference(name);
        match self {
            Self::V2 => json!({"description": description, "$ref": reference["$ref"]}),
            Self::V3 => json!({"description": description, "allOf": [reference], "default": {}}),
        }
    }

    /// An object's `metadata`.
    pub(super) fn object_meta(self) -> Value {
        self.described(&format!("{META}.ObjectMeta"), "Standard object's metadata.")
    }

    /// A list's `metadata`.
    pub(super) fn list_meta(self) -> Value {
        self.described(&format!("{META}.ListMeta"), "Standard list metadata.")
    }
}

/// The definitions, by full name.
///
/// # Errors
/// When the data in the program is no JSON object, which a test rules out.
pub(super) fn definitions(flavor: Flavor) -> Result<Map<String, Value>, serde_json::Error> {
    let mut definitions: Map<String, Value> = serde_json::from_str(DEFINITIONS)?;
    if flavor == Flavor::V3 {
        definitions.values_mut().for_each(refer_as_v3);
    }
    Ok(definitions)
}

/// Rewrites references of version 2 for version 3.
fn refer_as_v3(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            map.values_mut().for_each(refer_as_v3);
            let reference = match map.get("$ref") {
                Some(Value::String(text)) => text.strip_prefix("#/definitions/").map(str::to_owned),
                _ => None,
            };
            let Some(name) = reference else {
                return;
            };
            *schema = match map.get("description").and_then(Value::as_str) {
                Some(description) => Flavor::V3.described(&name, description),
                None => Flavor::V3.reference(&name),
            };
        }
        Value::Array(list) => list.iter_mut().for_each(refer_as_v3),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_of_version_3_leads_to_a_schema() {
        let schemas = definitions(Flavor::V3).unwrap();
        let text = serde_json::to_string(&schemas).unwrap();
        assert!(!text.contains("#/definitions/"));
        for reference in text.split("#/components/schemas/").skip(1) {
            let name = reference.split('"').next().unwrap();
            assert!(schemas.contains_key(name), "{name}");
        }
        let owners = &schemas["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"]["properties"];
        assert_eq!(
            owners["ownerReferences"]["x-kubernetes-patch-merge-key"],
            "uid"
        );
        assert!(owners["creationTimestamp"]["allOf"].is_array());
    }
}
