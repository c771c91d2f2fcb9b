//! The custom resources that hold the served objects: `storage.kubeworkspaces.io/v1`.
//!
//! An envelope's `metadata` has namespace, name and at most one finalizer of ours; its `object` is
//! the served object. Names differ from the served ones so that `kubectl get workspaces` is never
//! ambiguous; there is no short name, no category, and no user role.

use apiserver_generic::{Resource, storage::cluster::StoredKind};
use serde_json::{Value, json};

/// The group of the stored kinds.
pub const GROUP: &str = "storage.kubeworkspaces.io";
/// Their version; it only wraps.
pub const VERSION: &str = "v1";

/// The custom resource that holds a resource's objects: `storedworkspaces`, `StoredWorkspace`.
pub fn kind_of(resource: &Resource) -> StoredKind {
    StoredKind {
        group: GROUP.to_owned(),
        version: VERSION.to_owned(),
        plural: format!("stored{}", resource.plural),
        kind: format!("Stored{}", resource.kind),
        scope: resource.scope,
    }
}

/// Its CustomResourceDefinition, for the manifests.
pub fn custom_resource_definition(resource: &Resource) -> Value {
    let mut definition = kind_of(resource).definition();
    definition["metadata"]["labels"] = json!({"app.kubernetes.io/part-of": "kubeworkspaces"});
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"] = json!(format!(
        "Storage of one {} of {}. Written by the workspaces API server only: use `kubectl get {}.{}`.",
        resource.kind,
        resource.api_version(),
        resource.plural,
        resource.group
    ));
    definition
}
