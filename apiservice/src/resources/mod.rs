//! The resource table. A resource is a row (data) and a strategy (decisions); everything else —
//! discovery, OpenAPI, RBAC manifests, stored CRDs — follows from it.

mod actions;
mod cells;
mod images;
mod sessions;
mod workspaces;

pub use images::ImageStrategy;
pub use sessions::SessionStrategy;
pub use workspaces::{HOST_KEYS, WorkspaceStrategy};

use std::sync::Arc;

use apiserver_generic::{Object, Strategy};

/// All served resources.
pub fn all() -> Vec<Arc<dyn Strategy>> {
    vec![
        Arc::new(WorkspaceStrategy::new()),
        Arc::new(ImageStrategy::new()),
        Arc::new(SessionStrategy::new()),
    ]
}

/// `/status` changes only the status; the main resource changes everything else.
fn isolate_status(new: &mut Object, old: &Object, subresource: Option<&str>) {
    if subresource == Some("status") {
        let status = new.fields_mut().remove("status");
        let metadata = carry_metadata(new, old);
        *new = old.clone();
        *new.metadata_mut() = metadata;
        if let Some(status) = status {
            new.fields_mut().insert("status".to_owned(), status);
        }
    } else {
        match old.fields().get("status") {
            Some(status) => new.fields_mut().insert("status".to_owned(), status.clone()),
            None => new.fields_mut().remove("status"),
        };
    }
}

/// A status update may not change metadata, but it carries the preconditions of its writer and the
/// ownership that the write leaves behind.
fn carry_metadata(new: &Object, old: &Object) -> serde_json::Map<String, serde_json::Value> {
    let mut metadata = old.metadata().cloned().unwrap_or_default();
    for key in ["resourceVersion", "managedFields"] {
        match new.metadata().and_then(|m| m.get(key)) {
            Some(value) => metadata.insert(key.to_owned(), value.clone()),
            None => metadata.remove(key),
        };
    }
    metadata
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(value: serde_json::Value) -> Object {
        Object::from_value(value).unwrap()
    }

    #[test]
    fn status_and_spec_are_isolated() {
        let old = object(
            json!({"metadata": {"name": "a", "labels": {"l": "1"}, "resourceVersion": "1"},
            "spec": {"x": 1}, "status": {"s": 1}}),
        );
        let sent = object(
            json!({"metadata": {"name": "a", "labels": {"l": "2"}, "resourceVersion": "2"},
            "spec": {"x": 2}, "status": {"s": 2}}),
        );
        let mut main = sent.clone();
        isolate_status(&mut main, &old, None);
        assert_eq!(main.pointer("/status/s"), Some(&json!(1)));
        assert_eq!(main.pointer("/spec/x"), Some(&json!(2)));
        let mut status = sent;
        isolate_status(&mut status, &old, Some("status"));
        assert_eq!(status.pointer("/status/s"), Some(&json!(2)));
        assert_eq!(status.pointer("/spec/x"), Some(&json!(1)));
        assert_eq!(status.label("l"), Some("1"));
        assert_eq!(status.resource_version(), Some("2"));
    }

    #[test]
    fn every_row_is_complete() {
        for strategy in all() {
            let row = strategy.resource();
            assert!(!row.singular.is_empty() && row.singular == row.singular.to_lowercase());
            assert_eq!(row.schema["type"], "object", "{}", row.plural);
            let example = object(json!({"metadata": {"name": "x"}}));
            assert_eq!(
                strategy.cells(&example, 0).len(),
                row.columns.len(),
                "{}",
                row.plural
            );
            let text = row.schema.to_string();
            for banned in [
                "$ref",
                "nullable",
                "oneOf",
                "\"const\"",
                "$schema",
                ",null]",
            ] {
                assert!(!text.contains(banned), "{} has {banned}", row.plural);
            }
        }
    }
}
