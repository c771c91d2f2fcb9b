//! What of a planned body waits for a better moment.

use apiserver_generic::Object;
use serde_json::Value;

use crate::plan::{Child, ChildKind};

/// The body to apply over a live object.
///
/// A change of the workspace's labels or annotations must not restart a running pod: pods keep
/// the metadata that they have until the workspace is stopped the next time.
pub(super) fn over(child: &Child, live: Option<&Object>) -> Value {
    let mut body = child.body.clone();
    let is_pods = matches!(child.kind, ChildKind::StatefulSet | ChildKind::Deployment);
    let current = live.and_then(|live| live.pointer("/spec/template/metadata"));
    if let Some(current) = current.filter(|_| is_pods && body["spec"]["replicas"] != 0) {
        let mut kept = serde_json::Map::new();
        for field in ["labels", "annotations"] {
            if let Some(map) = current.get(field) {
                kept.insert(field.to_owned(), map.clone());
            }
        }
        body["spec"]["template"]["metadata"] = Value::Object(kept);
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn child(kind: ChildKind, replicas: i32) -> Child {
        Child {
            kind,
            name: "demo".into(),
            body: json!({"spec": {"replicas": replicas, "template": {
                "metadata": {"labels": {"a": "new"}}, "spec": {"x": "new"}}}}),
        }
    }

    #[test]
    fn new_labels_wait_until_no_pod_runs() {
        let live = json!({"spec": {"template": {
            "metadata": {"labels": {"a": "old"}, "annotations": {"b": "old"}, "creationTimestamp": null},
            "spec": {"x": "old"}}}});
        let live = Object::from_value(live).unwrap();
        for kind in [ChildKind::StatefulSet, ChildKind::Deployment] {
            let running = over(&child(kind, 1), Some(&live));
            let template = &running["spec"]["template"];
            let kept = json!({"labels": {"a": "old"}, "annotations": {"b": "old"}});
            assert_eq!(template["metadata"], kept);
            assert_eq!(
                template["spec"]["x"], "new",
                "the pod itself is what is asked for"
            );
            for (replicas, live) in [(0, Some(&live)), (1, None)] {
                let child = child(kind, replicas);
                assert_eq!(over(&child, live), child.body);
            }
        }
    }

    #[test]
    fn machines_are_applied_as_planned() {
        let live = Object::from_value(json!({"spec": {"template": {"metadata": {}}}})).unwrap();
        let machine = child(ChildKind::VirtualMachine, 1);
        assert_eq!(over(&machine, Some(&live)), machine.body);
    }
}
