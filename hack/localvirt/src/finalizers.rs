//! Finalizers, as merge patches that fail if somebody else changed the list meanwhile.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

/// Whether the finalizer is not there.
pub fn missing(meta: &ObjectMeta, finalizer: &str) -> bool {
    !meta.finalizers.iter().flatten().any(|f| f == finalizer)
}

/// The patch that adds it.
pub fn added(meta: &ObjectMeta, finalizer: &str) -> Value {
    let list: Vec<&str> = others(meta, finalizer).chain([finalizer]).collect();
    patch(meta, &list)
}

/// The patch that removes it.
pub fn removed(meta: &ObjectMeta, finalizer: &str) -> Value {
    let list: Vec<&str> = others(meta, finalizer).collect();
    patch(meta, &list)
}

fn others<'a>(meta: &'a ObjectMeta, finalizer: &'a str) -> impl Iterator<Item = &'a str> {
    let all = meta.finalizers.iter().flatten().map(String::as_str);
    all.filter(move |f| *f != finalizer)
}

fn patch(meta: &ObjectMeta, finalizers: &[&str]) -> Value {
    json!({ "metadata": { "finalizers": finalizers, "resourceVersion": meta.resource_version } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_finalizers_of_others_stay() {
        let meta = ObjectMeta {
            finalizers: Some(vec!["a".into(), "b".into()]),
            resource_version: Some("7".into()),
            ..ObjectMeta::default()
        };
        assert!(missing(&meta, "c") && !missing(&meta, "a"));
        assert_eq!(
            added(&meta, "c")["metadata"]["finalizers"],
            json!(["a", "b", "c"])
        );
        assert_eq!(
            removed(&meta, "a"),
            json!({"metadata": {"finalizers": ["b"], "resourceVersion": "7"}})
        );
    }
}
