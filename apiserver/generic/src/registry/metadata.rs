//! What `metadata` may say
//! (`k8s.io/apimachinery/pkg/api/validation/objectmeta.go`).

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{
    causes::{forbidden, invalid, required, too_long},
    names::{label_key_faults, label_value_faults, subdomain_faults},
};
use crate::{Cause, Object};

/// Finalizer by which the garbage collector orphans dependents.
pub const ORPHAN: &str = "orphan";
/// Finalizer by which the garbage collector deletes dependents first.
pub const FOREGROUND: &str = "foregroundDeletion";

/// Most bytes of all annotations.
const ANNOTATIONS: usize = 256 << 10;

/// Problems of any object's metadata.
pub(super) fn validate(object: &Object) -> Vec<Cause> {
    let mut causes = Vec::new();
    name(object, &mut causes);
    if let Some(labels) = map(object, "labels") {
        causes.extend(label_causes(labels, "metadata.labels"));
    }
    if let Some(annotations) = map(object, "annotations") {
        causes.extend(annotation_causes(annotations, "metadata.annotations"));
    }
    finalizers(object, &mut causes);
    owners(object, &mut causes);
    causes
}

/// Problems of a change of metadata.
pub(super) fn validate_update(new: &Object, old: &Object) -> Vec<Cause> {
    let mut causes = validate(new);
    if old.deletion_timestamp().is_some() {
        let known: BTreeSet<&str> = old.finalizers().into_iter().collect();
        let added: Vec<&str> = new.finalizers();
        let added: Vec<&str> = added.into_iter().filter(|f| !known.contains(f)).collect();
        if !added.is_empty() {
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added
                    .iter()
                    .map(|f| format!("{f:?}"))
                    .collect::<Vec<_>>()
                    .join(", ")
            );
            causes.push(forbidden("metadata.finalizers", &why));
        }
    }
    causes
}

fn name(object: &Object, causes: &mut Vec<Cause>) {
    let name = object.name();
    if name.is_empty() {
        causes.push(required(
            "metadata.name",
            "name or generateName is required",
        ));
        return;
    }
    for why in subdomain_faults(name, "characters") {
        causes.push(invalid("metadata.name", &json!(name), &why));
    }
}

fn map<'a>(object: &'a Object, key: &str) -> Option<&'a Map<String, Value>> {
    object.metadata()?.get(key)?.as_object()
}

/// Problems of labels at a path, as `metadata.labels`.
pub fn label_causes(labels: &Map<String, Value>, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (key, value) in labels {
        let of_key = label_key_faults(key).into_iter();
        causes.extend(of_key.map(|why| invalid(path, &json!(key), &why)));
        let of_value = label_value_faults(value.as_str().unwrap_or_default()).into_iter();
        causes.extend(of_value.map(|why| invalid(path, value, &why)));
    }
    causes
}

/// Problems of annotations at a path, as `metadata.annotations`.
pub fn annotation_causes(annotations: &Map<String, Value>, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut bytes = 0;
    for (key, value) in annotations {
        bytes += key.len() + value.as_str().map_or(0, str::len);
        // Case does not matter here.
        let of_key = label_key_faults(&key.to_lowercase()).into_iter();
        causes.extend(of_key.map(|why| invalid(path, &json!(key), &why)));
    }
    if bytes > ANNOTATIONS {
        causes.push(too_long(path, ANNOTATIONS));
    }
    causes
}

fn finalizers(object: &Object, causes: &mut Vec<Cause>) {
    let finalizers = object.finalizers();
    for (i, finalizer) in finalizers.iter().enumerate() {
        for why in label_key_faults(finalizer) {
            let field = format!("metadata.finalizers[{i}]");
            causes.push(invalid(field, &json!(finalizer), &why));
        }
    }
    if finalizers.contains(&ORPHAN) && finalizers.contains(&FOREGROUND) {
        let why = format!("finalizer {ORPHAN} and {FOREGROUND} cannot be both set");
        causes.push(invalid("metadata.finalizers", &json!(finalizers), &why));
    }
}

fn owners(object: &Object, causes: &mut Vec<Cause>) {
    let owners = object.metadata().and_then(|m| m.get("ownerReferences"));
    let owners = owners.and_then(Value::as_array).into_iter().flatten();
    let mut controller: Option<&Value> = None;
    for (i, owner) in owners.enumerate() {
        for (key, why) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "kind must not be empty"),
            ("name", "name must not be empty"),
            ("uid", "uid must not be empty"),
        ] {
            if owner[key].as_str().unwrap_or_default().is_empty() {
                let field = format!("metadata.ownerReferences[{i}].{key}");
                causes.push(invalid(field, &json!(""), why));
            }
        }
        if owner["kind"] == "Event" && owner["apiVersion"] == "v1" {
            let why = "v1, Kind=Event is disallowed from being an owner";
            causes.push(invalid("metadata.ownerReferences", owner, why));
        }
        if owner["controller"] == true {
            if let Some(first) = controller {
                let why = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {} and {}",
                    kind_and_name(first),
                    kind_and_name(owner)
                );
                causes.push(invalid("metadata.ownerReferences", owner, &why));
            }
            controller = Some(owner);
        }
    }
}

fn kind_and_name(owner: &Value) -> String {
    let text = |key: &str| owner[key].as_str().unwrap_or_default().to_owned();
    format!("{}/{}", text("kind"), text("name"))
}

/// Removes repeated owner references; says whether there were any.
pub(super) fn dedup_owners(object: &mut Object) -> bool {
    let owners = object.metadata_mut().get_mut("ownerReferences");
    let Some(owners) = owners.and_then(Value::as_array_mut) else {
        return false;
    };
    let before = owners.len();
    let mut seen: Vec<Value> = Vec::new();
    owners.retain(|owner| {
        let new = !seen.contains(owner);
        if new {
            seen.push(owner.clone());
        }
        new
    });
    owners.len() < before
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(metadata: Value) -> Vec<String> {
        let object = Object::from_value(json!({"metadata": metadata})).unwrap();
        validate(&object).into_iter().map(|c| c.field).collect()
    }

    #[test]
    fn each_rule_names_its_field() {
        let owner = |name: &str| json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": "u", "controller": true});
        for (metadata, fields) in [
            (json!({"name": "a"}), vec![]),
            (json!({}), vec!["metadata.name"]),
            (json!({"name": "A"}), vec!["metadata.name"]),
            (
                json!({"name": "a", "labels": {"-": "x", "b": "y z"}}),
                vec!["metadata.labels"; 2],
            ),
            (
                json!({"name": "a", "annotations": {"a/b/c": ""}}),
                vec!["metadata.annotations"],
            ),
            (
                json!({"name": "a", "annotations": {"a": "x".repeat(ANNOTATIONS)}}),
                vec!["metadata.annotations"],
            ),
            (
                json!({"name": "a", "finalizers": ["ok", "not ok"]}),
                vec!["metadata.finalizers[1]"],
            ),
            (
                json!({"name": "a", "finalizers": ["orphan", "foregroundDeletion"]}),
                vec!["metadata.finalizers"],
            ),
            (
                json!({"name": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p"}]}),
                vec!["metadata.ownerReferences[0].uid"],
            ),
            (
                json!({"name": "a", "ownerReferences": [owner("p"), owner("q")]}),
                vec!["metadata.ownerReferences"],
            ),
        ] {
            assert_eq!(problems(metadata.clone()), fields, "{metadata}");
        }
    }

    #[test]
    fn a_terminating_object_gets_no_new_finalizers() {
        let object = |finalizers: Value| {
            let metadata = json!({"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": finalizers});
            Object::from_value(json!({"metadata": metadata})).unwrap()
        };
        let old = object(json!(["a"]));
        assert!(validate_update(&object(json!([])), &old).is_empty());
        let causes = validate_update(&object(json!(["a", "b"])), &old);
        assert_eq!(causes.len(), 1);
        assert!(
            causes[0]
                .message
                .ends_with("found new finalizers []string{\"b\"}")
        );
    }

    #[test]
    fn repeated_owners_are_dropped() {
        let owner = json!({"uid": "u"});
        let mut object =
            Object::from_value(json!({"metadata": {"ownerReferences": [owner, owner]}})).unwrap();
        assert!(dedup_owners(&mut object));
        assert!(!dedup_owners(&mut object));
    }
}
