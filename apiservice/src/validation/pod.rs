//! What the pod of a container or scratch workspace must be, or kube-apiserver would refuse it later,
//! where its owner does not see it (`k8s.io/kubernetes/pkg/apis/core/validation`).

use std::collections::BTreeSet;

use apiserver_generic::Cause;
use serde_json::Value;

use super::{amounts, cause, dns_label, invalid};

const SPEC: &str = "spec.template.spec";
const POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];

/// Problems of a pod that runs until it is stopped.
pub(super) fn pod(spec: &Value) -> Vec<Cause> {
    let mut causes = Vec::from_iter(restart_policy(spec, &POLICIES[..1]));
    let volumes = volumes(spec, &mut causes);
    for list in ["containers", "initContainers"] {
        for (index, container) in items(&spec[list]) {
            let path = format!("{SPEC}.{list}[{index}]");
            causes.extend(amounts::resources(container, &path));
            causes.extend(mounts(container, &path, &volumes));
            causes.extend(own_policy(container, &path));
        }
    }
    causes
}

/// Problems of the pod's specification of a machine, in which most has no effect.
pub(super) fn machine(spec: &Value) -> Vec<Cause> {
    let mut causes = Vec::from_iter(restart_policy(spec, &POLICIES));
    for (index, container) in items(&spec["containers"]) {
        let path = format!("{SPEC}.containers[{index}]");
        causes.extend(amounts::resources(container, &path));
    }
    causes
}

fn items(list: &Value) -> impl Iterator<Item = (usize, &Value)> {
    list.as_array().into_iter().flatten().enumerate()
}

fn restart_policy(spec: &Value, allowed: &[&str]) -> Option<Cause> {
    let policy = spec["restartPolicy"].as_str().filter(|p| !p.is_empty())?;
    (!allowed.contains(&policy))
        .then(|| unsupported(&format!("{SPEC}.restartPolicy"), policy, allowed))
}

/// A container may have a policy of its own, whatever its pod's is (KEP-5307).
fn own_policy(container: &Value, path: &str) -> Option<Cause> {
    let policy = container["restartPolicy"].as_str()?;
    (!POLICIES.contains(&policy))
        .then(|| unsupported(&format!("{path}.restartPolicy"), policy, &POLICIES))
}

fn unsupported(field: &str, value: &str, allowed: &[&str]) -> Cause {
    let list: Vec<String> = allowed.iter().map(|a| format!("{a:?}")).collect();
    let text = format!(
        "Unsupported value: {value:?}: supported values: {}",
        list.join(", ")
    );
    cause("FieldValueNotSupported", field, text)
}

/// The names of the volumes.
fn volumes<'a>(spec: &'a Value, causes: &mut Vec<Cause>) -> BTreeSet<&'a str> {
    let mut names = BTreeSet::new();
    for (index, volume) in items(&spec["volumes"]) {
        let field = format!("{SPEC}.volumes[{index}].name");
        let name = volume["name"].as_str().unwrap_or_default();
        if name.is_empty() {
            causes.push(cause("FieldValueRequired", &field, "Required value".into()));
        } else if let Some(why) = dns_label(name) {
            causes.push(invalid(&field, name, &why));
        } else if !names.insert(name) {
            let text = format!("Duplicate value: {name:?}");
            causes.push(cause("FieldValueDuplicate", &field, text));
        }
    }
    names
}

/// What a container mounts must be there, each at a place of its own.
fn mounts(container: &Value, path: &str, volumes: &BTreeSet<&str>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut places = BTreeSet::new();
    for (list, place) in [
        ("volumeMounts", "mountPath"),
        ("volumeDevices", "devicePath"),
    ] {
        for (index, mount) in items(&container[list]) {
            let field = |name: &str| format!("{path}.{list}[{index}].{name}");
            for required in ["name", place] {
                if mount[required].as_str().is_none_or(str::is_empty) {
                    let text = "Required value".into();
                    causes.push(cause("FieldValueRequired", &field(required), text));
                }
            }
            let text = |key: &str| mount[key].as_str().filter(|text| !text.is_empty());
            if let Some(name) = text("name").filter(|name| !volumes.contains(name)) {
                let text = format!("Not found: {name:?}");
                causes.push(cause("FieldValueNotFound", &field("name"), text));
            }
            if let Some(at) = text(place).filter(|at| !places.insert(*at)) {
                causes.push(invalid(&field(place), at, "must be unique"));
            }
        }
    }
    causes
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fields(causes: &[Cause]) -> Vec<&str> {
        causes.iter().map(|c| c.field.as_str()).collect()
    }

    #[test]
    fn a_pod_that_could_not_be_made_is_refused_with_the_field() {
        let main = |more: Value| {
            let mut container = json!({"name": "a", "image": "i"});
            for (key, value) in more.as_object().unwrap() {
                container[key] = value.clone();
            }
            json!({"containers": [container], "volumes": [{"name": "data", "emptyDir": {}}]})
        };
        let mount = |name: &str, at: &str| json!({"name": name, "mountPath": at});
        let first = "spec.template.spec.containers[0]";
        for (spec, expected) in [
            (main(json!({"volumeMounts": [mount("data", "/d")]})), vec![]),
            (json!({"restartPolicy": "Always", "containers": []}), vec![]),
            (
                json!({"restartPolicy": "Never"}),
                vec!["spec.template.spec.restartPolicy".to_owned()],
            ),
            (
                main(json!({"volumeMounts": [mount("nowhere", "/d")]})),
                vec![format!("{first}.volumeMounts[0].name")],
            ),
            (
                main(json!({"volumeMounts": [mount("data", "/d"), mount("data", "/d")]})),
                vec![format!("{first}.volumeMounts[1].mountPath")],
            ),
            (
                main(json!({"volumeMounts": [{"name": "data"}]})),
                vec![format!("{first}.volumeMounts[0].mountPath")],
            ),
            (
                main(json!({"volumeDevices": [{"name": "raw", "devicePath": "/dev/x"}]})),
                vec![format!("{first}.volumeDevices[0].name")],
            ),
            (
                json!({"volumes": [{"name": "a"}, {"name": "a"}, {"name": "B"}, {}]}),
                [1, 2, 3]
                    .map(|n| format!("spec.template.spec.volumes[{n}].name"))
                    .to_vec(),
            ),
            (
                json!({"initContainers": [
                    {"restartPolicy": "Always", "volumeMounts": [mount("x", "/x")]},
                    {"restartPolicy": "Never"}, {"restartPolicy": "OnFailure"},
                    {"restartPolicy": "Sometimes"}]}),
                vec![
                    "spec.template.spec.initContainers[0].volumeMounts[0].name".to_owned(),
                    "spec.template.spec.initContainers[3].restartPolicy".to_owned(),
                ],
            ),
            (main(json!({"restartPolicy": "Never"})), vec![]),
            (
                main(json!({"restartPolicy": ""})),
                vec![format!("{first}.restartPolicy")],
            ),
            (
                main(
                    json!({"resources": {"requests": {"cpu": 2, "memory": "1Gi"}, "limits": {"cpu": "1900m", "memory": "1Gi"}}}),
                ),
                vec![format!("{first}.resources.requests[cpu]")],
            ),
            (
                main(
                    json!({"resources": {"limits": {"gpu": 1, "example.com/gpu": 1, "hugepages-2Mi": "4Mi"}}}),
                ),
                vec![format!("{first}.resources.limits[gpu]")],
            ),
        ] {
            let causes = pod(&spec);
            assert_eq!(fields(&causes), expected, "{spec} {causes:?}");
        }
    }

    #[test]
    fn a_machine_may_name_disks_and_any_restart_policy_of_pods() {
        let spec = json!({"restartPolicy": "OnFailure", "containers": [
            {"volumeMounts": [{"name": "disk", "mountPath": "/data"}]}]});
        assert_eq!(machine(&spec), vec![]);
        let causes = machine(&json!({"restartPolicy": "Sometimes"}));
        assert_eq!(fields(&causes), ["spec.template.spec.restartPolicy"]);
    }
}
