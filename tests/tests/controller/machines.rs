//! Machines: KubeVirt that comes and goes, and their Secrets.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use apiserver_generic::Object;
use apiserver_generic::storage::Key as StorageKey;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};

use crate::scene::{MACHINE, SECRET, Scene, USER, kubevirt, object, user};

pub(crate) async fn kubevirt_late_and_gone(scene: &Scene) -> Result<()> {
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
pub(crate) async fn user_data_stays(scene: &Scene) -> Result<()> {
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

pub(crate) async fn foreign_secret(scene: &Scene, container: Value) -> Result<()> {
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
pub(crate) async fn token_secret(scene: &Scene) -> Result<()> {
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
