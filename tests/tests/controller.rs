//! The controller against a real control plane, with the rights and under the policies that it is
//! deployed with. Workspaces and Images live in a memory backend behind the real registries.
//!
//! There is no node: where a pod matters, the test writes what a kubelet would.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use apiserver_generic::Object;
use apiserver_generic::registry::{DeleteOptions, Parts, Registry, Writer};
use apiserver_generic::storage::{Key as StorageKey, MemoryStorage};
use apiservice::resources::{ImageStrategy, WorkspaceStrategy};
use controller::{Candidate, Config, RegistryImages, RegistryWorkspaces, Stores, Times};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Client, ResourceExt};
use kubeworkspaces_tests::manifests;
use localcluster::harness::ControlPlane;
use serde_json::{Value, json};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

const USER: &str = "system:serviceaccount:kubeworkspaces-system:workspaces-apiserver";
const PATIENCE: Duration = Duration::from_secs(60);

/// A control plane and a controller on it.
struct Scene {
    plane: ControlPlane,
    admin: Client,
    workspaces: Registry,
    images: Registry,
    stop: CancellationToken,
    running: tokio::task::JoinHandle<Result<(), controller::RunError>>,
}

impl Scene {
    async fn open() -> Result<Self> {
        let plane = ControlPlane::start().await?;
        let admin = plane.client()?;
        let scene = Self::prepare(&plane, &admin).await;
        scene.context("preparing the control plane")?;
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let start = |strategy| {
            let parts = Parts::new(strategy, Arc::new(MemoryStorage::default()));
            Registry::start(parts, &tasks, &stop)
        };
        let workspaces = start(Arc::new(WorkspaceStrategy::new()));
        let images = start(Arc::new(ImageStrategy::new()));
        let stores = Stores {
            workspaces: Arc::new(RegistryWorkspaces(workspaces.clone())),
            images: Arc::new(RegistryImages(images.clone())),
        };
        let config = Config {
            kubevirt_every: Duration::from_millis(500),
            look_again: Duration::from_secs(3),
            ..Config::default()
        };
        let client = plane.client_as(USER, &["system:serviceaccounts"])?;
        let running = tokio::spawn(controller::run(client, stores, config, stop.clone()));
        Ok(Self {
            plane,
            admin,
            workspaces,
            images,
            stop,
            running,
        })
    }

    /// Namespaces, and the rights and policies as deployed.
    async fn prepare(plane: &ControlPlane, admin: &Client) -> Result<()> {
        for namespace in ["kubeworkspaces-system", "t1"] {
            plane.kubectl(["create", "namespace", namespace]).await?;
        }
        for document in manifests::controller_rbac() {
            apply(admin, &document).await?;
        }
        let base = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/base");
        for file in ["policies.yaml", "rbac.yaml"] {
            plane
                .kubectl(["apply", "-f", &format!("{base}/{file}")])
                .await?;
        }
        Ok(())
    }

    async fn close(self) -> Result<()> {
        self.stop.cancel();
        self.running.await??;
        Ok(())
    }

    async fn create(&self, name: &str, kind: &str, container: Value) -> Result<()> {
        let object = object(json!({
            "apiVersion": "kubeworkspaces.io/v1alpha1", "kind": "Workspace",
            "metadata": {"name": name, "namespace": "t1"},
            "spec": {"type": kind, "template": {"spec": {"containers": [container]}}},
        }));
        self.workspaces.create(&user(), Some("t1"), object).await?;
        Ok(())
    }

    /// Sets an annotation of a workspace, or removes it.
    async fn annotate(&self, name: &str, key: &str, value: Value) -> Result<()> {
        let change = |object: &mut Object| {
            let annotations = object
                .metadata_mut()
                .entry("annotations")
                .or_insert(json!({}));
            annotations[key] = value.clone();
            if value.is_null()
                && let Some(map) = annotations.as_object_mut()
            {
                map.remove(key);
            }
            Ok(())
        };
        self.workspaces
            .update_with(&user(), &key_of(name), None, change)
            .await?;
        Ok(())
    }

    async fn stop_workspace(&self, name: &str, stopped: bool) -> Result<()> {
        let value = if stopped { json!("now") } else { Value::Null };
        self.annotate(name, "kubeworkspaces.io/stopped", value)
            .await
    }

    /// Waits until the phase and the reason of Ready are these.
    async fn told(&self, name: &str, phase: &str, reason: &str) -> Result<Value> {
        let what = format!("{name} is {phase} ({reason})");
        eventually(&what, || async {
            let item = self
                .workspaces
                .cached_get(&key_of(name))
                .context("no workspace")?;
            let status = item.object.pointer("/status").cloned().unwrap_or_default();
            let ready = &status["conditions"][0];
            ensure!(
                status["phase"] == phase && ready["reason"] == reason,
                "it is {} ({}: {})",
                status["phase"],
                ready["reason"],
                ready["message"]
            );
            Ok(status)
        })
        .await
    }

    fn api(&self, kind: &Kind) -> Api<DynamicObject> {
        let (group, version, kind, plural) = *kind;
        let gvk = GroupVersionKind::gvk(group, version, kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
        Api::namespaced_with(self.admin.clone(), "t1", &resource)
    }

    /// Waits for a child in which the value at the pointer is this.
    async fn child(
        &self,
        kind: &Kind,
        name: &str,
        pointer: &str,
        value: Value,
    ) -> Result<DynamicObject> {
        let what = format!("{} {name} has {pointer} = {value}", kind.2);
        eventually(&what, || async {
            let child = self
                .api(kind)
                .get_opt(name)
                .await?
                .context("it does not exist")?;
            let found = child.data.pointer(pointer).cloned().unwrap_or_default();
            ensure!(found == value, "it has {found}");
            Ok(child)
        })
        .await
    }

    async fn gone(&self, kind: &Kind, name: &str) -> Result<()> {
        let there = self.api(kind).get_opt(name).await?.is_some();
        ensure!(!there, "{} {name} exists", kind.2);
        Ok(())
    }
}

type Kind = (&'static str, &'static str, &'static str, &'static str);
const STATEFUL_SET: Kind = ("apps", "v1", "StatefulSet", "statefulsets");
const DEPLOYMENT: Kind = ("apps", "v1", "Deployment", "deployments");
const SERVICE: Kind = ("", "v1", "Service", "services");
const SECRET: Kind = ("", "v1", "Secret", "secrets");
const POD: Kind = ("", "v1", "Pod", "pods");
const MACHINE: Kind = ("kubevirt.io", "v1", "VirtualMachine", "virtualmachines");

fn user() -> Writer {
    Writer::server("test")
}

fn key_of(name: &str) -> StorageKey {
    StorageKey {
        namespace: Some("t1".to_owned()),
        name: name.to_owned(),
    }
}

fn object(value: Value) -> Object {
    Object::from_value(value).unwrap_or_default()
}

/// Tries until it works; the last failure is told when patience ends.
async fn eventually<T, F>(what: &str, attempt: impl Fn() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let begun = std::time::Instant::now();
    loop {
        match attempt().await {
            Ok(value) => return Ok(value),
            Err(error) if begun.elapsed() > PATIENCE => bail!("never: {what}: {error:#}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn apply(client: &Client, document: &Value) -> Result<()> {
    let object: DynamicObject = serde_json::from_value(document.clone())?;
    let types = object.types.clone().context("a kind")?;
    let gvk = GroupVersionKind::try_from(&types)?;
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&gvk));
    let params = PatchParams::apply("test").force();
    api.patch(&object.name_any(), &params, &Patch::Apply(document))
        .await?;
    Ok(())
}

async fn kubevirt(client: &Client, installed: bool) -> Result<()> {
    let gvk = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&gvk));
    for name in [
        "virtualmachines.kubevirt.io",
        "virtualmachineinstances.kubevirt.io",
    ] {
        if installed {
            let file = format!(
                "{}/../hack/localvirt/crds/{name}.json",
                env!("CARGO_MANIFEST_DIR")
            );
            apply(
                client,
                &serde_json::from_str(&std::fs::read_to_string(file)?)?,
            )
            .await?;
        } else {
            api.delete(name, &DeleteParams::default()).await?;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn workspaces_become_what_they_ask_for() -> Result<()> {
    let scene = Scene::open().await?;
    container_and_scratch(&scene)
        .await
        .context("container and scratch")?;
    status_of_a_pod(&scene).await.context("status of a pod")?;
    nothing_foreign_is_touched(&scene)
        .await
        .context("conflicts")?;
    kubevirt_late_and_gone(&scene).await.context("KubeVirt")?;
    deleted_means_left_alone(&scene).await.context("deletion")?;
    a_finalizer_holds_it(&scene).await.context("finalizer")?;
    what_happened_is_told(&scene).await.context("events")?;
    the_catalog_shapes_containers_too(&scene)
        .await
        .context("catalog")?;
    one_leader(&scene).await.context("leader election")?;
    scene.close().await
}

async fn container_and_scratch(scene: &Scene) -> Result<()> {
    let container = json!({
        "name": "main", "image": "registry.local/code:1",
        "ports": [{"containerPort": 3000}],
        "resources": {"limits": {"cpu": 0.5, "memory": "1024Mi"}},
    });
    scene.create("code.blue", "container", container).await?;
    let name = controller::names::child_name("code.blue");
    scene
        .child(&STATEFUL_SET, &name, "/spec/replicas", json!(1))
        .await?;
    scene
        .child(&SERVICE, &name, "/spec/ports/0/targetPort", json!(3000))
        .await?;
    scene.told("code.blue", "Pending", "PodNotCreated").await?;
    scene.stop_workspace("code.blue", true).await?;
    scene
        .child(&STATEFUL_SET, &name, "/spec/replicas", json!(0))
        .await?;
    scene.told("code.blue", "Stopped", "Stopped").await?;
    scene.stop_workspace("code.blue", false).await?;
    scene
        .child(&STATEFUL_SET, &name, "/spec/replicas", json!(1))
        .await?;

    scene
        .create(
            "pad",
            "scratch",
            json!({"name": "main", "image": "registry.local/sh:1"}),
        )
        .await?;
    scene
        .child(&DEPLOYMENT, "pad", "/spec/strategy/type", json!("Recreate"))
        .await?;
    scene
        .child(&SERVICE, "pad", "/spec/ports/0/port", json!(80))
        .await?;
    Ok(())
}

/// What a StatefulSet controller and a kubelet would write, and what comes of it; then nothing is
/// written while nothing changes.
async fn status_of_a_pod(scene: &Scene) -> Result<()> {
    let name = controller::names::child_name("code.blue");
    let set = scene.api(&STATEFUL_SET).get(&name).await?;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("{name}-0"), "labels": set.data["spec"]["template"]["metadata"]["labels"],
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": name,
                                 "uid": set.uid(), "controller": true}],
        },
        "spec": {"containers": [{"name": "main", "image": "registry.local/code:1"}],
                 "automountServiceAccountToken": false},
    });
    let pods = scene.api(&POD);
    let pod: DynamicObject = serde_json::from_value(pod)?;
    eventually("the pod is admitted", || async {
        Ok(pods.create(&PostParams::default(), &pod).await?)
    })
    .await?;
    let status = json!({"status": {
        "phase": "Running", "podIP": "10.0.0.7", "podIPs": [{"ip": "10.0.0.7"}],
        "conditions": [{"type": "Ready", "status": "True"}],
    }});
    let params = PatchParams::default();
    pods.patch_status(&pod.name_any(), &params, &Patch::Merge(&status))
        .await?;
    let status = scene.told("code.blue", "Running", "Ready").await?;
    ensure!(
        status["address"] == "10.0.0.7" && status["readyReplicas"] == 1,
        "{status}"
    );

    let revision = || {
        scene
            .workspaces
            .cached_get(&key_of("code.blue"))
            .map(|item| item.revision)
    };
    let before = revision();
    let version = scene
        .api(&STATEFUL_SET)
        .get(&name)
        .await?
        .resource_version();
    // Two looks take place in this time: it is the absence of writes that is waited for.
    tokio::time::sleep(Duration::from_secs(7)).await;
    ensure!(
        revision() == before,
        "the status was written although nothing changed"
    );
    let after = scene
        .api(&STATEFUL_SET)
        .get(&name)
        .await?
        .resource_version();
    ensure!(
        version == after,
        "the StatefulSet was written although nothing changed"
    );
    pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0))
        .await?;
    Ok(())
}

async fn nothing_foreign_is_touched(scene: &Scene) -> Result<()> {
    let foreign = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "taken"},
                         "spec": {"ports": [{"port": 1}]}});
    let services = scene.api(&SERVICE);
    let foreign: DynamicObject = serde_json::from_value(foreign)?;
    let before = services.create(&PostParams::default(), &foreign).await?;
    scene
        .create(
            "taken",
            "container",
            json!({"name": "main", "image": "registry.local/a:1"}),
        )
        .await?;
    let status = scene.told("taken", "Failed", "NameConflict").await?;
    let message = status["conditions"][0]["message"].to_string();
    ensure!(message.contains("Service taken"), "{message}");
    let after = services.get("taken").await?;
    ensure!(
        before.resource_version() == after.resource_version(),
        "it was written"
    );
    // Once the name is free the workspace gets it.
    services.delete("taken", &DeleteParams::default()).await?;
    scene
        .child(&SERVICE, "taken", "/spec/ports/0/port", json!(80))
        .await?;
    scene.told("taken", "Pending", "PodNotCreated").await?;
    Ok(())
}

async fn kubevirt_late_and_gone(scene: &Scene) -> Result<()> {
    let image = object(json!({
        "apiVersion": "kubeworkspaces.io/v1alpha1", "kind": "Image", "metadata": {"name": "tiny"},
        "spec": {"image": "registry.local/tiny:1", "defaultPort": 22, "workspaceTypes": ["vm"],
                 "defaultCloudInit": true, "defaultUser": "dev", "defaultPassword": "dev",
                 "memoryLimit": "128Mi"},
    }));
    scene.images.create(&user(), None, image).await?;
    let container = json!({"name": "main", "image": "registry.local/tiny:1"});
    scene.create("demo", "vm", container.clone()).await?;
    scene
        .told("demo", "Pending", "KubeVirtNotInstalled")
        .await?;
    scene.gone(&SECRET, "demo-cloudinit").await?;

    kubevirt(&scene.admin, true).await?;
    scene
        .child(&MACHINE, "demo", "/spec/runStrategy", json!("Always"))
        .await?;
    let mac = "/spec/template/spec/domain/devices/interfaces/0/macAddress";
    scene
        .child(&MACHINE, "demo", mac, json!("02:67:42:76:d3:96"))
        .await?;
    let status = scene.told("demo", "Starting", "Starting").await?;
    ensure!(status["image"]["name"] == "tiny", "{status}");
    user_data_stays(scene).await.context("user-data")?;

    scene.stop_workspace("demo", true).await?;
    scene
        .child(&MACHINE, "demo", "/spec/runStrategy", json!("Halted"))
        .await?;
    scene.stop_workspace("demo", false).await?;
    scene
        .child(&MACHINE, "demo", "/spec/runStrategy", json!("Always"))
        .await?;
    foreign_secret(scene, container)
        .await
        .context("a Secret of somebody else")?;
    token_secret(scene).await.context("a Secret with a token")?;

    kubevirt(&scene.admin, false).await?;
    scene
        .told("demo", "Pending", "KubeVirtNotInstalled")
        .await?;
    ensure!(!scene.running.is_finished(), "the controller ended");
    Ok(())
}

/// An edit of the catalog changes neither machine nor Secret; a lost Secret comes back.
async fn user_data_stays(scene: &Scene) -> Result<()> {
    let secret = scene
        .child(&SECRET, "demo-cloudinit", "/type", json!("Opaque"))
        .await?;
    let machine = scene.api(&MACHINE).get("demo").await?;
    let key = StorageKey {
        namespace: None,
        name: "tiny".to_owned(),
    };
    let edit = |image: &mut Object| {
        let spec = image.fields_mut().entry("spec").or_insert(json!({}));
        spec["memoryLimit"] = json!("256Mi");
        spec["defaultPassword"] = json!("changed");
        Ok(())
    };
    scene.images.update_with(&user(), &key, None, edit).await?;
    scene
        .annotate("demo", "example.com/touched", json!("yes"))
        .await?;
    tokio::time::sleep(Duration::from_secs(4)).await;
    let now = scene.api(&MACHINE).get("demo").await?;
    ensure!(
        now.metadata.generation == machine.metadata.generation,
        "the machine changed"
    );
    let secrets = scene.api(&SECRET);
    ensure!(
        secrets.get("demo-cloudinit").await?.data == secret.data,
        "the Secret changed"
    );
    secrets
        .delete("demo-cloudinit", &DeleteParams::default())
        .await?;
    scene
        .child(&SECRET, "demo-cloudinit", "/type", json!("Opaque"))
        .await?;
    Ok(())
}

async fn foreign_secret(scene: &Scene, container: Value) -> Result<()> {
    let foreign = json!({"apiVersion": "v1", "kind": "Secret", "stringData": {"userdata": "theirs"},
                         "metadata": {"name": "other-cloudinit"}});
    let secrets = scene.api(&SECRET);
    let foreign: DynamicObject = serde_json::from_value(foreign)?;
    let before = secrets.create(&PostParams::default(), &foreign).await?;
    scene.create("other", "vm", container).await?;
    scene.told("other", "Failed", "NameConflict").await?;
    scene.gone(&MACHINE, "other").await?;
    let after = secrets.get("other-cloudinit").await?;
    ensure!(
        before.resource_version() == after.resource_version(),
        "it was written"
    );
    Ok(())
}

/// Kubernetes would fill it with a token of the ServiceAccount that it names.
async fn token_secret(scene: &Scene) -> Result<()> {
    let client = scene.plane.client_as(USER, &["system:serviceaccounts"])?;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Secret"));
    let secrets: Api<DynamicObject> = Api::namespaced_with(client, "t1", &resource);
    let owned = |kind: &str| {
        serde_json::from_value::<DynamicObject>(json!({
            "apiVersion": "v1", "kind": "Secret", "type": kind,
            "metadata": {
                "name": "token", "annotations": {"kubernetes.io/service-account.name": "default"},
                "ownerReferences": [{"apiVersion": "kubeworkspaces.io/v1alpha1", "kind": "Workspace",
                    "name": "demo", "uid": "u", "controller": true}],
            },
        }))
    };
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    secrets.create(&dry, &owned("Opaque")?).await?;
    let token = owned("kubernetes.io/service-account-token")?;
    let refused = secrets.create(&dry, &token).await;
    ensure!(
        matches!(&refused, Err(kube::Error::Api(status)) if status.message.contains("type Opaque")),
        "{refused:?}"
    );
    Ok(())
}

async fn deleted_means_left_alone(scene: &Scene) -> Result<()> {
    scene
        .workspaces
        .delete(&user(), &key_of("pad"), &DeleteOptions::default())
        .await?;
    for kind in [&DEPLOYMENT, &SERVICE] {
        // As the garbage collector does, which does not know Workspaces on this control plane.
        scene
            .api(kind)
            .delete("pad", &DeleteParams::default())
            .await?;
    }
    eventually("the Service is gone", || scene.gone(&SERVICE, "pad")).await?;
    // Work on another workspace passes through the same queue after those deletions.
    scene
        .create(
            "after",
            "scratch",
            json!({"name": "main", "image": "registry.local/a:1"}),
        )
        .await?;
    scene
        .child(&DEPLOYMENT, "after", "/spec/replicas", json!(1))
        .await?;
    scene.gone(&SERVICE, "pad").await?;
    scene.gone(&DEPLOYMENT, "pad").await
}

/// While a finalizer holds a deleted workspace, its status says what the table says.
async fn a_finalizer_holds_it(scene: &Scene) -> Result<()> {
    let held = object(json!({
        "apiVersion": "kubeworkspaces.io/v1alpha1", "kind": "Workspace",
        "metadata": {"name": "held", "namespace": "t1", "finalizers": ["example.com/wait"]},
        "spec": {"type": "scratch", "template": {
            "metadata": {"labels": {"team": "blue", "workspace-name": "other"},
                "annotations": {"example.com/note": "hello"}},
            "spec": {"containers": [{"name": "main", "image": "registry.local/sh:1"}]}}},
    }));
    scene.workspaces.create(&user(), Some("t1"), held).await?;
    let template = "/spec/template/metadata";
    let pods = scene
        .child(
            &DEPLOYMENT,
            "held",
            &format!("{template}/labels/team"),
            json!("blue"),
        )
        .await?;
    let metadata = pods.data.pointer(template).context("no metadata")?;
    ensure!(metadata["labels"]["workspace-name"] == "held", "{metadata}");
    ensure!(
        metadata["annotations"]["example.com/note"] == "hello",
        "{metadata}"
    );
    let options = DeleteOptions::default();
    let key = key_of("held");
    scene.workspaces.delete(&user(), &key, &options).await?;
    let status = scene.told("held", "Terminating", "Terminating").await?;
    ensure!(status["readyReplicas"] == 0, "{status}");
    let why = status["conditions"][0]["message"].as_str();
    ensure!(
        why.is_some_and(|why| why.contains("example.com/wait")),
        "{status}"
    );
    let release = |object: &mut Object| {
        object.metadata_mut().remove("finalizers");
        Ok(())
    };
    scene
        .workspaces
        .update_with(&user(), &key, None, release)
        .await?;
    eventually("it is gone", || async {
        ensure!(scene.workspaces.cached_get(&key).is_none(), "it is there");
        Ok(())
    })
    .await
}

/// Events, made with the rights that the controller is deployed with.
async fn what_happened_is_told(scene: &Scene) -> Result<()> {
    let events = || async {
        let ask = ["get", "events", "-n", "t1", "-o", "json"];
        let list: Value = serde_json::from_str(&scene.plane.kubectl(ask).await?)?;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        anyhow::Ok(items)
    };
    for (name, reason, kind, words) in [
        ("code.blue", "Created", "Normal", "created StatefulSet"),
        ("code.blue", "Stopped", "Normal", "the workspace is stopped"),
        ("held", "Terminating", "Normal", "example.com/wait"),
    ] {
        eventually(&format!("{reason} of {name} is told"), || async {
            let events = events().await?;
            let found = events.iter().any(|event| {
                let about = &event["involvedObject"];
                about["name"] == name
                    && about["kind"] == "Workspace"
                    && event["reason"] == reason
                    && event["type"] == kind
                    && event["message"].as_str().is_some_and(|m| m.contains(words))
            });
            ensure!(found, "{events:?}");
            Ok(())
        })
        .await?;
    }
    let events = events().await?;
    let warned = |reason: &str| {
        events
            .iter()
            .any(|e| e["reason"] == reason && e["type"] == "Warning")
    };
    for reason in ["NameConflict", "KubeVirtNotInstalled"] {
        ensure!(warned(reason), "no {reason}: {events:?}");
    }
    Ok(())
}

/// An Image's agent port and shell are not for machines alone.
async fn the_catalog_shapes_containers_too(scene: &Scene) -> Result<()> {
    let image = object(json!({
        "apiVersion": "kubeworkspaces.io/v1alpha1", "kind": "Image",
        "metadata": {"name": "agent"},
        "spec": {"image": "registry.local/agent:1", "defaultPort": 8080, "defaultShell": "/bin/zsh",
            "proxyConfig": {"agentPort": 44787}},
    }));
    scene.images.create(&user(), None, image).await?;
    let container = json!({"name": "main", "image": "registry.local/agent:1"});
    scene.create("agent", "container", container).await?;
    let service = scene
        .child(&SERVICE, "agent", "/spec/ports/1/name", json!("agent"))
        .await?;
    ensure!(service.data["spec"]["ports"][1]["targetPort"] == 44787);
    let status = scene.told("agent", "Pending", "PodNotCreated").await?;
    let settings = &status["image"]["settings"];
    ensure!(settings["defaultShell"] == "/bin/zsh", "{status}");
    Ok(())
}

/// Two candidates: one works; when it ends the other takes over, and never both at once.
async fn one_leader(scene: &Scene) -> Result<()> {
    let client = scene.plane.client_as(USER, &["system:serviceaccounts"])?;
    let (at_work, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let candidate = |identity: &str, stop: &CancellationToken| {
        let candidate = Candidate {
            namespace: "kubeworkspaces-system".to_owned(),
            lease: "workspaces-controller".to_owned(),
            identity: identity.to_owned(),
            times: Times::default(),
        };
        let (at_work, most) = (at_work.clone(), most.clone());
        controller::spawn_when_leader(client.clone(), candidate, stop.clone(), move |token| {
            let (at_work, most) = (at_work.clone(), most.clone());
            async move {
                most.fetch_max(at_work.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                token.cancelled().await;
                at_work.fetch_sub(1, Ordering::SeqCst);
            }
        })
    };
    let (stop_a, stop_b) = (CancellationToken::new(), CancellationToken::new());
    let (a, b) = (candidate("a", &stop_a), candidate("b", &stop_b));
    let working = |n: usize| {
        let at_work = at_work.clone();
        move || {
            let at_work = at_work.clone();
            async move {
                ensure!(at_work.load(Ordering::SeqCst) == n, "not {n} at work");
                Ok(())
            }
        }
    };
    eventually("one leads", working(1)).await?;
    let lease = scene
        .plane
        .kubectl([
            "get",
            "lease",
            "-n",
            "kubeworkspaces-system",
            "workspaces-controller",
            "-o",
            "jsonpath={.spec.holderIdentity}",
        ])
        .await?;
    let (first, ended, second, rest) = match lease.as_str() {
        "a" => (stop_a, a, stop_b, b),
        _ => (stop_b, b, stop_a, a),
    };
    first.cancel();
    ended.await?;
    let begun = std::time::Instant::now();
    eventually("the other leads", working(1)).await?;
    ensure!(
        begun.elapsed() < Duration::from_secs(12),
        "the Lease was not given back"
    );
    second.cancel();
    rest.await?;
    ensure!(most.load(Ordering::SeqCst) == 1, "two led at once");
    Ok(())
}
