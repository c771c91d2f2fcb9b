//! The VirtualMachine of a vm workspace, in a form that KubeVirt's own admission accepts.

use serde_json::{Map, Value, json};

use super::catalog::Settings;
use super::input::Workspace;
use super::problem::Problem;
use super::{Child, ChildKind, UserData, labels, mac, paused, ports, resources};
use crate::names::{MADE_FROM, WORKSPACE_NAME, cloud_init_secret};

/// The domain of keys that KubeVirt keeps for itself on machines.
const RESERVED: &str = "kubevirt.io";

/// The machine, the Secret with its user-data if it has any, and what could not be done.
pub(crate) fn machine(
    workspace: &Workspace,
    settings: &Settings,
    user_data: UserData,
) -> (Vec<Child>, Vec<Problem>) {
    let mut problems = Vec::new();
    let secret = match user_data {
        Some(Ok(text)) => Some(secret(workspace, settings, &text)),
        Some(Err(problem)) => {
            problems.push(problem);
            None
        }
        None => None,
    };
    let metadata = metadata(workspace, &mut problems);
    let spec = guest(workspace, settings, &mut problems);
    let name = workspace.owner.name.clone();
    let body = json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": workspace.owner.child_metadata(&name),
        "spec": {
            "runStrategy": paused::strategy(workspace),
            "template": {"metadata": metadata, "spec": spec},
        },
    });
    let machine = Child {
        kind: ChildKind::VirtualMachine,
        name,
        body,
    };
    (secret.into_iter().chain([machine]).collect(), problems)
}

fn secret(workspace: &Workspace, settings: &Settings, user_data: &str) -> Child {
    let name = cloud_init_secret(&workspace.owner.name);
    let mut metadata = workspace.owner.child_metadata(&name);
    metadata["annotations"] = json!({MADE_FROM: settings.entry});
    let body = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "type": "Opaque",
        "data": {"userdata": super::base64(user_data.as_bytes())},
    });
    Child {
        kind: ChildKind::Secret,
        name,
        body,
    }
}

/// `spec.template.metadata`. KubeVirt refuses some of its own keys and acts on others: a workspace
/// sets none of them.
fn metadata(workspace: &Workspace, problems: &mut Vec<Problem>) -> Value {
    let mut ours = Map::new();
    ours.insert(WORKSPACE_NAME.to_owned(), json!(workspace.owner.name));
    let labels = labels::labels(workspace, &ours, problems);
    let mut metadata = json!({"labels": unreserved(workspace, "labels", labels, problems)});
    let annotations = labels::template_annotations(workspace);
    let annotations = unreserved(workspace, "annotations", annotations, problems);
    if !annotations.is_empty() {
        metadata["annotations"] = Value::Object(annotations);
    }
    metadata
}

fn unreserved(
    workspace: &Workspace,
    field: &str,
    mut map: Map<String, Value>,
    problems: &mut Vec<Problem>,
) -> Map<String, Value> {
    map.retain(|key, _| {
        let keep = !is_reserved(key);
        if !keep {
            let of_template = &workspace.spec["template"]["metadata"][field];
            let whose = match of_template.get(key) {
                Some(_) => "spec.template.metadata",
                None => "metadata",
            };
            problems.push(Problem::ignored(
                &format!("{whose}.{field}[{key}]"),
                "KubeVirt keeps this key for itself",
            ));
        }
        keep
    });
    map
}

/// `kubevirt.io/…` and `….kubevirt.io/…`.
fn is_reserved(key: &str) -> bool {
    let prefix = key.split_once('/').map(|(prefix, _)| prefix);
    prefix.is_some_and(|p| {
        p == RESERVED || p.strip_suffix(RESERVED).is_some_and(|p| p.ends_with('.'))
    })
}

/// `spec.template.spec`.
fn guest(workspace: &Workspace, settings: &Settings, problems: &mut Vec<Problem>) -> Value {
    let mut disks = vec![json!({"name": "rootdisk", "disk": {"bus": "virtio"}})];
    let mut volumes = vec![json!({"name": "rootdisk", "containerDisk": root(workspace)})];
    if settings.cloud_init {
        let name = cloud_init_secret(&workspace.owner.name);
        disks.push(json!({"name": "cloudinitdisk", "disk": {"bus": "virtio"}}));
        volumes.push(json!({
            "name": "cloudinitdisk", "cloudInitNoCloud": {"secretRef": {"name": name}},
        }));
    }
    let (resources, more) = resources::decide(workspace.main_container(), settings);
    problems.extend(more);
    let mut spec = json!({
        "domain": {
            "cpu": {"cores": resources.cores},
            "memory": {"guest": resources.guest},
            "resources": resources.pod,
            "devices": devices(workspace, settings, disks, problems),
        },
        "networks": [{"name": "default", "pod": {}}],
        "volumes": volumes,
    });
    copy_scheduling(workspace.pod_spec(), &mut spec);
    spec
}

fn devices(
    workspace: &Workspace,
    settings: &Settings,
    disks: Vec<Value>,
    problems: &mut Vec<Problem>,
) -> Value {
    let declared = ports::declared(workspace.main_container(), settings.agent_port);
    let (ports, more) = ports::of_machine(&declared);
    problems.extend(more);
    let mut devices = json!({
        "disks": disks,
        "interfaces": [{
            "name": "default",
            "masquerade": {},
            "macAddress": mac::address(&workspace.owner.name),
            "ports": ports,
        }],
        "inputs": [{"type": "tablet", "bus": "usb", "name": "tablet"}],
    });
    if let Some(model) = &settings.video_device {
        devices["video"] = json!({"type": model});
    }
    if let Some(model) = &settings.sound_device {
        devices["sound"] = json!({"name": "audiodev", "model": model});
    }
    devices
}

/// The containerDisk. Its changes are lost when the machine stops.
fn root(workspace: &Workspace) -> Value {
    let mut disk = json!({"image": workspace.image()});
    let policy = &workspace.main_container()["imagePullPolicy"];
    if policy.is_string() {
        disk["imagePullPolicy"] = policy.clone();
    }
    let secret = &workspace.pod_spec()["imagePullSecrets"][0]["name"];
    if secret.is_string() {
        disk["imagePullSecret"] = secret.clone();
    }
    disk
}

/// Fields of the pod that mean the same on a machine.
fn copy_scheduling(pod: &Value, spec: &mut Value) {
    for field in [
        "nodeSelector",
        "tolerations",
        "terminationGracePeriodSeconds",
    ] {
        if !super::is_unset(&pod[field]) {
            spec[field] = pod[field].clone();
        }
    }
}
