//! What KubeVirt accepts as a VirtualMachine and then refuses as an instance, and what localvirt cannot run.
//!
//! Either shows as the machine's `Failure` condition. What KubeVirt refuses when the VirtualMachine itself is
//! written (the long table of its admission webhooks) is not repeated here: the CRD's schema is enforced by
//! kube-apiserver, and a controller's output is better checked against a real virt-api.

use std::collections::BTreeSet;

use crate::api::{Instance, VolumeSource};

/// Video types that KubeVirt knows on amd64.
const VIDEO_TYPES: [&str; 5] = ["vga", "cirrus", "virtio", "ramfb", "bochs"];

/// Everything that is wrong, a sentence each.
pub fn problems(vmi: &Instance) -> Vec<String> {
    let mut found = Vec::new();
    if vmi.guest_memory.is_none() {
        found.push("spec.domain.memory.guest: no memory is requested: set it, or resources.requests.memory".to_owned());
    }
    if let Some(video) = vmi.video.as_deref().filter(|v| !VIDEO_TYPES.contains(v)) {
        found.push(format!(
            "spec.domain.devices.video.type: {video:?} is not one of {}",
            VIDEO_TYPES.join(", ")
        ));
    }
    let volumes: BTreeSet<&str> = vmi.volumes.iter().map(|v| v.name.as_str()).collect();
    for disk in vmi
        .disks
        .iter()
        .filter(|d| !volumes.contains(d.name.as_str()))
    {
        found.push(format!(
            "spec.domain.devices.disks: no volume is named {:?}",
            disk.name
        ));
    }
    for volume in &vmi.volumes {
        if let VolumeSource::Other(kind) = &volume.source {
            found.push(format!(
                "spec.volumes: {:?} is a {kind:?}, which localvirt has no code for",
                volume.name
            ));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::instance;

    #[test]
    fn what_an_instance_cannot_have_is_named() {
        let ok = json!({"domain": {"memory": {"guest": "1Gi"}}});
        let cases: [(Value, &[&str]); 5] = [
            (ok, &[]),
            (json!({"domain": {}}), &["no memory"]),
            (
                json!({"domain": {"memory": {"guest": "1Gi"}, "devices": {"video": {}}}}),
                &["video.type: \"\""],
            ),
            (
                json!({"domain": {"memory": {"guest": "1Gi"}, "devices": {"disks": [{"name": "a"}]}}}),
                &["\"a\""],
            ),
            (
                json!({"domain": {"memory": {"guest": "1Gi"}}, "volumes": [{"name": "s", "sysprep": {}}]}),
                &["sysprep"],
            ),
        ];
        for (spec, want) in cases {
            let found = problems(&instance(spec.clone(), json!({})));
            assert_eq!(found.len(), want.len(), "{spec}: {found:?}");
            for (text, word) in found.iter().zip(want) {
                assert!(text.contains(word), "{text}");
            }
        }
    }
}
