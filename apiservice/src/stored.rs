//! The custom resources that hold the served objects: `storage.kubeworkspaces.io/v1`.
//!
//! An envelope's `metadata` has namespace, name and at most one finalizer of ours; its `object` is
//! the served object. Names differ from the served ones so that `kubectl get workspaces` is never
//! ambiguous; there is no short name, no category, and no user role.

use apiserver_generic::{Resource, Scope};
use serde_json::{Value, json};

/// The group of the stored kinds.
pub const GROUP: &str = "storage.kubeworkspaces.io";
/// Their version; it only wraps.
pub const VERSION: &str = "v1";

/// Plural of the stored kind, `storedworkspaces`.
pub fn plural(resource: &Resource) -> String {
    format!("stored{}", resource.plural)
}

/// Kind of the stored kind, `StoredWorkspace`.
pub fn kind(resource: &Resource) -> String {
    format!("Stored{}", resource.kind)
}

/// The CustomResourceDefinition of a stored kind.
pub fn custom_resource_definition(resource: &Resource) -> Value {
    let plural = plural(resource);
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.{GROUP}"),
            "labels": {"app.kubernetes.io/part-of": "kubeworkspaces"},
        },
        "spec": {
            "group": GROUP,
            "scope": match resource.scope { Scope::Namespaced => "Namespaced", Scope::Cluster => "Cluster" },
            "names": {
                "plural": plural,
                "singular": format!("stored{}", resource.singular),
                "kind": kind(resource),
                "listKind": format!("{}List", kind(resource)),
            },
            "versions": [{
                "name": VERSION, "served": true, "storage": true,
                "schema": {"openAPIV3Schema": envelope(resource)},
            }],
        },
    })
}

fn envelope(resource: &Resource) -> Value {
    json!({
        "type": "object",
        "description": format!("Storage of one {} of {}. Written by the workspaces API server only: use `kubectl get {}.{}`.",
            resource.kind, resource.api_version(), resource.plural, resource.group),
        "properties": {"object": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": true,
            "x-kubernetes-map-type": "atomic",
        }},
    })
}
