//! What a vm workspace asks for and this controller cannot give: each thing is named.

use serde_json::Value;

use super::catalog::Settings;
use super::input::Workspace;
use super::is_unset;
use super::problem::Problem;

/// Fields of the pod that mean something on a machine.
const POD: [&str; 5] = [
    "containers",
    "nodeSelector",
    "tolerations",
    "terminationGracePeriodSeconds",
    "imagePullSecrets",
];
/// Fields of the pod that say of a machine what is so anyway.
const POD_DEFAULTS: [(&str, &str); 3] = [
    ("restartPolicy", "Always"),
    ("dnsPolicy", "ClusterFirst"),
    ("schedulerName", "default-scheduler"),
];
/// Fields of the main container that mean something on a machine.
const CONTAINER: [&str; 5] = ["name", "image", "imagePullPolicy", "ports", "resources"];
/// Fields that hold data: a machine without them would lose what is written there.
const DATA: [&str; 3] = ["volumes", "volumeMounts", "volumeDevices"];

const NOT_FOR_VM: &str = "not supported for type vm; it has no effect";
const LOSES_DATA: &str = "disks are not supported for type vm yet, and without them data would be \
                          lost; remove it, or stop the workspace";

/// Everything that the machine will lack.
pub(crate) fn of_machine(workspace: &Workspace, settings: &Settings) -> Vec<Problem> {
    let mut problems = Vec::new();
    pod(workspace.pod_spec(), &mut problems);
    container(workspace.main_container(), &mut problems);
    if !is_unset(&workspace.spec["volumeMounts"]) {
        problems.push(Problem::refused("spec.volumeMounts", LOSES_DATA));
    }
    if !is_unset(&workspace.spec["vmProfile"]) || settings.vm_profile.is_some() {
        let field = "spec.vmProfile";
        problems.push(Problem::refused(
            field,
            "guest profiles are not supported yet",
        ));
    }
    if settings.persistent_root_disk {
        let why = "persistent root disks are not supported yet, and the root disk of a stopped \
                   machine would be lost; use a catalog entry without one";
        problems.push(Problem::refused("Image spec.persistentRootDisk", why));
    }
    problems
}

fn pod(spec: &Value, problems: &mut Vec<Problem>) {
    for (field, value) in spec.as_object().into_iter().flatten() {
        let harmless = POD_DEFAULTS.iter().any(|(f, v)| f == field && value == v);
        if !POD.contains(&field.as_str()) && !harmless {
            say("spec.template.spec", field, value, problems);
        }
    }
    for (list, room) in [
        ("containers", "container"),
        ("imagePullSecrets", "pull secret"),
    ] {
        if spec[list].as_array().is_some_and(|items| items.len() > 1) {
            let why = format!("a machine has room for one {room}; the others have no effect");
            let field = format!("spec.template.spec.{list}[1]");
            problems.push(Problem::ignored(&field, &why));
        }
    }
}

fn container(container: &Value, problems: &mut Vec<Problem>) {
    for (field, value) in container.as_object().into_iter().flatten() {
        if !CONTAINER.contains(&field.as_str()) {
            say("spec.template.spec.containers[0]", field, value, problems);
        }
    }
    if container["image"].as_str().is_none_or(str::is_empty) {
        let field = "spec.template.spec.containers[0].image";
        problems.push(Problem::invalid(
            field,
            "a machine needs an image to boot from",
        ));
    }
}

fn say(path: &str, field: &str, value: &Value, problems: &mut Vec<Problem>) {
    let path = format!("{path}.{field}");
    if is_unset(value) {
        return;
    }
    problems.push(if DATA.contains(&field) {
        Problem::refused(&path, LOSES_DATA)
    } else {
        Problem::ignored(&path, NOT_FOR_VM)
    });
}
