//! A control plane with a controller on it, and what tests ask of both.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use apiserver_generic::Object;
use apiserver_generic::registry::{Parts, Registry, Writer};
use apiserver_generic::storage::{Key as StorageKey, MemoryStorage};
use apiservice::resources::{ImageStrategy, WorkspaceStrategy};
use controller::{Config, RegistryImages, RegistryWorkspaces, Stores};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Client, ResourceExt};
use kubeworkspaces_tests::manifests;
use localcluster::harness::ControlPlane;
use serde_json::{Value, json};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub(crate) const USER: &str = "system:serviceaccount:kubeworkspaces-system:workspaces-apiserver";
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A control plane and a controller on it.
pub(crate) struct Scene {
    pub(crate) plane: ControlPlane,
    pub(crate) admin: Client,
    pub(crate) workspaces: Registry,
    pub(crate) images: Registry,
    pub(crate) stop: CancellationToken,
    pub(crate) running: tokio::task::JoinHandle<Result<(), controller::RunError>>,
}

impl Scene {
    pub(crate) async fn open() -> Result<Self> {
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
    pub(crate) async fn prepare(plane: &ControlPlane, admin: &Client) -> Result<()> {
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

    pub(crate) async fn close(self) -> Result<()> {
        self.stop.cancel();
        self.running.await??;
        Ok(())
    }

    pub(crate) async fn create(&self, name: &str, kind: &str, container: Value) -> Result<()> {
        let object = object(json!({
            "apiVersion": "kubeworkspaces.io/v1alpha1", "kind": "Workspace",
            "metadata": {"name": name, "namespace": "t1"},
            "spec": {"type": kind, "template": {"spec": {"containers": [container]}}},
        }));
        self.workspaces.create(&user(), Some("t1"), object).await?;
        Ok(())
    }

    /// Sets an annotation of a workspace, or removes it.
    pub(crate) async fn annotate(&self, name: &str, key: &str, value: Value) -> Result<()> {
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

    pub(crate) async fn stop_workspace(&self, name: &str, stopped: bool) -> Result<()> {
        let value = if stopped { json!("now") } else { Value::Null };
        self.annotate(name, "kubeworkspaces.io/stopped", value)
            .await
    }

    /// Waits until the phase and the reason of Ready are these.
    pub(crate) async fn told(&self, name: &str, phase: &str, reason: &str) -> Result<Value> {
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

    pub(crate) fn api(&self, kind: &Kind) -> Api<DynamicObject> {
        let (group, version, kind, plural) = *kind;
        let gvk = GroupVersionKind::gvk(group, version, kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
        Api::namespaced_with(self.admin.clone(), "t1", &resource)
    }

    /// Waits for a child in which the value at the pointer is this.
    pub(crate) async fn child(
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

    pub(crate) async fn gone(&self, kind: &Kind, name: &str) -> Result<()> {
        let there = self.api(kind).get_opt(name).await?.is_some();
        ensure!(!there, "{} {name} exists", kind.2);
        Ok(())
    }
}

pub(crate) type Kind = (&'static str, &'static str, &'static str, &'static str);
pub(crate) const STATEFUL_SET: Kind = ("apps", "v1", "StatefulSet", "statefulsets");
pub(crate) const DEPLOYMENT: Kind = ("apps", "v1", "Deployment", "deployments");
pub(crate) const SERVICE: Kind = ("", "v1", "Service", "services");
pub(crate) const SECRET: Kind = ("", "v1", "Secret", "secrets");
pub(crate) const POD: Kind = ("", "v1", "Pod", "pods");
pub(crate) const MACHINE: Kind = ("kubevirt.io", "v1", "VirtualMachine", "virtualmachines");

pub(crate) fn user() -> Writer {
    Writer::server("test")
}

pub(crate) fn key_of(name: &str) -> StorageKey {
    StorageKey {
        namespace: Some("t1".to_owned()),
        name: name.to_owned(),
    }
}

pub(crate) fn object(value: Value) -> Object {
    Object::from_value(value).unwrap_or_default()
}

/// Tries until it works; the last failure is told when patience ends.
pub(crate) async fn eventually<T, F>(what: &str, attempt: impl Fn() -> F) -> Result<T>
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

pub(crate) async fn apply(client: &Client, document: &Value) -> Result<()> {
    let object: DynamicObject = serde_json::from_value(document.clone())?;
    let types = object.types.clone().context("a kind")?;
    let gvk = GroupVersionKind::try_from(&types)?;
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&gvk));
    let params = PatchParams::apply("test").force();
    api.patch(&object.name_any(), &params, &Patch::Apply(document))
        .await?;
    Ok(())
}

pub(crate) async fn kubevirt(client: &Client, installed: bool) -> Result<()> {
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
