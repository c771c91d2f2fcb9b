//! Which action is possible in which state, and what it comes to. Pure.

use apiserver_generic::{ApiError, Object};
use apiservice::v1alpha1::{Phase, START_PAUSED, STOPPED};
use serde_json::{Map, Value, json};

use super::conflict;
use crate::streams::resolve::{Kind, Workspace, controlled_by};

/// What `start` and `stop` ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Power {
    /// Run.
    On,
    /// Run, a machine paused before its first instruction.
    Paused,
    /// Stop.
    Off,
}

/// Writes the wish into the object's annotations; tells whether that changes anything. Asking for
/// what is so already is no error, so that it can be asked again after a lost answer.
///
/// # Errors
/// 409 or 400: it cannot be so in this state, or for this type.
pub(super) fn power(object: &mut Object, wish: Power, now: &str) -> Result<bool, ApiError> {
    let workspace = Workspace::read(object);
    let pending = object.annotation(START_PAUSED).is_some();
    let rests = object.str_at("/status/phase") == Some(Phase::Stopped.as_str());
    check_power(&workspace, wish, pending, rests)?;
    let (stopped, paused) = match wish {
        Power::On => (None, None),
        Power::Paused => (None, Some(now)),
        Power::Off => (Some(now), None),
    };
    let changed = set(object, STOPPED, stopped);
    Ok(set(object, START_PAUSED, paused) || changed)
}

fn check_power(
    workspace: &Workspace,
    wish: Power,
    pending: bool,
    rests: bool,
) -> Result<(), ApiError> {
    let Workspace { name, .. } = workspace;
    match wish {
        _ if workspace.deleting => Err(conflict(name, "the workspace is being deleted")),
        Power::Paused if workspace.kind != Kind::Vm => Err(ApiError::bad_request(
            "paused is for workspaces of type vm: nothing else can be paused",
        )),
        Power::Paused if !workspace.stopped && !pending => Err(conflict(
            name,
            "the workspace is not stopped: stop it first, then start it paused",
        )),
        // Only a machine at rest can be started paused; one that still runs would go on running.
        Power::Paused if !rests && !pending => Err(conflict(
            name,
            "the workspace is still stopping: try again when its phase is Stopped",
        )),
        _ => Ok(()),
    }
}

/// Sets or removes an annotation; tells whether that changed anything. One that is there keeps its
/// value, which says since when.
fn set(object: &mut Object, key: &str, value: Option<&str>) -> bool {
    if object.annotation(key).is_some() == value.is_some() {
        return false;
    }
    let metadata = object.metadata_mut();
    let mut annotations = match metadata.remove("annotations") {
        Some(Value::Object(annotations)) => annotations,
        _ => Map::new(),
    };
    match value {
        Some(value) => annotations.insert(key.to_owned(), json!(value)),
        None => annotations.remove(key),
    };
    if !annotations.is_empty() {
        metadata.insert("annotations".to_owned(), Value::Object(annotations));
    }
    true
}

/// A machine's instance that is the workspace's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Instance {
    pub(super) name: String,
    pub(super) uid: String,
    running: bool,
    paused: bool,
    leaving: bool,
}

/// The workspace's own instance among what bears its name; none while it is not started.
///
/// # Errors
/// 409: the name is somebody else's.
pub(super) fn own_instance(
    workspace: &Workspace,
    vm: Option<&Object>,
    vmi: Option<&Object>,
) -> Result<Option<Instance>, ApiError> {
    let foreign = |what: &str| {
        let why = format!("the {what} of its name does not belong to it; rename one of the two");
        Err(conflict(&workspace.name, &why))
    };
    let Some(vm) = vm else {
        return Ok(None);
    };
    if !controlled_by(vm, "kubeworkspaces.io", "Workspace", &workspace.uid) {
        return foreign("VirtualMachine");
    }
    let Some(vmi) = vmi else {
        return Ok(None);
    };
    let machine = vm.uid().unwrap_or_default();
    if !controlled_by(vmi, "kubevirt.io", "VirtualMachine", machine) {
        return foreign("VirtualMachineInstance");
    }
    let conditions = vmi.pointer("/status/conditions").and_then(Value::as_array);
    let paused = |c: &Value| c["type"] == "Paused" && c["status"] == "True";
    Ok(Some(Instance {
        name: vmi.name().to_owned(),
        uid: vmi.uid().unwrap_or_default().to_owned(),
        running: vmi.str_at("/status/phase") == Some("Running"),
        paused: conditions.into_iter().flatten().any(paused),
        leaving: vmi.deletion_timestamp().is_some(),
    }))
}

/// How a machine is rebooted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reboot {
    /// The guest is asked to.
    Soft,
    /// As the button does.
    Hard,
}

impl Reboot {
    /// KubeVirt's word.
    pub(super) fn subresource(self) -> &'static str {
        match self {
            Self::Soft => "softreboot",
            Self::Hard => "reset",
        }
    }
}

/// Whether a machine can be rebooted now. Its root disk stays as it is.
///
/// # Errors
/// 409: what stands in the way.
pub(super) fn reboot(
    workspace: &Workspace,
    instance: Option<Instance>,
    how: Reboot,
) -> Result<Instance, ApiError> {
    awake(workspace)?;
    let refuse = |why: &str| Err(conflict(&workspace.name, why));
    match instance {
        Some(instance) if instance.leaving || !instance.running => {
            refuse("the machine does not run at the moment; try again when it does")
        }
        Some(instance) if instance.paused && how == Reboot::Soft => {
            refuse("the machine is paused: unpause it, or force the reboot")
        }
        Some(instance) => Ok(instance),
        None => refuse("the machine does not run yet; try again when it does"),
    }
}

/// What is to be replaced so that a machine's root disk is as its image has it. A containerDisk is
/// new at every start: a machine that does not run has nothing to reset.
///
/// # Errors
/// 409: the workspace is being deleted.
pub(super) fn reset(
    workspace: &Workspace,
    instance: Option<Instance>,
) -> Result<Option<Instance>, ApiError> {
    if workspace.deleting {
        return Err(conflict(&workspace.name, "the workspace is being deleted"));
    }
    Ok(instance.filter(|instance| !workspace.stopped && !instance.leaving))
}

/// Only machines have a root disk.
///
/// # Errors
/// 400 for everything else.
pub(super) fn check_reset(workspace: &Workspace) -> Result<(), ApiError> {
    match workspace.kind {
        Kind::Vm => Ok(()),
        Kind::Container | Kind::Scratch => Err(ApiError::bad_request(
            "only workspaces of type vm have a root disk to reset; reboot replaces the pod of others",
        )),
    }
}

/// Neither stopped nor being deleted.
///
/// # Errors
/// 409.
pub(super) fn awake(workspace: &Workspace) -> Result<(), ApiError> {
    let Workspace { name, .. } = workspace;
    match workspace {
        Workspace { deleting: true, .. } => Err(conflict(name, "the workspace is being deleted")),
        Workspace { stopped: true, .. } => Err(conflict(
            name,
            &format!("the workspace is stopped; start it with: kubectl workspace start {name}"),
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-02-03T04:05:06Z";
    const BEFORE: &str = "2026-01-01T00:00:00Z";

    fn workspace(kind: &str, annotations: Value) -> Object {
        Object::from_value(json!({
            "metadata": {"name": "demo", "namespace": "t1", "uid": "ws", "annotations": annotations},
            "spec": {"type": kind}, "status": {"phase": "Stopped"},
        }))
        .unwrap()
    }

    /// The annotations afterwards and whether they changed, or the code of the refusal.
    fn after(kind: &str, annotations: Value, wish: Power) -> Result<(Value, bool), u16> {
        let mut object = workspace(kind, annotations);
        let changed = power(&mut object, wish, NOW).map_err(|e| e.reason.code().as_u16())?;
        let annotations = object.pointer("/metadata/annotations").cloned();
        Ok((annotations.unwrap_or_default(), changed))
    }

    #[test]
    fn start_and_stop_say_what_is_wished_and_may_be_repeated() {
        let none = || json!({});
        let stopped = |since: &str| json!({ STOPPED: since });
        let pending = |since: &str| json!({ START_PAUSED: since });
        let other = json!({"a": "b", STOPPED: BEFORE});
        for (kind, annotations, wish, expected) in [
            ("vm", none(), Power::On, Ok((none(), false))),
            ("vm", stopped(BEFORE), Power::On, Ok((Value::Null, true))),
            (
                "container",
                other.clone(),
                Power::On,
                Ok((json!({"a": "b"}), true)),
            ),
            ("vm", none(), Power::Off, Ok((stopped(NOW), true))),
            (
                "scratch",
                stopped(BEFORE),
                Power::Off,
                Ok((stopped(BEFORE), false)),
            ),
            (
                "vm",
                stopped(BEFORE),
                Power::Paused,
                Ok((pending(NOW), true)),
            ),
            (
                "vm",
                pending(BEFORE),
                Power::Paused,
                Ok((pending(BEFORE), false)),
            ),
            ("vm", pending(BEFORE), Power::On, Ok((Value::Null, true))),
            ("vm", pending(BEFORE), Power::Off, Ok((stopped(NOW), true))),
            ("vm", none(), Power::Paused, Err(409)),
            ("container", stopped(BEFORE), Power::Paused, Err(400)),
        ] {
            let got = after(kind, annotations.clone(), wish);
            assert_eq!(got, expected, "{kind} {annotations} {wish:?}");
        }
    }

    #[test]
    fn a_machine_that_still_stops_is_not_started_paused() {
        let mut stopping = workspace("vm", json!({ STOPPED: BEFORE }));
        stopping
            .fields_mut()
            .insert("status".into(), json!({"phase": "Stopping"}));
        let error = power(&mut stopping, Power::Paused, NOW).unwrap_err();
        assert_eq!(error.reason.code(), 409);
        assert!(
            error.message.contains("still stopping"),
            "{}",
            error.message
        );
        assert_eq!(power(&mut stopping, Power::On, NOW), Ok(true));
    }

    #[test]
    fn nothing_is_done_to_a_workspace_that_goes() {
        for wish in [Power::On, Power::Paused, Power::Off] {
            let mut going = workspace("vm", json!({ STOPPED: BEFORE }));
            going.set_meta("deletionTimestamp", BEFORE);
            let error = power(&mut going, wish, NOW).unwrap_err();
            assert_eq!(error.reason.code(), 409, "{wish:?}");
        }
    }

    fn owned(uid: &str, owner: (&str, &str, &str), status: Value) -> Object {
        Object::from_value(json!({
            "metadata": {"name": "demo", "uid": uid, "ownerReferences": [
                {"apiVersion": owner.0, "kind": owner.1, "name": "demo", "uid": owner.2, "controller": true}]},
            "status": status,
        }))
        .unwrap()
    }

    fn vm(of: &str) -> Object {
        owned(
            "vm",
            ("kubeworkspaces.io/v1alpha1", "Workspace", of),
            json!({}),
        )
    }

    fn vmi(of: &str, status: Value) -> Object {
        owned("vmi", ("kubevirt.io/v1", "VirtualMachine", of), status)
    }

    fn view(kind: &str, annotations: Value) -> Workspace {
        Workspace::read(&workspace(kind, annotations))
    }

    #[test]
    fn what_merely_has_the_name_is_never_reached() {
        let ws = view("vm", json!({}));
        let running = json!({"phase": "Running"});
        let found =
            |vm: Option<Object>, vmi: Option<Object>| own_instance(&ws, vm.as_ref(), vmi.as_ref());
        let own = found(Some(vm("ws")), Some(vmi("vm", running.clone())));
        assert_eq!(own.unwrap().unwrap().uid, "vmi");
        for (vm, vmi) in [
            (Some(vm("other")), Some(vmi("vm", running.clone()))),
            (Some(vm("")), None),
            (Some(vm("ws")), Some(vmi("other", running.clone()))),
        ] {
            assert_eq!(found(vm, vmi).unwrap_err().reason.code(), 409);
        }
        let orphan = found(None, Some(vmi("vm", running)));
        assert_eq!(
            orphan,
            Ok(None),
            "without a machine of ours, no instance is"
        );
    }

    /// Phase, paused, leaving → whether a soft reboot, a hard one, and a reset reach it.
    #[test]
    fn every_state_of_a_machine_has_an_answer() {
        let ws = view("vm", json!({}));
        let paused = json!([{"type": "Paused", "status": "True"}]);
        for (status, leaving, expected) in [
            (json!({"phase": "Running"}), false, (true, true, true)),
            (
                json!({"phase": "Running", "conditions": paused}),
                false,
                (false, true, true),
            ),
            (json!({"phase": "Running"}), true, (false, false, false)),
            (json!({"phase": "Scheduling"}), false, (false, false, true)),
            (json!({"phase": "Failed"}), false, (false, false, true)),
            (json!({}), false, (false, false, true)),
        ] {
            let mut vmi = vmi("vm", status.clone());
            if leaving {
                vmi.set_meta("deletionTimestamp", BEFORE);
            }
            let instance = own_instance(&ws, Some(&vm("ws")), Some(&vmi)).unwrap();
            let soft = reboot(&ws, instance.clone(), Reboot::Soft);
            let hard = reboot(&ws, instance.clone(), Reboot::Hard);
            for refusal in [&soft, &hard].into_iter().filter_map(|r| r.as_ref().err()) {
                assert_eq!(refusal.reason.code(), 409);
            }
            let reset = reset(&ws, instance).unwrap();
            let got = (soft.is_ok(), hard.is_ok(), reset.is_some());
            assert_eq!(got, expected, "{status} leaving: {leaving}");
        }
        assert!(reboot(&ws, None, Reboot::Hard).is_err());
        assert_eq!(reset(&ws, None), Ok(None));
    }

    #[test]
    fn a_stopped_machine_cannot_reboot_and_has_nothing_to_reset() {
        let ws = view("vm", json!({ STOPPED: "" }));
        let vmi = vmi("vm", json!({"phase": "Running"}));
        let instance = own_instance(&ws, Some(&vm("ws")), Some(&vmi)).unwrap();
        let error = reboot(&ws, instance.clone(), Reboot::Soft).unwrap_err();
        assert!(error.message.contains("kubectl workspace start demo"));
        assert_eq!(reset(&ws, instance), Ok(None));
        for (kind, ok) in [("vm", true), ("container", false), ("scratch", false)] {
            assert_eq!(check_reset(&view(kind, json!({}))).is_ok(), ok, "{kind}");
        }
    }
}
