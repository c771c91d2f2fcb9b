//! Whether the stored kind keeps what this server writes: asked by a write that is not carried out.
//!
//! Manifests make the stored kinds, never the server, so that either may be older than the other. A
//! schema that lacks a field drops it without a word; the strict dry run says so, needs no further
//! rights, and asks the backend itself instead of a document about it.

use http::Request;
use kube::core::Status;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ClusterStorage, PATIENCE, kind::StoredKind};
use crate::storage::Key;

/// Why objects of the stored kind may not survive as they are written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaFault {
    /// The kind is not there.
    #[error("{0} is not served: apply the server's CustomResourceDefinitions")]
    Absent(String),
    /// It drops what this server writes.
    #[error(
        "stored schema older than this server: {0}; apply the CustomResourceDefinitions that came with it"
    )]
    Older(String),
    /// It no longer takes what this server writes.
    #[error(
        "stored schema newer than this server: {0}; run the server that the CustomResourceDefinitions came with"
    )]
    Newer(String),
    /// The backend did not say; why is for the log, since it may name accounts and addresses.
    #[error("the stored schema could not be checked; the server's log says why")]
    Unknown(String),
}

#[derive(Deserialize)]
struct Group {
    versions: Vec<GroupVersion>,
}

#[derive(Deserialize)]
struct GroupVersion {
    version: String,
}

impl ClusterStorage {
    /// Asks. Nothing is stored.
    ///
    /// # Errors
    /// Why this server's objects may not survive.
    pub async fn check_schema(&self) -> Result<(), SchemaFault> {
        let kind = self.requests.kind();
        let sent = probe(kind, self.fence.key());
        let request = self.requests.try_create(self.fence.key(), &sent);
        let request = request.map_err(|error| SchemaFault::Unknown(error.to_string()))?;
        let asking = tokio::time::timeout(PATIENCE, self.client.request::<Value>(request));
        let fault = match asking.await {
            Ok(Ok(kept)) => return compare(kind, &sent, &kept),
            Ok(Err(kube::Error::Api(status))) => judge(kind, &status),
            Ok(Err(error)) => SchemaFault::Unknown(error.to_string()),
            Err(_) => SchemaFault::Unknown(format!("no answer within {} s", PATIENCE.as_secs())),
        };
        Err(match fault {
            SchemaFault::Absent(what) => self.absent(what).await,
            fault => fault,
        })
    }

    /// A group that is there without our version has outgrown us.
    async fn absent(&self, what: String) -> SchemaFault {
        let StoredKind { group, version, .. } = self.requests.kind();
        let request = Request::get(format!("/apis/{group}")).body(Vec::new());
        let Ok(request) = request else {
            return SchemaFault::Absent(what);
        };
        let asking = tokio::time::timeout(PATIENCE, self.client.request::<Group>(request));
        match asking.await {
            Ok(Ok(found)) => outgrown(version, &found)
                .map_or(SchemaFault::Absent(what), |others| {
                    SchemaFault::Newer(format!("{group} serves {others} and not {version}"))
                }),
            _ => SchemaFault::Absent(what),
        }
    }
}

fn outgrown(version: &str, found: &Group) -> Option<String> {
    let versions: Vec<&str> = found.versions.iter().map(|v| v.version.as_str()).collect();
    let outgrown = !versions.is_empty() && !versions.contains(&version);
    outgrown.then(|| versions.join(", "))
}

/// An envelope with every field that this server writes.
fn probe(kind: &StoredKind, key: &Key) -> Value {
    let anything = json!({"probe": {"kept": [1, "a", true]}});
    json!({
        "apiVersion": kind.api_version(), "kind": kind.kind,
        "metadata": {
            "name": format!("probe.{}", key.name), "namespace": key.namespace,
            "finalizers": [kind.finalizer()],
        },
        "object": anything, "fence": anything,
    })
}

fn compare(kind: &StoredKind, sent: &Value, kept: &Value) -> Result<(), SchemaFault> {
    for field in ["object", "fence"] {
        if kept[field] != sent[field] {
            let what = format!("{} does not keep the field {field:?}", kind.plural);
            return Err(SchemaFault::Older(what));
        }
    }
    Ok(())
}

fn judge(kind: &StoredKind, status: &Status) -> SchemaFault {
    let about = status.details.as_ref().map(|d| d.kind.as_str());
    let said = |what: &str| format!("{} {what}: {}", kind.plural, status.message);
    match status.code {
        400 if status.message.contains("unknown field") => {
            SchemaFault::Older(said("drops a field"))
        }
        404 if about != Some("namespaces") => {
            SchemaFault::Absent(format!("{} of {}", kind.plural, kind.api_version()))
        }
        422 => SchemaFault::Newer(said("refuses what this server writes")),
        _ => SchemaFault::Unknown(said("was asked")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scope;

    fn kind() -> StoredKind {
        StoredKind {
            group: "storage.example.com".into(),
            version: "v1".into(),
            plural: "storedwidgets".into(),
            kind: "StoredWidget".into(),
            scope: Scope::Namespaced,
        }
    }

    #[test]
    fn what_is_dropped_is_named() {
        let sent = probe(&kind(), &Key::namespaced("ns", "fence.1"));
        assert_eq!(sent["metadata"]["name"], "probe.fence.1");
        assert_eq!(compare(&kind(), &sent, &sent), Ok(()));
        for (pointer, field) in [("/object/probe", "object"), ("/fence", "fence")] {
            let mut kept = sent.clone();
            *kept.pointer_mut(pointer).unwrap() = Value::Null;
            let fault = compare(&kind(), &sent, &kept).unwrap_err().to_string();
            assert!(
                fault.starts_with("stored schema older than this server"),
                "{fault}"
            );
            assert!(fault.contains(&format!("{field:?}")), "{fault}");
        }
    }

    #[test]
    fn refusals_tell_which_side_is_older() {
        for (status, words) in [
            (
                json!({"code": 400, "message": "strict decoding error: unknown field \"fence\""}),
                "older than this server: storedwidgets drops a field",
            ),
            (
                json!({"code": 404, "message": "the server could not find the requested resource", "details": {}}),
                "storedwidgets of storage.example.com/v1 is not served",
            ),
            (
                json!({"code": 404, "message": "namespaces \"ns\" not found", "details": {"kind": "namespaces", "name": "ns"}}),
                "could not be checked",
            ),
            (
                json!({"code": 422, "message": "spec: Required value"}),
                "newer than this server",
            ),
            (
                json!({"code": 403, "message": "no"}),
                "could not be checked",
            ),
            (
                json!({"code": 400, "message": "no"}),
                "could not be checked",
            ),
        ] {
            let fault = judge(&kind(), &serde_json::from_value(status).unwrap());
            assert!(fault.to_string().contains(words), "{fault}");
        }
        let versions = |list: &[&str]| Group {
            versions: list
                .iter()
                .map(|v| GroupVersion {
                    version: (*v).to_owned(),
                })
                .collect(),
        };
        assert_eq!(outgrown("v1", &versions(&["v2", "v1"])), None);
        assert_eq!(outgrown("v1", &versions(&["v2"])).as_deref(), Some("v2"));
        assert_eq!(outgrown("v1", &versions(&[])), None);
    }
}
