//! A Kubernetes object as data: JSON with typed access to its metadata.
//!
//! Objects are never parsed through typed structs on their way in: fields that our structs do not
//! know must survive, and quantities and times must come back as their author wrote them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// A JSON object with `apiVersion`, `kind` and `metadata`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Object(Map<String, Value>);

impl Object {
    /// Takes a JSON object; gives the value back when it is something else.
    pub fn from_value(value: Value) -> Result<Self, Value> {
        match value {
            Value::Object(map) => Ok(Self(map)),
            other => Err(other),
        }
    }

    /// The JSON value.
    pub fn into_value(self) -> Value {
        Value::Object(self.0)
    }

    /// The fields.
    pub fn fields(&self) -> &Map<String, Value> {
        &self.0
    }

    /// The fields, to change.
    pub fn fields_mut(&mut self) -> &mut Map<String, Value> {
        &mut self.0
    }

    /// The value at an RFC 6901 pointer, as `/spec/type`.
    pub fn pointer(&self, pointer: &str) -> Option<&Value> {
        let (first, rest) = pointer.strip_prefix('/')?.split_once('/').map_or_else(
            || (pointer.trim_start_matches('/'), None),
            |(first, rest)| (first, Some(format!("/{rest}"))),
        );
        let value = self.0.get(first)?;
        rest.map_or(Some(value), |rest| value.pointer(&rest))
    }

    /// The string at a pointer.
    pub fn str_at(&self, pointer: &str) -> Option<&str> {
        self.pointer(pointer)?.as_str()
    }

    /// `metadata`, if it is an object.
    pub fn metadata(&self) -> Option<&Map<String, Value>> {
        self.0.get("metadata")?.as_object()
    }

    /// `metadata`, made if absent; something that is no object is replaced.
    pub fn metadata_mut(&mut self) -> &mut Map<String, Value> {
        let slot = self.0.entry("metadata").or_insert_with(|| json!({}));
        if !slot.is_object() {
            *slot = json!({});
        }
        match slot {
            Value::Object(map) => map,
            _ => unreachable!("replaced by an object above"),
        }
    }

    fn meta_str(&self, key: &str) -> Option<&str> {
        self.metadata()?
            .get(key)?
            .as_str()
            .filter(|s| !s.is_empty())
    }

    /// `metadata.name`.
    pub fn name(&self) -> &str {
        self.meta_str("name").unwrap_or_default()
    }

    /// `metadata.namespace`.
    pub fn namespace(&self) -> Option<&str> {
        self.meta_str("namespace")
    }

    /// `metadata.uid`.
    pub fn uid(&self) -> Option<&str> {
        self.meta_str("uid")
    }

    /// `metadata.resourceVersion`.
    pub fn resource_version(&self) -> Option<&str> {
        self.meta_str("resourceVersion")
    }

    /// `metadata.deletionTimestamp`.
    pub fn deletion_timestamp(&self) -> Option<&str> {
        self.meta_str("deletionTimestamp")
    }

    /// `metadata.generation`, 0 when absent.
    pub fn generation(&self) -> i64 {
        self.metadata()
            .and_then(|m| m.get("generation")?.as_i64())
            .unwrap_or_default()
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.metadata()?.get("labels")?.get(key)?.as_str()
    }

    /// The value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata()?.get("annotations")?.get(key)?.as_str()
    }

    /// `metadata.finalizers`.
    pub fn finalizers(&self) -> Vec<&str> {
        self.metadata()
            .and_then(|m| m.get("finalizers")?.as_array())
            .map(|list| list.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default()
    }

    /// Sets a string in `metadata`; an empty one removes the key.
    pub fn set_meta(&mut self, key: &str, value: &str) {
        if value.is_empty() {
            self.metadata_mut().remove(key);
        } else {
            self.metadata_mut().insert(key.to_owned(), json!(value));
        }
    }

    /// Removes a key of `metadata`.
    pub fn remove_meta(&mut self, key: &str) {
        self.metadata_mut().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_reach_every_depth() {
        let object = Object::from_value(json!({"spec": {"a": {"b": 1}}, "kind": "K"})).unwrap();
        assert_eq!(object.str_at("/kind"), Some("K"));
        assert_eq!(object.pointer("/spec/a/b"), Some(&json!(1)));
        assert_eq!(object.pointer("/spec/x"), None);
        assert_eq!(object.pointer("kind"), None);
    }
}
