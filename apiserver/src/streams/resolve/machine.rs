//! Workspace → VirtualMachine → VirtualMachineInstance → launcher pod, and why a stream to it ended.

use apiserver_generic::Object;

use super::{Features, Unresolved, Workspace, controlled_by};
use crate::streams::{close::CloseReason, ssh::hostkeys::root};

const KUBEVIRT: &str = "kubevirt.io";

/// A running machine, by every UID on the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Name of the VirtualMachineInstance.
    pub name: String,
    /// UID of the VirtualMachine.
    pub vm_uid: String,
    /// UID of the VirtualMachineInstance.
    pub uid: String,
    /// UID of the launcher pod that is active.
    pub pod_uid: String,
    /// Where it runs.
    pub node: String,
}

/// Resolves over what was found under the workspace's names.
///
/// # Errors
/// What stands in the way of a stream.
pub fn machine(
    workspace: &Workspace,
    vm: Option<&Object>,
    vmi: Option<&Object>,
) -> Result<Machine, Unresolved> {
    workspace.wanted()?;
    let Some(vm) = vm else {
        return Err(Unresolved::Starting("its machine is being created".into()));
    };
    if !controlled_by(vm, "kubeworkspaces.io", "Workspace", &workspace.uid) {
        return Err(Unresolved::Foreign(format!(
            "VirtualMachine \"{}\"",
            vm.name()
        )));
    }
    let Some(vmi) = vmi else {
        return Err(Unresolved::Starting(vm_words(vm)));
    };
    let vm_uid = vm.uid().unwrap_or_default();
    if !controlled_by(vmi, KUBEVIRT, "VirtualMachine", vm_uid) {
        return Err(Unresolved::Foreign(format!(
            "VirtualMachineInstance \"{}\"",
            vmi.name()
        )));
    }
    running(vm, vmi)
}

fn running(vm: &Object, vmi: &Object) -> Result<Machine, Unresolved> {
    match vmi.str_at("/status/phase").unwrap_or_default() {
        "Running" if vmi.deletion_timestamp().is_none() => {}
        "Failed" => return Err(Unresolved::Failed("the machine failed".into())),
        "Running" | "Succeeded" => {
            return Err(Unresolved::Starting("the machine is stopping".into()));
        }
        "" => return Err(Unresolved::Starting("the machine is pending".into())),
        phase => return Err(Unresolved::Starting(format!("the machine is {phase}"))),
    }
    let node = vmi.str_at("/status/nodeName").unwrap_or_default();
    let pod = vmi
        .pointer("/status/activePods")
        .and_then(|pods| pods.as_object())
        .and_then(|pods| {
            pods.iter()
                .find(|(_, on)| !node.is_empty() && **on == *node)
        })
        .ok_or_else(|| Unresolved::Starting("its pod is not active yet".into()))?;
    Ok(Machine {
        name: vmi.name().to_owned(),
        vm_uid: vm.uid().unwrap_or_default().to_owned(),
        uid: vmi.uid().unwrap_or_default().to_owned(),
        pod_uid: pod.0.clone(),
        node: node.to_owned(),
    })
}

/// What an instance has to offer, by `pkg/virt-api/rest` of KubeVirt.
pub fn features(vmi: &Object) -> Features {
    let device = |name: &str| {
        let value = vmi.pointer(&format!("/spec/domain/devices/{name}"));
        value.is_none_or(|value| value != false)
    };
    let conditions = vmi.pointer("/status/conditions").and_then(|c| c.as_array());
    let paused = |condition: &serde_json::Value| {
        condition["type"] == "Paused" && condition["status"] != "False"
    };
    Features {
        serial: device("autoattachSerialConsole"),
        graphics: device("autoattachGraphicsDevice"),
        paused: conditions.is_some_and(|list| list.iter().any(paused)),
        reported_address: vmi
            .str_at("/status/interfaces/0/ipAddress")
            .map(str::to_owned),
        host_network: false,
        root: Some(root(vmi)),
    }
}

fn vm_words(vm: &Object) -> String {
    match vm.str_at("/status/printableStatus") {
        Some(status) if !status.is_empty() => format!("the machine is {status}"),
        _ => "the machine is not started yet".to_owned(),
    }
}

/// The cause of an upstream's end, from what is there now. `None`: nothing explains it (yet).
pub fn cause(
    before: &Machine,
    workspace: Option<&Workspace>,
    vmi: Option<&Object>,
) -> Option<CloseReason> {
    let Some(workspace) = workspace else {
        return Some(CloseReason::Deleted);
    };
    if let Err(unwanted) = workspace.wanted() {
        return Some(unwanted.into_close());
    }
    let Some(vmi) = vmi.filter(|vmi| vmi.uid() == Some(&before.uid)) else {
        return Some(CloseReason::GuestGone);
    };
    let moved = vmi
        .str_at("/status/nodeName")
        .is_some_and(|node| node != before.node);
    if moved {
        return Some(CloseReason::Migrated);
    }
    let over = matches!(vmi.str_at("/status/phase"), Some("Succeeded" | "Failed"));
    (over || vmi.deletion_timestamp().is_some()).then_some(CloseReason::GuestGone)
}

/// Whether this machine does not run any more where it ran. One that is asked to stop still runs.
pub fn is_over(before: &Machine, vmi: Option<&Object>) -> bool {
    let Some(vmi) = vmi.filter(|vmi| vmi.uid() == Some(&before.uid)) else {
        return true;
    };
    let over = matches!(vmi.str_at("/status/phase"), Some("Succeeded" | "Failed"));
    let node = vmi.str_at("/status/nodeName");
    over || node.is_some_and(|node| node != before.node)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{super::workspace::Kind, *};

    fn workspace() -> Workspace {
        Workspace {
            namespace: "t1".into(),
            name: "demo".into(),
            uid: "ws-uid".into(),
            kind: Kind::Vm,
            shell: None,
            ports: Vec::new(),
            stopped: false,
            deleting: false,
        }
    }

    fn owner(api: &str, kind: &str, uid: &str) -> Value {
        json!([{"apiVersion": api, "kind": kind, "name": "demo", "uid": uid, "controller": true}])
    }

    fn vm() -> Value {
        json!({"metadata": {"name": "demo", "uid": "vm-uid",
            "ownerReferences": owner("kubeworkspaces.io/v1alpha1", "Workspace", "ws-uid")}})
    }

    fn vmi() -> Value {
        json!({"metadata": {"name": "demo", "uid": "vmi-uid",
            "ownerReferences": owner("kubevirt.io/v1", "VirtualMachine", "vm-uid")},
            "status": {"phase": "Running", "nodeName": "n1",
                "activePods": {"pod-old": "n0", "pod-uid": "n1"}}})
    }

    fn resolve(vm: Value, vmi: Value) -> Result<Machine, Unresolved> {
        let [vm, vmi] = [vm, vmi].map(|v| Object::from_value(v).ok());
        machine(&workspace(), vm.as_ref(), vmi.as_ref())
    }

    #[test]
    fn the_chain_of_uids_leads_to_the_active_pod() {
        let machine = resolve(vm(), vmi()).unwrap();
        assert_eq!(
            (machine.uid.as_str(), machine.pod_uid.as_str()),
            ("vmi-uid", "pod-uid")
        );
    }

    #[test]
    fn a_machine_that_merely_has_the_name_is_foreign() {
        for (pointer, value) in [
            ("/metadata/ownerReferences/0/uid", json!("other")),
            ("/metadata/ownerReferences/0/controller", json!(false)),
            ("/metadata/ownerReferences/0/kind", json!("Other")),
            (
                "/metadata/ownerReferences/0/apiVersion",
                json!("evil.io/v1"),
            ),
        ] {
            let mut bad = vm();
            *bad.pointer_mut(pointer).unwrap() = value.clone();
            assert!(
                matches!(resolve(bad, vmi()), Err(Unresolved::Foreign(_))),
                "{pointer}"
            );
            let mut bad = vmi();
            *bad.pointer_mut(pointer).unwrap() = value;
            assert!(
                matches!(resolve(vm(), bad), Err(Unresolved::Foreign(_))),
                "{pointer}"
            );
        }
    }

    #[test]
    fn an_owner_without_uid_proves_nothing() {
        let mut anonymous = vm();
        anonymous["metadata"]["uid"] = json!("");
        let mut child = vmi();
        child["metadata"]["ownerReferences"][0]["uid"] = json!("");
        assert!(matches!(
            resolve(anonymous, child),
            Err(Unresolved::Foreign(_))
        ));
    }

    #[test]
    fn every_phase_has_an_answer() {
        for (phase, expected) in [
            ("", "pending"),
            ("Scheduling", "Scheduling"),
            ("Succeeded", "stopping"),
        ] {
            let mut other = vmi();
            other["status"]["phase"] = json!(phase);
            let Err(Unresolved::Starting(text)) = resolve(vm(), other) else {
                panic!("{phase}");
            };
            assert!(text.contains(expected), "{text}");
        }
        let mut failed = vmi();
        failed["status"]["phase"] = json!("Failed");
        assert!(matches!(resolve(vm(), failed), Err(Unresolved::Failed(_))));
        let mut inactive = vmi();
        inactive["status"]["activePods"] = json!({"pod-old": "n0"});
        assert!(matches!(
            resolve(vm(), inactive),
            Err(Unresolved::Starting(_))
        ));
        assert!(matches!(
            resolve(Value::Null, Value::Null),
            Err(Unresolved::Starting(_))
        ));
    }

    #[test]
    fn devices_are_there_unless_they_are_switched_off() {
        let of = |spec: Value, status: Value| {
            let vmi = json!({"metadata": {"name": "demo"}, "spec": spec, "status": status});
            features(&Object::from_value(vmi).unwrap())
        };
        let all = of(json!({}), json!({}));
        assert!(all.serial && all.graphics && !all.paused);
        let devices = json!({"domain": {"devices": {
            "autoattachSerialConsole": false, "autoattachGraphicsDevice": false}}});
        let none = of(
            devices,
            json!({
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "Paused", "status": "True"}],
            "interfaces": [{"ipAddress": "10.0.0.7"}]}),
        );
        assert!(!none.serial && !none.graphics && none.paused);
        assert_eq!(none.reported_address.as_deref(), Some("10.0.0.7"));
    }

    #[test]
    fn a_machine_is_over_when_it_is_gone_ended_or_elsewhere() {
        let before = resolve(vm(), vmi()).unwrap();
        let of = |edit: &dyn Fn(&mut Value)| {
            let mut now = vmi();
            edit(&mut now);
            is_over(&before, Object::from_value(now).ok().as_ref())
        };
        assert!(!of(&|_| {}));
        assert!(!of(
            &|v| v["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z")
        ));
        assert!(of(&|v| *v = Value::Null));
        assert!(of(&|v| v["metadata"]["uid"] = json!("other")));
        assert!(of(&|v| v["status"]["phase"] = json!("Failed")));
        assert!(of(&|v| v["status"]["nodeName"] = json!("n2")));
    }

    #[test]
    fn the_cause_of_an_end_is_found_in_what_is_left() {
        let before = resolve(vm(), vmi()).unwrap();
        let of = |edit: &dyn Fn(&mut Value)| {
            let mut now = vmi();
            edit(&mut now);
            let now = Object::from_value(now).ok();
            cause(&before, Some(&workspace()), now.as_ref())
        };
        assert_eq!(of(&|_| {}), None);
        assert_eq!(of(&|v| *v = Value::Null), Some(CloseReason::GuestGone));
        let with = |key: &'static str, value: &'static str| {
            of(&move |v: &mut Value| v["status"][key] = json!(value))
        };
        assert_eq!(with("phase", "Failed"), Some(CloseReason::GuestGone));
        assert_eq!(with("nodeName", "n2"), Some(CloseReason::Migrated));
        let stopped = Workspace {
            stopped: true,
            ..workspace()
        };
        assert_eq!(
            cause(&before, Some(&stopped), None),
            Some(CloseReason::Stopped)
        );
        let deleting = Workspace {
            deleting: true,
            ..stopped
        };
        assert_eq!(
            cause(&before, Some(&deleting), None),
            Some(CloseReason::Deleted)
        );
        assert_eq!(cause(&before, None, None), Some(CloseReason::Deleted));
    }
}
