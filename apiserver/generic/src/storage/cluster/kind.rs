//! Which custom resource holds the envelopes, and its definition.

use serde_json::{Value, json};

use crate::Scope;

/// The custom resource of one stored kind. It has a name of its own, no short name and no
/// category, so that what users ask for is never ambiguous.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredKind {
    /// API group, `storage.example.com`.
    pub group: String,
    /// Version of the envelope, not of what is in it.
    pub version: String,
    /// Plural, `storedwidgets`.
    pub plural: String,
    /// Kind, `StoredWidget`.
    pub kind: String,
    /// As the served resource's.
    pub scope: Scope,
}

impl StoredKind {
    /// `storage.example.com/v1`.
    pub fn api_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }

    /// The finalizer that is on an envelope while the served object has any.
    pub fn finalizer(&self) -> String {
        format!("{}/served", self.group)
    }

    /// The CustomResourceDefinition, for the manifests.
    pub fn definition(&self) -> Value {
        let open = |description: &str| {
            json!({
                "type": "object", "description": description,
                "x-kubernetes-preserve-unknown-fields": true,
            })
        };
        let mut object = open("The served object.");
        object["x-kubernetes-map-type"] = json!("atomic");
        let scope = match self.scope {
            Scope::Namespaced => "Namespaced",
            Scope::Cluster => "Cluster",
        };
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{}.{}", self.plural, self.group)},
            "spec": {
                "group": self.group,
                "scope": scope,
                "names": {
                    "kind": self.kind, "listKind": format!("{}List", self.kind),
                    "plural": self.plural, "singular": self.kind.to_lowercase(),
                },
                "versions": [{
                    "name": self.version, "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {
                        "type": "object",
                        "description": "An object of an aggregated API server in its envelope. Written by that server only.",
                        "properties": {
                            "object": object,
                            "fence": open("Instead of an object: a replica's proof that its cache is current."),
                        },
                    }},
                }],
            },
        })
    }
}
