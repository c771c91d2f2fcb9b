//! VirtualMachineInstance → launcher Pod and its Secret.
//!
//! Mirrors KubeVirt's `pkg/virt-controller/services/template.go` in labels, owner and shape; what runs in the
//! container is ours. The Pod satisfies the `restricted` Pod Security Standard.

use std::{collections::BTreeMap, path::PathBuf};

use k8s_openapi::{
    ByteString,
    api::core::v1::{
        Capabilities, Container, ContainerPort, EmptyDirVolumeSource, ImageVolumeSource,
        LocalObjectReference, PersistentVolumeClaimVolumeSource, Pod, PodSecurityContext, PodSpec,
        Probe, ResourceRequirements, SeccompProfile, Secret, SecretVolumeSource, SecurityContext,
        Sysctl, Volume, VolumeMount,
    },
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta},
};

use super::{
    names,
    spec::{CLAIMS_DIR, RunError, memory_mib, network_seed_dir, seed_of, user_seed_dir},
};
use crate::{
    api::{self, Instance, VolumeSource, controller_of},
    launcher::spec::{
        CA_FILE, CERT_FILE, CONFIG_DIR, DISKS_DIR, KEY_FILE, RUN_DIR, SPEC_FILE, Spec,
    },
    pki::Leaf,
    quantity,
};

/// The user of KubeVirt's own launchers (`qemu`).
const QEMU_USER: i64 = 107;
/// What a launcher needs beside the guest's memory: QEMU itself, and TCG's translation buffer of up to 256 MiB.
const OVERHEAD_MIB: u64 = 384;
/// KubeVirt's `cpuAllocationRatio` of 10: a tenth of a CPU is asked for each vCPU.
const MILLI_PER_VCPU: u64 = 100;
/// What KubeVirt adds to the guest's own grace period, so that the launcher outlives its guest.
const GRACE_EXTRA_SECONDS: i64 = 15;
/// On a launcher Pod: the machine's name.
pub const NAME_LABEL: &str = "vm.kubevirt.io/name";
/// On a launcher Pod: the instance's UID.
pub const CREATED_BY_LABEL: &str = "kubevirt.io/created-by";

/// The launcher's Secret: what it runs, and how it proves who it is.
///
/// # Errors
/// When the spec cannot be written as JSON, which no spec does.
pub fn secret(
    vmi: &Instance,
    spec: &Spec,
    leaf: &Leaf,
    ca_pem: &str,
) -> Result<Secret, serde_json::Error> {
    let data = [
        (SPEC_FILE, serde_json::to_vec(spec)?),
        (CERT_FILE, leaf.certificate_pem.clone().into_bytes()),
        (KEY_FILE, leaf.key_pem.clone().into_bytes()),
        (CA_FILE, ca_pem.as_bytes().to_vec()),
    ];
    let mut meta = owned(vmi, &names::launcher(vmi.name(), vmi.uid()));
    meta.labels = Some(BTreeMap::from([(
        CREATED_BY_LABEL.to_owned(),
        vmi.uid().to_owned(),
    )]));
    Ok(Secret {
        metadata: meta,
        data: Some(
            data.into_iter()
                .map(|(k, v)| (k.to_owned(), ByteString(v)))
                .collect(),
        ),
        immutable: Some(true),
        ..Secret::default()
    })
}

/// What every launcher is made of.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its image.
    pub image: String,
    /// The port on which localvirt asks it.
    pub control_port: u16,
}

/// The launcher Pod.
///
/// # Errors
/// When the instance's resources make no sense.
pub fn pod(vmi: &Instance, program: &Program) -> Result<Pod, RunError> {
    let disks = DiskVolumes::of(vmi);
    Ok(Pod {
        metadata: launcher_meta(vmi, &names::launcher(vmi.name(), vmi.uid())),
        spec: Some(PodSpec {
            containers: vec![container(vmi, program, disks.mounts)?],
            volumes: Some(disks.volumes),
            image_pull_secrets: Some(disks.pull_secrets),
            restart_policy: Some("Never".into()),
            hostname: Some(names::hostname(vmi.name())),
            subdomain: vmi.spec["subdomain"].as_str().map(str::to_owned),
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            termination_grace_period_seconds: Some(vmi.grace_seconds.max(0) + GRACE_EXTRA_SECONDS),
            security_context: Some(pod_security()),
            node_selector: Some(vmi.node_selector.clone()).filter(|s| !s.is_empty()),
            affinity: vmi.affinity.clone(),
            tolerations: Some(vmi.tolerations.clone()).filter(|t| !t.is_empty()),
            priority_class_name: vmi.spec["priorityClassName"].as_str().map(str::to_owned),
            scheduler_name: vmi.spec["schedulerName"].as_str().map(str::to_owned),
            ..PodSpec::default()
        }),
        status: None,
    })
}

/// Name, owner, labels and annotations of a launcher Pod.
pub fn launcher_meta(vmi: &Instance, name: &str) -> ObjectMeta {
    ObjectMeta {
        labels: Some(labels(vmi)),
        annotations: Some(annotations(vmi)),
        ..owned(vmi, name)
    }
}

fn owned(vmi: &Instance, name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(vmi.namespace().to_owned()),
        owner_references: Some(vec![controller_of(&vmi.meta, "VirtualMachineInstance")]),
        ..ObjectMeta::default()
    }
}

fn labels(vmi: &Instance) -> BTreeMap<String, String> {
    let mut labels = vmi.meta.labels.clone().unwrap_or_default();
    // Written by KubeVirt on the instance, not for the Pod.
    labels.remove("kubevirt.io/nodeName");
    labels.extend([
        ("kubevirt.io".to_owned(), "virt-launcher".to_owned()),
        (CREATED_BY_LABEL.to_owned(), vmi.uid().to_owned()),
        (NAME_LABEL.to_owned(), vmi.name().chars().take(63).collect()),
    ]);
    labels
}

fn annotations(vmi: &Instance) -> BTreeMap<String, String> {
    let mut annotations = vmi.meta.annotations.clone().unwrap_or_default();
    annotations.extend([
        ("kubevirt.io/domain".to_owned(), vmi.name().to_owned()),
        (
            "kubectl.kubernetes.io/default-container".to_owned(),
            "compute".to_owned(),
        ),
    ]);
    annotations
}

fn pod_security() -> PodSecurityContext {
    PodSecurityContext {
        run_as_non_root: Some(true),
        run_as_user: Some(QEMU_USER),
        run_as_group: Some(QEMU_USER),
        fs_group: Some(QEMU_USER),
        seccomp_profile: Some(SeccompProfile {
            type_: "RuntimeDefault".into(),
            localhost_profile: None,
        }),
        // The guest's port 22 answers on the Pod's address, without a capability for it.
        sysctls: Some(vec![Sysctl {
            name: "net.ipv4.ip_unprivileged_port_start".into(),
            value: "0".into(),
        }]),
        ..PodSecurityContext::default()
    }
}

fn container(
    vmi: &Instance,
    program: &Program,
    mounts: Vec<VolumeMount>,
) -> Result<Container, RunError> {
    let port = ContainerPort {
        name: Some("control".into()),
        container_port: i32::from(program.control_port),
        ..ContainerPort::default()
    };
    Ok(Container {
        name: "compute".into(),
        image: Some(program.image.clone()),
        image_pull_policy: Some("IfNotPresent".into()),
        ports: Some(vec![port]),
        resources: Some(resources(vmi)?),
        readiness_probe: probe(vmi, "readinessProbe"),
        liveness_probe: probe(vmi, "livenessProbe"),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            read_only_root_filesystem: Some(true),
            capabilities: Some(Capabilities {
                drop: Some(vec!["ALL".into()]),
                add: None,
            }),
            ..SecurityContext::default()
        }),
        volume_mounts: Some(mounts),
        ..Container::default()
    })
}

/// A probe of the guest's own ports works on the Pod's address; the others (exec, agent ping) need a guest agent.
fn probe(vmi: &Instance, field: &str) -> Option<Probe> {
    let probe: Probe = serde_json::from_value(vmi.spec[field].clone()).ok()?;
    (probe.tcp_socket.is_some() || probe.http_get.is_some()).then_some(probe)
}

fn resources(vmi: &Instance) -> Result<ResourceRequirements, RunError> {
    let guest = u64::from(memory_mib(vmi)?);
    let with_overhead = |mib: u64| quantity::of_bytes((mib + OVERHEAD_MIB) << 20);
    let cpu = vmi.resources.requests.get("cpu").cloned();
    let cpu =
        cpu.unwrap_or_else(|| Quantity(format!("{}m", u64::from(vmi.vcpus()) * MILLI_PER_VCPU)));
    let requests = BTreeMap::from([
        ("cpu".to_owned(), cpu),
        ("memory".to_owned(), with_overhead(guest)),
    ]);
    let mut limits = BTreeMap::new();
    if let Some(cpu) = vmi.resources.limits.get("cpu") {
        limits.insert("cpu".to_owned(), cpu.clone());
    }
    if let Some(limit) = vmi.resources.limits.get("memory").and_then(quantity::bytes) {
        limits.insert("memory".to_owned(), with_overhead(guest.max(limit >> 20)));
    }
    Ok(ResourceRequirements {
        requests: Some(requests),
        limits: Some(limits).filter(|l| !l.is_empty()),
        claims: None,
    })
}

/// The Pod's volumes with their mounts. Volumes are numbered, since a name of 63 characters leaves no room for more.
struct DiskVolumes {
    volumes: Vec<Volume>,
    mounts: Vec<VolumeMount>,
    pull_secrets: Vec<LocalObjectReference>,
}

impl DiskVolumes {
    fn of(vmi: &Instance) -> Self {
        let mut all = Self {
            volumes: Vec::new(),
            mounts: Vec::new(),
            pull_secrets: Vec::new(),
        };
        let secret = SecretVolumeSource {
            secret_name: Some(names::launcher(vmi.name(), vmi.uid())),
            default_mode: Some(0o440),
            ..SecretVolumeSource::default()
        };
        all.add(
            "config",
            CONFIG_DIR.into(),
            true,
            Volume {
                secret: Some(secret),
                ..Volume::default()
            },
        );
        let empty = Volume {
            empty_dir: Some(EmptyDirVolumeSource::default()),
            ..Volume::default()
        };
        all.add("run", RUN_DIR.into(), false, empty);
        for (index, volume) in vmi.volumes.iter().enumerate() {
            all.add_disk(index, volume);
        }
        if let Some(seed) = seed_of(vmi) {
            all.add_seed("seed-user", user_seed_dir(), seed.secret_ref.as_ref());
            let network = seed.network_data_secret_ref.as_ref();
            all.add_seed("seed-network", network_seed_dir(), network);
        }
        all
    }

    fn add_disk(&mut self, index: usize, volume: &api::Volume) {
        let name = format!("disk-{index}");
        match &volume.source {
            VolumeSource::ContainerDisk {
                image,
                pull_policy,
                pull_secret,
                ..
            } => {
                let source = ImageVolumeSource {
                    reference: Some(image.clone()),
                    pull_policy: pull_policy.clone(),
                };
                self.pull_secrets.extend(
                    pull_secret
                        .clone()
                        .map(|name| LocalObjectReference { name }),
                );
                let path = format!("{DISKS_DIR}/{}", volume.name);
                self.add(
                    &name,
                    path,
                    true,
                    Volume {
                        image: Some(source),
                        ..Volume::default()
                    },
                );
            }
            VolumeSource::Claim(claim) => {
                let source = PersistentVolumeClaimVolumeSource {
                    claim_name: claim.clone(),
                    read_only: None,
                };
                let path = format!("{CLAIMS_DIR}/{}", volume.name);
                self.add(
                    &name,
                    path,
                    false,
                    Volume {
                        persistent_volume_claim: Some(source),
                        ..Volume::default()
                    },
                );
            }
            VolumeSource::CloudInit(_)
            | VolumeSource::EmptyDisk { .. }
            | VolumeSource::Other(_) => {}
        }
    }

    /// As KubeVirt does it: the kubelet reads the Secret, and waits for one that is not there yet.
    fn add_seed(&mut self, name: &str, dir: PathBuf, secret: Option<&LocalObjectReference>) {
        let Some(secret) = secret else { return };
        let source = SecretVolumeSource {
            secret_name: Some(secret.name.clone()),
            default_mode: Some(0o440),
            ..SecretVolumeSource::default()
        };
        let volume = Volume {
            secret: Some(source),
            ..Volume::default()
        };
        self.add(name, dir.to_string_lossy().into_owned(), true, volume);
    }

    fn add(&mut self, name: &str, path: String, read_only: bool, mut volume: Volume) {
        volume.name = name.to_owned();
        self.volumes.push(volume);
        self.mounts.push(VolumeMount {
            name: name.to_owned(),
            mount_path: path,
            read_only: Some(read_only),
            ..VolumeMount::default()
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{api::is_controlled_by, testing::instance};

    fn vmi() -> Instance {
        let mut vmi = instance(
            json!({
                "domain": {
                    "memory": {"guest": "256Mi"},
                    "cpu": {"cores": 2},
                    "resources": {"limits": {"memory": "512Mi", "cpu": "2"}},
                    "devices": {"disks": [{"name": "root"}]}
                },
                "readinessProbe": {"tcpSocket": {"port": 22}},
                "livenessProbe": {"guestAgentPing": {}},
                "volumes": [
                    {"name": "root", "containerDisk": {"image": "example.test/g:1", "imagePullPolicy": "Never", "imagePullSecret": "reg"}},
                    {"name": "data", "persistentVolumeClaim": {"claimName": "c"}},
                    {"name": "seed", "cloudInitNoCloud": {"secretRef": {"name": "s"}}}
                ]
            }),
            json!({}),
        );
        vmi.meta.labels = Some(BTreeMap::from([
            ("app".into(), "demo".into()),
            ("kubevirt.io/nodeName".into(), "n".into()),
        ]));
        vmi
    }

    fn built() -> (Pod, PodSpec) {
        let pod = pod(
            &vmi(),
            &Program {
                image: "example.test/launcher:1".into(),
                control_port: 49186,
            },
        )
        .unwrap();
        let spec = pod.spec.clone().unwrap();
        (pod, spec)
    }

    #[test]
    fn labels_annotations_and_owner_are_kubevirts() {
        let (pod, _) = built();
        let labels = pod.metadata.labels.clone().unwrap();
        assert_eq!(labels["kubevirt.io"], "virt-launcher");
        assert_eq!(labels[CREATED_BY_LABEL], vmi().uid());
        assert_eq!(
            (labels[NAME_LABEL].as_str(), labels["app"].as_str()),
            ("demo", "demo")
        );
        assert!(!labels.contains_key("kubevirt.io/nodeName"));
        assert_eq!(
            pod.metadata.annotations.clone().unwrap()["kubevirt.io/domain"],
            "demo"
        );
        assert!(is_controlled_by(&pod.metadata, vmi().uid()));
    }

    #[test]
    fn the_pod_is_restricted_and_carries_no_token() {
        let (_, spec) = built();
        let pod = spec.security_context.unwrap();
        let container = spec.containers[0].security_context.clone().unwrap();
        assert_eq!(
            (pod.run_as_non_root, pod.run_as_user),
            (Some(true), Some(107))
        );
        assert_eq!(container.allow_privilege_escalation, Some(false));
        assert_eq!(container.capabilities.unwrap().drop.unwrap(), ["ALL"]);
        assert_eq!(spec.automount_service_account_token, Some(false));
    }

    #[test]
    fn a_container_disk_is_an_image_volume() {
        let (_, spec) = built();
        let volumes = spec.volumes.unwrap();
        let image = volumes[2].image.clone().unwrap();
        assert_eq!(image.reference.as_deref(), Some("example.test/g:1"));
        assert_eq!(image.pull_policy.as_deref(), Some("Never"));
        assert_eq!(spec.image_pull_secrets.unwrap()[0].name, "reg");
        let mounts = spec.containers[0].volume_mounts.clone().unwrap();
        assert_eq!(
            (mounts[2].mount_path.as_str(), mounts[2].read_only),
            ("/disks/root", Some(true))
        );
        assert_eq!(
            (mounts[3].mount_path.as_str(), mounts[3].read_only),
            ("/claims/data", Some(false))
        );
    }

    #[test]
    fn the_secret_of_cloud_init_is_mounted_and_read_by_nobody_else() {
        let (_, spec) = built();
        let volume = spec.volumes.unwrap().pop().unwrap();
        assert_eq!(volume.secret.unwrap().secret_name.as_deref(), Some("s"));
        let mounts = spec.containers[0].volume_mounts.clone().unwrap();
        assert_eq!(mounts.last().unwrap().mount_path, "/seeds/user");
    }

    #[test]
    fn resources_are_the_guests_and_an_overhead() {
        let (_, spec) = built();
        let resources = spec.containers[0].resources.clone().unwrap();
        let requests = resources.requests.unwrap();
        assert_eq!(
            (requests["memory"].0.as_str(), requests["cpu"].0.as_str()),
            ("640Mi", "200m")
        );
        assert_eq!(resources.limits.unwrap()["memory"].0, "896Mi");
    }

    #[test]
    fn probes_of_ports_are_the_pods_and_those_of_an_agent_are_not() {
        let (_, spec) = built();
        assert!(spec.containers[0].readiness_probe.is_some());
        assert!(spec.containers[0].liveness_probe.is_none());
        assert_eq!(spec.termination_grace_period_seconds, Some(45));
    }
}
