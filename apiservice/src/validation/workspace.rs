//! A valid workspace.

use std::collections::BTreeSet;

use apiserver_generic::{
    Cause, Object,
    registry::{annotation_causes, label_causes},
};
use serde_json::Value;

use super::{amounts, by_schema, cause, dns_label, invalid, name, pod, ssh};
use crate::resources::HOST_KEYS;

const TEMPLATE: &str = "/spec/template/metadata";
const CONTAINERS: &str = "spec.template.spec.containers";

/// Problems of a Workspace.
pub fn workspace(row: &Value, object: &Object) -> Vec<Cause> {
    if let Err(causes) = by_schema(row, object) {
        return causes;
    }
    let mut causes = Vec::from_iter(name(object));
    causes.extend(template_metadata(object));
    causes.extend(containers(object));
    causes.extend(guest_mounts(object));
    causes.extend(amounts::quantities(row, object));
    let spec = object.pointer("/spec/template/spec");
    let spec = spec.unwrap_or(&Value::Null);
    causes.extend(match object.str_at("/spec/type") {
        Some("vm") => pod::machine(spec),
        _ => pod::pod(spec),
    });
    causes
}

/// Problems of a change to a Workspace.
pub fn workspace_update(
    row: &Value,
    new: &Object,
    old: &Object,
    subresource: Option<&str>,
) -> Vec<Cause> {
    if matches!(subresource, Some("status" | HOST_KEYS)) {
        return match by_schema(row, new) {
            Ok(()) => ssh::host_keys(new),
            Err(causes) => causes,
        };
    }
    let mut causes = workspace(row, new);
    if !causes.is_empty() {
        // What was stored before there was a rule can still be changed otherwise, and deleted.
        let known = workspace(row, old);
        causes.retain(|cause| !known.contains(cause));
    }
    let (before, after) = (old.str_at("/spec/type"), new.str_at("/spec/type"));
    if before.unwrap_or("container") != after.unwrap_or("container") {
        let text = "the type of a workspace cannot be changed: make a new workspace, or delete this one first";
        causes.push(invalid("spec.type", after.unwrap_or_default(), text));
    }
    causes
}

/// As kube-apiserver judges those of a PodTemplateSpec.
fn template_metadata(object: &Object) -> Vec<Cause> {
    let map = |key: &str| {
        let pointer = format!("{TEMPLATE}/{key}");
        object.pointer(&pointer).and_then(Value::as_object)
    };
    let mut causes = Vec::new();
    if let Some(labels) = map("labels") {
        causes.extend(label_causes(labels, "spec.template.metadata.labels"));
    }
    if let Some(annotations) = map("annotations") {
        let path = "spec.template.metadata.annotations";
        causes.extend(annotation_causes(annotations, path));
    }
    causes
}

fn containers(object: &Object) -> Vec<Cause> {
    let list = object
        .pointer("/spec/template/spec/containers")
        .and_then(Value::as_array);
    let Some(list) = list.filter(|l| !l.is_empty()) else {
        return vec![cause(
            "FieldValueRequired",
            CONTAINERS,
            "Required value: a workspace needs a container".into(),
        )];
    };
    let mut seen = BTreeSet::new();
    let mut causes = Vec::new();
    for (index, container) in list.iter().enumerate() {
        let path = format!("{CONTAINERS}[{index}]");
        causes.extend(container_name(container, &path, &mut seen));
        if container["image"]
            .as_str()
            .unwrap_or_default()
            .trim()
            .is_empty()
        {
            causes.push(cause(
                "FieldValueRequired",
                &format!("{path}.image"),
                "Required value".into(),
            ));
        }
        causes.extend(ports(container, &path));
    }
    causes
}

fn container_name<'a>(
    container: &'a Value,
    path: &str,
    seen: &mut BTreeSet<&'a str>,
) -> Option<Cause> {
    let field = format!("{path}.name");
    let name = container["name"].as_str().unwrap_or_default();
    if name.is_empty() {
        return Some(cause("FieldValueRequired", &field, "Required value".into()));
    }
    if let Some(why) = dns_label(name) {
        return Some(invalid(&field, name, &why));
    }
    (!seen.insert(name)).then(|| {
        cause(
            "FieldValueDuplicate",
            &field,
            format!("Duplicate value: {name:?}"),
        )
    })
}

fn ports(container: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (index, port) in container["ports"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
    {
        let number = port["containerPort"].as_i64().unwrap_or(0);
        if !(1..=65535).contains(&number) {
            let text = format!("Invalid value: {number}: must be between 1 and 65535, inclusive");
            causes.push(cause(
                "FieldValueInvalid",
                &format!("{path}.ports[{index}].containerPort"),
                text,
            ));
        }
        let protocol = port["protocol"].as_str().unwrap_or("TCP");
        if !["TCP", "UDP", "SCTP"].contains(&protocol) {
            let text = format!(
                "Unsupported value: {protocol:?}: supported values: \"SCTP\", \"TCP\", \"UDP\""
            );
            causes.push(cause(
                "FieldValueNotSupported",
                &format!("{path}.ports[{index}].protocol"),
                text,
            ));
        }
    }
    causes
}

fn guest_mounts(object: &Object) -> Vec<Cause> {
    let Some(mounts) = object
        .pointer("/spec/volumeMounts")
        .and_then(Value::as_array)
    else {
        return Vec::new();
    };
    let mut causes = Vec::new();
    if !mounts.is_empty() && object.str_at("/spec/type") != Some("vm") {
        let text = "Forbidden: guest disks need type vm; for a container use template.spec.volumes";
        causes.push(cause(
            "FieldValueForbidden",
            "spec.volumeMounts",
            text.into(),
        ));
    }
    let mut seen = BTreeSet::new();
    for (index, mount) in mounts.iter().enumerate() {
        let name = mount["name"].as_str().unwrap_or_default();
        let field = format!("spec.volumeMounts[{index}].name");
        if let Some(why) = dns_label(name) {
            causes.push(invalid(&field, name, &why));
        } else if !seen.insert(name) {
            causes.push(cause(
                "FieldValueDuplicate",
                &field,
                format!("Duplicate value: {name:?}"),
            ));
        }
        if mount["type"] == "cdrom" && mount["bus"] == "virtio" {
            let text = "a CD-ROM cannot be on the virtio bus: use sata, scsi or usb";
            causes.push(invalid(
                &format!("spec.volumeMounts[{index}].bus"),
                "virtio",
                text,
            ));
        }
    }
    causes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{schema, v1alpha1};
    use serde_json::json;

    fn object(spec: Value) -> Object {
        Object::from_value(
            json!({"apiVersion": "kubeworkspaces.io/v1alpha1", "kind": "Workspace",
            "metadata": {"name": "w"}, "spec": spec}),
        )
        .unwrap()
    }

    fn with_container(container: Value) -> Value {
        json!({"type": "vm", "template": {"spec": {"containers": [container]}}})
    }

    #[test]
    fn every_fault_names_its_field() {
        let row = schema::of::<v1alpha1::Workspace>();
        let table = [
            (
                with_container(
                    json!({"name": "a", "image": "i", "ports": [{"containerPort": 22}]}),
                ),
                vec![],
            ),
            (
                with_container(
                    json!({"name": "a", "image": "i", "resources": {"limits": {"cpu": 0.5}}}),
                ),
                vec![],
            ),
            (json!({"type": "vm"}), vec!["spec.template"]),
            (
                json!({"type": "qemu", "template": {"spec": {"containers": []}}}),
                vec!["spec.type"],
            ),
            (
                json!({"template": {"spec": {"containers": []}}}),
                vec![CONTAINERS],
            ),
            (
                with_container(json!({"name": "a.b", "image": "i"})),
                vec!["spec.template.spec.containers[0].name"],
            ),
            (
                with_container(json!({"name": "a"})),
                vec!["spec.template.spec.containers[0].image"],
            ),
            (
                with_container(json!({"name": "a", "image": "i", "ports": [{"containerPort": 0}]})),
                vec!["spec.template.spec.containers[0].ports[0].containerPort"],
            ),
            (
                with_container(json!({"name": "a", "image": 5})),
                vec!["spec.template.spec.containers[0].image"],
            ),
            (
                json!({"type": "scratch", "volumeMounts": [{"name": "d"}],
                    "template": {"spec": {"containers": [{"name": "a", "image": "i"}]}}}),
                vec!["spec.volumeMounts"],
            ),
            (
                json!({"type": "vm", "volumeMounts": [{"name": "d", "type": "cdrom", "bus": "virtio"}],
                    "template": {"spec": {"containers": [{"name": "a", "image": "i"}]}}}),
                vec!["spec.volumeMounts[0].bus"],
            ),
        ];
        for (spec, expected) in table {
            let causes = workspace(&row, &object(spec.clone()));
            let fields: Vec<_> = causes.iter().map(|c| c.field.as_str()).collect();
            assert_eq!(fields, expected, "{spec} {causes:?}");
        }
    }

    #[test]
    fn the_pods_metadata_is_judged_as_kube_apiserver_does() {
        let row = schema::of::<v1alpha1::Workspace>();
        let labels = "spec.template.metadata.labels";
        let annotations = "spec.template.metadata.annotations";
        let most = 256 << 10;
        for (metadata, expected) in [
            (json!({}), vec![]),
            (
                json!({"labels": {"a.io/b": "C_1", "d": ""}, "annotations": {"A.io/b": "any\nthing"},
                    "name": "ignored", "creationTimestamp": "2026-01-01T00:00:00Z",
                    "finalizers": ["x"], "ownerReferences": []}),
                vec![],
            ),
            (
                json!({"labels": {"a/b/c": "", "d": "e f"}}),
                vec![labels; 2],
            ),
            (json!({"labels": {"a": "x".repeat(64)}}), vec![labels]),
            (json!({"annotations": {"-a": ""}}), vec![annotations]),
            (json!({"annotations": {"a": "x".repeat(most - 1)}}), vec![]),
            (
                json!({"annotations": {"a": "x".repeat(most)}}),
                vec![annotations],
            ),
            (
                json!({"labels": {"a": 5}}),
                vec!["spec.template.metadata.labels.a"],
            ),
            (json!({"labels": ["a"]}), vec![labels]),
            (json!("a"), vec!["spec.template.metadata"]),
        ] {
            let mut spec = with_container(json!({"name": "a", "image": "i"}));
            spec["template"]["metadata"] = metadata;
            let causes = workspace(&row, &object(spec));
            let fields: Vec<_> = causes.iter().map(|c| c.field.as_str()).collect();
            assert_eq!(fields, expected, "{causes:?}");
        }
    }

    #[test]
    fn amounts_that_are_none_or_below_zero_name_their_field() {
        let row = schema::of::<v1alpha1::Workspace>();
        let first = "spec.template.spec.containers[0].resources";
        let container = |value: Value| json!({"name": "a", "image": "i", "resources": {"limits": {"memory": value}}});
        for kind in ["vm", "container", "scratch"] {
            for bad in [
                json!("abc"),
                json!(""),
                json!("-1"),
                json!(-1),
                json!("1 Gi"),
                json!("2GiB"),
            ] {
                let spec = json!({"type": kind, "template": {"spec": {"containers": [container(bad.clone())]}}});
                let causes = workspace(&row, &object(spec));
                assert_eq!(causes.len(), 1, "{kind} {bad} {causes:?}");
                assert_eq!(causes[0].field, format!("{first}.limits[memory]"));
                assert_eq!(causes[0].reason, "FieldValueInvalid");
                assert!(
                    causes[0]
                        .message
                        .starts_with(&format!("Invalid value: {bad}: must be "))
                );
            }
            for good in [
                json!("2Gi"),
                json!(0),
                json!("1e3"),
                json!(1.5),
                json!("0.5Gi"),
            ] {
                let spec = json!({"type": kind, "template": {"spec": {"containers": [container(good.clone())]}}});
                assert_eq!(workspace(&row, &object(spec)), vec![], "{kind} {good}");
            }
        }
        let elsewhere = json!({"template": {"spec": {
            "containers": [{"name": "a", "image": "i"}],
            "initContainers": [{"name": "b", "image": "i", "resources": {"requests": {"cpu": "many"}}}],
            "overhead": {"cpu": "-1m"},
            "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "big"}},
                {"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {"resources": {"requests": {"storage": "-1Gi"}}}}}}]}}});
        let mut fields: Vec<String> = workspace(&row, &object(elsewhere))
            .into_iter()
            .map(|c| c.field)
            .collect();
        fields.sort();
        assert_eq!(
            fields,
            [
                "spec.template.spec.initContainers[0].resources.requests[cpu]",
                "spec.template.spec.overhead[cpu]",
                "spec.template.spec.volumes[0].emptyDir.sizeLimit",
                "spec.template.spec.volumes[1].ephemeral.volumeClaimTemplate.spec.resources.requests[storage]",
            ]
        );
    }

    #[test]
    fn what_was_stored_before_a_rule_can_be_changed_otherwise() {
        let row = schema::of::<v1alpha1::Workspace>();
        let with = |image: &str, memory: &str| {
            object(with_container(
                json!({"name": "a", "image": image, "resources": {"limits": {"memory": memory}}}),
            ))
        };
        let old = with("i", "lots");
        assert_eq!(
            workspace_update(&row, &with("j", "lots"), &old, None),
            vec![]
        );
        assert_eq!(
            workspace_update(&row, &with("j", "1Gi"), &old, None),
            vec![]
        );
        let causes = workspace_update(&row, &with("i", "more"), &old, None);
        assert_eq!(causes.len(), 1, "{causes:?}");
    }

    #[test]
    fn the_type_is_fixed() {
        let row = schema::of::<v1alpha1::Workspace>();
        let spec = |kind: &str| json!({"type": kind, "template": {"spec": {"containers": [{"name": "a", "image": "i"}]}}});
        let (vm, container) = (object(spec("vm")), object(spec("container")));
        assert_eq!(workspace_update(&row, &vm, &vm, None), vec![]);
        assert_eq!(
            workspace_update(&row, &container, &vm, None)[0].field,
            "spec.type"
        );
    }

    #[test]
    fn names_are_at_most_63_characters() {
        let row = schema::of::<v1alpha1::Workspace>();
        let mut long = object(with_container(json!({"name": "a", "image": "i"})));
        long.set_meta("name", &"x".repeat(64));
        let causes = workspace(&row, &long);
        assert_eq!(causes.len(), 1, "{causes:?}");
        assert_eq!(causes[0].field, "metadata.name");
        // The form of names is the registry's to judge: it would be said twice.
        long.set_meta("name", "X_1");
        assert_eq!(workspace(&row, &long), vec![]);
    }
}
