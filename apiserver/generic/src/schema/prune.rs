//! Dropping what a schema does not know, and saying where it was.
//!
//! Mirrors `k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning`.

use serde_json::Value;

use super::metadata;
use crate::Object;

/// Fields that every object has, whatever its schema says.
const TYPE_META: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Drops the fields that the schema does not know; returns their paths, as `spec.list[0].foo`.
pub fn prune(object: &mut Object, schema: &Value) -> Vec<String> {
    let mut unknown = metadata::prune_metadata(object);
    let mut value = Value::Object(std::mem::take(object.fields_mut()));
    let root = Node {
        schema: Some(schema),
        is_object: true,
    };
    root.prune(&mut value, "", &mut unknown);
    if let Value::Object(fields) = value {
        *object.fields_mut() = fields;
    }
    unknown.sort();
    unknown
}

/// A schema at one place of the document.
#[derive(Clone, Copy)]
pub(super) struct Node<'a> {
    /// `None`: nothing is known here.
    schema: Option<&'a Value>,
    /// Whether it is a whole object, with type and metadata.
    is_object: bool,
}

impl<'a> Node<'a> {
    pub(super) fn of(schema: &'a Value) -> Self {
        Self {
            schema: Some(schema),
            is_object: schema["x-kubernetes-embedded-resource"] == true,
        }
    }

    fn preserves(self) -> bool {
        self.schema
            .is_some_and(|s| s["x-kubernetes-preserve-unknown-fields"] == true)
    }

    pub(super) fn prune(self, value: &mut Value, path: &str, unknown: &mut Vec<String>) {
        match value {
            Value::Object(fields) => fields.retain(|key, value| {
                let path = join(path, key);
                let keep = self.keeps(key, value, &path, unknown);
                if !keep {
                    unknown.push(path);
                }
                keep
            }),
            Value::Array(items) => {
                let Some(schema) = self.schema.and_then(|s| s.get("items")) else {
                    return;
                };
                for (i, item) in items.iter_mut().enumerate() {
                    Node::of(schema).prune(item, &format!("{path}[{i}]"), unknown);
                }
            }
            _ => {}
        }
    }

    fn keeps(self, key: &str, value: &mut Value, path: &str, unknown: &mut Vec<String>) -> bool {
        if self.is_object && TYPE_META.contains(&key) {
            return true;
        }
        if let Some(schema) = self.schema.and_then(|s| s.get("properties")?.get(key)) {
            Node::of(schema).prune(value, path, unknown);
            return true;
        }
        match self.schema.and_then(|s| s.get("additionalProperties")) {
            Some(Value::Bool(allowed)) => *allowed || self.preserves(),
            Some(schema) => {
                Node::of(schema).prune(value, path, unknown);
                true
            }
            None => self.preserves(),
        }
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pruned(object: Value) -> (Value, Vec<String>) {
        let schema = json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "type": {"type": "string"},
                "list": {"type": "array", "items": {"type": "object", "properties": {"a": {}}}},
                "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"a": {}}}},
                "any": {"type": "object", "additionalProperties": true},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    "properties": {"known": {"type": "object", "properties": {"a": {}}}}},
                "port": {"x-kubernetes-int-or-string": true},
                "embedded": {"type": "object", "x-kubernetes-embedded-resource": true,
                    "properties": {"spec": {"type": "object", "properties": {}}}},
            }},
        }});
        let mut object = Object::from_value(object).unwrap();
        let unknown = prune(&mut object, &schema);
        (object.into_value(), unknown)
    }

    #[test]
    fn unknown_fields_go_and_are_named() {
        for (spec, left, unknown) in [
            (
                json!({"type": "vm", "foo": 1}),
                json!({"type": "vm"}),
                vec!["spec.foo"],
            ),
            (
                json!({"list": [{"a": 1, "b": 2}]}),
                json!({"list": [{"a": 1}]}),
                vec!["spec.list[0].b"],
            ),
            (
                json!({"map": {"k": {"a": 1, "b": 2}}}),
                json!({"map": {"k": {"a": 1}}}),
                vec!["spec.map.k.b"],
            ),
            (
                json!({"any": {"k": {"b": 2}}}),
                json!({"any": {"k": {"b": 2}}}),
                vec![],
            ),
            (
                json!({"free": {"x": {"y": 1}, "known": {"z": 1}}}),
                json!({"free": {"x": {"y": 1}, "known": {}}}),
                vec!["spec.free.known.z"],
            ),
            (json!({"port": "http"}), json!({"port": "http"}), vec![]),
            (
                json!({"embedded": {"kind": "Pod", "metadata": {}, "foo": 1}}),
                json!({"embedded": {"kind": "Pod", "metadata": {}}}),
                vec!["spec.embedded.foo"],
            ),
        ] {
            let (object, named) = pruned(json!({"apiVersion": "v1", "kind": "K", "spec": spec}));
            assert_eq!(
                object,
                json!({"apiVersion": "v1", "kind": "K", "spec": left})
            );
            assert_eq!(named, unknown);
        }
    }

    #[test]
    fn metadata_has_a_schema_of_its_own() {
        let (object, unknown) = pruned(
            json!({"metadata": {"name": "a", "labels": {"x": "y"}, "colour": "red",
            "ownerReferences": [{"uid": "u", "foo": 1}]}, "extra": 1}),
        );
        assert_eq!(
            object,
            json!({"metadata": {"name": "a", "labels": {"x": "y"}, "ownerReferences": [{"uid": "u"}]}})
        );
        assert_eq!(
            unknown,
            [
                "extra",
                "metadata.colour",
                "metadata.ownerReferences[0].foo"
            ]
        );
    }
}
