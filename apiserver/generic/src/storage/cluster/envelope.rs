//! The envelope: `{apiVersion, kind, metadata, object}`. Pure.
//!
//! The served object is in `object` as it is, without its resourceVersion, which is the
//! envelope's. Our finalizer is on the envelope while the served object has any, so that a direct
//! deletion waits; it then shows in the served object as a deletionTimestamp.

use serde::Deserialize;
use serde_json::{Value, json};

use super::kind::StoredKind;
use crate::{
    Object,
    storage::{Key, Revision, StorageError, Stored},
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    name: String,
    namespace: Option<String>,
    resource_version: String,
    deletion_timestamp: Option<String>,
}

/// An envelope as the backend sends it.
#[derive(Deserialize)]
pub(super) struct Envelope {
    metadata: Meta,
    object: Option<Object>,
    fence: Option<Fence>,
}

#[derive(Deserialize)]
struct Fence {
    #[serde(default)]
    at: i64,
}

/// A replica's fence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FenceSeen {
    pub(super) key: Key,
    pub(super) revision: Revision,
    /// Unix seconds by its writer's clock.
    pub(super) at: i64,
}

/// What an envelope holds.
pub(super) enum Content {
    Object(Stored),
    Fence(FenceSeen),
}

impl Envelope {
    /// When it was written.
    pub(super) fn revision(&self) -> Result<Revision, StorageError> {
        revision(&self.metadata.resource_version)
    }

    /// The served object; a fence is no object.
    pub(super) fn stored(self) -> Result<Stored, StorageError> {
        match self.content()? {
            Content::Object(stored) => Ok(stored),
            Content::Fence(_) => Err(StorageError::NotFound),
        }
    }

    /// What it holds.
    pub(super) fn content(self) -> Result<Content, StorageError> {
        let revision = self.revision()?;
        let key = Key {
            namespace: self.metadata.namespace,
            name: self.metadata.name,
        };
        if let Some(fence) = self.fence {
            let at = fence.at;
            return Ok(Content::Fence(FenceSeen { key, revision, at }));
        }
        let Some(mut object) = self.object else {
            let text = format!("the envelope of {key} holds no object");
            return Err(StorageError::Failed(text));
        };
        object.set_meta("name", &key.name);
        object.set_meta("namespace", key.namespace.as_deref().unwrap_or_default());
        object.set_meta("resourceVersion", &revision.to_string());
        if let Some(deleted) = &self.metadata.deletion_timestamp
            && object.deletion_timestamp().is_none()
        {
            object.set_meta("deletionTimestamp", deleted);
            let metadata = object.metadata_mut();
            metadata.insert("deletionGracePeriodSeconds".to_owned(), json!(0));
        }
        Ok(Content::Object(Stored {
            key,
            object,
            revision,
        }))
    }
}

/// A resourceVersion of the backend.
pub(super) fn revision(text: &str) -> Result<Revision, StorageError> {
    match text.parse() {
        Ok(number) => Ok(Revision(number)),
        Err(_) => Err(StorageError::Failed(format!(
            "the backend's resourceVersion {text:?} is no number"
        ))),
    }
}

/// The envelope to write.
pub(super) fn document(
    kind: &StoredKind,
    key: &Key,
    object: &Object,
    expected: Option<Revision>,
) -> Value {
    let mut object = object.clone();
    object.remove_meta("resourceVersion");
    let mut metadata = json!({"name": key.name});
    if let Some(namespace) = &key.namespace {
        metadata["namespace"] = json!(namespace);
    }
    if !object.finalizers().is_empty() {
        metadata["finalizers"] = json!([kind.finalizer()]);
    }
    if let Some(expected) = expected {
        metadata["resourceVersion"] = json!(expected.to_string());
    }
    json!({
        "apiVersion": kind.api_version(), "kind": kind.kind,
        "metadata": metadata, "object": object,
    })
}

/// The envelope that the backend marked for deletion, without what holds it.
pub(super) fn released(mut envelope: Value) -> Result<Value, StorageError> {
    match envelope.get_mut("metadata").and_then(Value::as_object_mut) {
        Some(metadata) => {
            metadata.remove("finalizers");
            metadata.remove("managedFields");
            Ok(envelope)
        }
        None => Err(StorageError::Failed(
            "the backend answered a deletion with neither a Status nor an object".to_owned(),
        )),
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

    fn served(metadata: Value) -> Object {
        Object::from_value(
            json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata}),
        )
        .unwrap()
    }

    fn decode(envelope: Value) -> Result<Stored, StorageError> {
        serde_json::from_value::<Envelope>(envelope)
            .unwrap()
            .stored()
    }

    #[test]
    fn an_object_comes_back_as_it_was_with_the_backends_version() {
        let key = Key::namespaced("ns", "a");
        let object = served(
            json!({"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "1", "labels": {"x": "y"}}),
        );
        let mut envelope = document(&kind(), &key, &object, None);
        assert_eq!(envelope["object"]["metadata"].get("resourceVersion"), None);
        assert_eq!(
            envelope["metadata"],
            json!({"name": "a", "namespace": "ns"})
        );
        envelope["metadata"]["resourceVersion"] = json!("7");
        let stored = decode(envelope).unwrap();
        assert_eq!((stored.key, stored.revision), (key, Revision(7)));
        assert_eq!(stored.object.resource_version(), Some("7"));
        assert_eq!(
            (stored.object.uid(), stored.object.label("x")),
            (Some("u"), Some("y"))
        );
    }

    #[test]
    fn our_finalizer_is_there_while_the_served_object_has_any() {
        let object = served(json!({"name": "a", "finalizers": ["foregroundDeletion"]}));
        let envelope = document(&kind(), &Key::cluster("a"), &object, Some(Revision(3)));
        assert_eq!(
            envelope["metadata"],
            json!({"name": "a", "resourceVersion": "3", "finalizers": ["storage.example.com/served"]})
        );
        let released = released(envelope).unwrap();
        assert_eq!(released["metadata"].get("finalizers"), None);
        assert_eq!(
            released["object"]["metadata"]["finalizers"],
            json!(["foregroundDeletion"])
        );
    }

    #[test]
    fn a_direct_deletion_shows_in_the_served_object() {
        let metadata = json!({"name": "a", "resourceVersion": "9", "deletionTimestamp": "2026-01-01T00:00:00Z"});
        let object = |own: Value| json!({"metadata": metadata, "object": {"metadata": own}});
        let stored = decode(object(json!({}))).unwrap();
        assert_eq!(
            stored.object.deletion_timestamp(),
            Some("2026-01-01T00:00:00Z")
        );
        let earlier = json!({"deletionTimestamp": "2025-01-01T00:00:00Z"});
        let stored = decode(object(earlier)).unwrap();
        assert_eq!(
            stored.object.deletion_timestamp(),
            Some("2025-01-01T00:00:00Z")
        );
    }

    #[test]
    fn a_fence_is_no_object() {
        let fence = json!({"metadata": {"name": "f", "resourceVersion": "9"}, "fence": {"at": 5}});
        assert_eq!(decode(fence), Err(StorageError::NotFound));
    }

    #[test]
    fn an_empty_envelope_is_a_fault_that_names_it() {
        let error = decode(json!({"metadata": {"name": "f", "resourceVersion": "9"}})).unwrap_err();
        assert_eq!(
            error.to_string(),
            "storage failed: the envelope of f holds no object"
        );
    }
}
