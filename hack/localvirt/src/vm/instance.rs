//! VirtualMachine → VirtualMachineInstance, with the defaults of KubeVirt's mutating webhooks.
//!
//! Mirrors `SetupVMIFromVM` (`pkg/virt-controller/watch/vm`) and `pkg/defaults`. What serves live updates
//! (`maxGuest`, `maxSockets`) is left out: localvirt has no hotplug.

use kube::core::DynamicObject;
use serde_json::{Map, Value, json};

use crate::{
    api::{Machine, VMI_FINALIZER, controller_of, vmi_resource},
    guestless::{self, Script},
};

/// The instance that a machine asks for; `script` is what plays a machine without a guest.
pub fn instance_of(vm: &Machine, paused: bool, script: Option<Script>) -> DynamicObject {
    let mut spec = defaulted(vm.template_spec.clone(), vm.uid());
    if paused {
        spec["startStrategy"] = json!("Paused");
    }
    let mut vmi = DynamicObject::new(vm.name(), &vmi_resource())
        .data(json!({ "spec": spec, "status": { "phase": "Pending" } }));
    vmi.metadata.namespace = vm.meta.namespace.clone();
    vmi.metadata.labels = vm.template_meta.labels.clone();
    let mut annotations = vm.template_meta.annotations.clone().unwrap_or_default();
    let generation = vm.meta.generation.unwrap_or_default();
    annotations.insert("kubevirt.io/vm-generation".into(), generation.to_string());
    if let Some(script) = script {
        annotations.insert(guestless::ANNOTATION.into(), script.as_str().into());
    }
    vmi.metadata.annotations = Some(annotations);
    vmi.metadata.finalizers = Some(vec![VMI_FINALIZER.to_owned()]);
    vmi.metadata.owner_references = Some(vec![controller_of(&vm.meta, "VirtualMachine")]);
    vmi
}

/// Whether the machine's template has changed in a way that its instance will only show after a restart.
pub fn needs_restart(vm: &Machine, instance_spec: &Value) -> bool {
    let without_live_fields = |mut spec: Value| {
        if let Some(fields) = spec.as_object_mut() {
            for live in ["nodeSelector", "affinity", "tolerations", "startStrategy"] {
                fields.remove(live);
            }
        }
        spec
    };
    let wanted = defaulted(vm.template_spec.clone(), vm.uid());
    without_live_fields(wanted) != without_live_fields(instance_spec.clone())
}

fn defaulted(mut spec: Value, firmware_uuid: &str) -> Value {
    default(&mut spec, "/architecture", json!("amd64"));
    default(&mut spec, "/evictionStrategy", json!("None"));
    default(&mut spec, "/domain/machine/type", json!("q35"));
    // A machine keeps its identity over restarts, and has no better one than its UID.
    default(&mut spec, "/domain/firmware/uuid", json!(firmware_uuid));
    default(&mut spec, "/domain/features/acpi", json!({}));
    for (field, value) in [("sockets", 1), ("cores", 1), ("threads", 1)] {
        default(&mut spec, &format!("/domain/cpu/{field}"), json!(value));
    }
    default_memory(&mut spec);
    default_volumes(&mut spec);
    default_disks(&mut spec);
    default_network(&mut spec);
    default_devices(&mut spec);
    spec
}

/// Sets `path` to `value` unless something is there, making the objects on the way.
fn default(root: &mut Value, path: &str, value: Value) {
    let mut at = root;
    for key in path.split('/').skip(1) {
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        at = &mut at[key];
    }
    if at.is_null() {
        *at = value;
    }
}

/// A tablet where one is asked for without more words, and the models of what there is.
fn default_devices(spec: &mut Value) {
    let devices = &mut spec["domain"]["devices"];
    if devices.get("autoattachInputDevice") == Some(&json!(true)) {
        default(devices, "/inputs", json!([{ "name": "default-0" }]));
    }
    if let Some(inputs) = devices.get_mut("inputs") {
        for input in items(inputs) {
            default(input, "/type", json!("tablet"));
            default(input, "/bus", json!("usb"));
        }
    }
    if devices.get("sound").is_some_and(Value::is_object) {
        default(devices, "/sound/model", json!("ich9"));
    }
}

fn default_memory(spec: &mut Value) {
    let resources = &spec["domain"]["resources"];
    let found = ["requests", "limits"]
        .into_iter()
        .map(|kind| resources[kind]["memory"].clone())
        .find(|memory| !memory.is_null());
    if let Some(memory) = found {
        default(spec, "/domain/memory/guest", memory);
    }
}

fn default_volumes(spec: &mut Value) {
    for volume in items(&mut spec["volumes"]) {
        let disk = &mut volume["containerDisk"];
        if let Some(image) = disk["image"].as_str() {
            let policy = pull_policy(image);
            default(disk, "/imagePullPolicy", json!(policy));
        } else if disk.is_null() {
            remove(volume, "containerDisk");
        }
    }
}

/// `Always` for an image that moves, as the kubelet decides it.
fn pull_policy(image: &str) -> &'static str {
    let last = image.rsplit('/').next().unwrap_or(image);
    let fixed = last.contains('@') || last.split_once(':').is_some_and(|(_, tag)| tag != "latest");
    if fixed { "IfNotPresent" } else { "Always" }
}

fn default_disks(spec: &mut Value) {
    let volumes: Vec<Value> = items(&mut spec["volumes"])
        .iter()
        .map(|v| v["name"].clone())
        .collect();
    default(spec, "/domain/devices/disks", json!([]));
    let disks = &mut spec["domain"]["devices"]["disks"];
    for name in volumes {
        let known = items(disks).iter().any(|d| d["name"] == name);
        if let (false, Some(list)) = (known, disks.as_array_mut()) {
            list.push(json!({ "name": name }));
        }
    }
    for disk in items(disks) {
        default_disk(disk);
    }
}

fn default_disk(disk: &mut Value) {
    let has = |key: &str| disk.get(key).is_some_and(|v| !v.is_null());
    if has("cdrom") {
        default(disk, "/cdrom/bus", json!("sata"));
        default(disk, "/cdrom/readonly", json!(true));
        default(disk, "/cdrom/tray", json!("closed"));
    } else if !has("lun") {
        default(disk, "/disk/bus", json!("sata"));
    }
}

fn default_network(spec: &mut Value) {
    let nothing = |v: &Value| v.as_array().is_none_or(Vec::is_empty);
    let attach = spec["domain"]["devices"]["autoattachPodInterface"] != json!(false);
    if attach && nothing(&spec["networks"]) && nothing(&spec["domain"]["devices"]["interfaces"]) {
        spec["networks"] = json!([{ "name": "default", "pod": {} }]);
        spec["domain"]["devices"]["interfaces"] = json!([{ "name": "default", "bridge": {} }]);
    }
    for key in ["autoattachPodInterface", "interfaces"] {
        let devices = &mut spec["domain"]["devices"];
        if devices[key].is_null() {
            remove(devices, key);
        }
    }
    for key in ["networks", "volumes"] {
        if spec[key].is_null() {
            remove(spec, key);
        }
    }
    if spec["domain"]["resources"].is_null() {
        spec["domain"]["resources"] = json!({});
    }
}

/// The elements of a list; none if it is no list. Looking into a `Value` leaves nulls behind, see [`remove`].
fn items(list: &mut Value) -> &mut [Value] {
    list.as_array_mut().map_or(&mut [], Vec::as_mut_slice)
}

fn remove(object: &mut Value, key: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{api::is_controlled_by, testing::machine};

    fn vm() -> Machine {
        machine(
            json!({"runStrategy": "Always", "template": {
                "metadata": {"labels": {"app": "demo"}},
                "spec": {
                    "domain": {
                        "resources": {"requests": {"memory": "256Mi"}},
                        "devices": {
                            "disks": [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "iso", "cdrom": {}}],
                            "interfaces": [{"name": "default", "masquerade": {}}]
                        }
                    },
                    "networks": [{"name": "default", "pod": {}}],
                    "volumes": [
                        {"name": "root", "containerDisk": {"image": "example.test/guest:1"}},
                        {"name": "iso", "containerDisk": {"image": "example.test/iso"}},
                        {"name": "seed", "cloudInitNoCloud": {"userData": "#cloud-config"}}
                    ]
                }
            }}),
            json!({}),
        )
    }

    #[test]
    fn the_instance_has_the_machine_as_its_owner_and_the_templates_labels() {
        let vm = vm();
        let vmi = instance_of(&vm, false, None);
        assert!(is_controlled_by(&vmi.metadata, vm.uid()));
        assert_eq!(vmi.metadata.labels.unwrap()["app"], "demo");
        assert_eq!(vmi.metadata.finalizers.unwrap(), [VMI_FINALIZER]);
        assert_eq!(vmi.data["status"]["phase"], "Pending");
    }

    #[test]
    fn defaults_are_those_of_kubevirts_webhooks() {
        let spec = instance_of(&vm(), false, None).data["spec"].clone();
        let expected = [
            ("/domain/memory/guest", json!("256Mi")),
            (
                "/domain/cpu",
                json!({"sockets": 1, "cores": 1, "threads": 1}),
            ),
            ("/domain/devices/disks/0/disk/bus", json!("virtio")),
            (
                "/domain/devices/disks/1/cdrom",
                json!({"bus": "sata", "readonly": true, "tray": "closed"}),
            ),
            (
                "/domain/devices/disks/2",
                json!({"name": "seed", "disk": {"bus": "sata"}}),
            ),
            (
                "/volumes/0/containerDisk/imagePullPolicy",
                json!("IfNotPresent"),
            ),
            ("/volumes/1/containerDisk/imagePullPolicy", json!("Always")),
            (
                "/volumes/2",
                json!({"name": "seed", "cloudInitNoCloud": {"userData": "#cloud-config"}}),
            ),
        ];
        for (path, want) in expected {
            assert_eq!(spec.pointer(path), Some(&want), "{path}");
        }
    }

    #[test]
    fn a_machine_without_networks_gets_the_pods() {
        let spec = defaulted(json!({"domain": {"devices": {}}}), "u");
        assert_eq!(spec["networks"][0]["name"], "default");
        let spec = defaulted(
            json!({"domain": {"devices": {"autoattachPodInterface": false}}}),
            "u",
        );
        assert!(spec.get("networks").is_none());
    }

    #[test]
    fn devices_that_are_asked_for_get_their_models() {
        let devices = |devices: Value| {
            let spec = defaulted(json!({ "domain": { "devices": devices } }), "u");
            spec["domain"]["devices"].clone()
        };
        let attached = devices(json!({"autoattachInputDevice": true, "sound": {"name": "s"}}));
        let tablet = json!([{"name": "default-0", "type": "tablet", "bus": "usb"}]);
        assert_eq!(attached["inputs"], tablet);
        assert_eq!(attached["sound"], json!({"name": "s", "model": "ich9"}));
        let given = devices(json!({"inputs": [{"name": "t", "type": "tablet", "bus": "virtio"}]}));
        assert_eq!(given["inputs"][0]["bus"], "virtio");
        assert_eq!(devices(json!({})).get("inputs"), None);
    }

    #[test]
    fn a_machine_without_a_guest_is_marked_on_its_instance() {
        let vmi = instance_of(&vm(), false, Some(Script::Flood));
        assert_eq!(
            vmi.metadata.annotations.unwrap()[guestless::ANNOTATION],
            "flood"
        );
    }

    #[test]
    fn only_what_cannot_change_live_needs_a_restart() {
        let mut vm = vm();
        let running = instance_of(&vm, true, None).data["spec"].clone();
        assert!(!needs_restart(&vm, &running));
        vm.template_spec["nodeSelector"] = json!({"a": "b"});
        assert!(!needs_restart(&vm, &running));
        vm.template_spec["domain"]["cpu"] = json!({"cores": 2});
        assert!(needs_restart(&vm, &running));
    }

    #[test]
    fn nothing_is_left_null_by_defaulting() {
        fn nulls(value: &Value) -> bool {
            match value {
                Value::Null => true,
                Value::Array(list) => list.iter().any(nulls),
                Value::Object(map) => map.values().any(nulls),
                _ => false,
            }
        }
        for spec in [json!({"domain": {}}), vm().template_spec] {
            let spec = defaulted(spec, "u");
            assert!(!nulls(&spec), "{spec}");
        }
    }
}
