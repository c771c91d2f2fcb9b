//! Containers and scratch workspaces: their children, their pods, and what others own.

use std::time::Duration;

use anyhow::{Result, ensure};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use serde_json::json;

use crate::scene::{
    DEPLOYMENT, POD, SERVICE, STATEFUL_SET, Scene, eventually, key_of, object, user,
};

pub(crate) async fn container_and_scratch(scene: &Scene) -> Result<()> {
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
pub(crate) async fn status_of_a_pod(scene: &Scene) -> Result<()> {
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

pub(crate) async fn nothing_foreign_is_touched(scene: &Scene) -> Result<()> {
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

/// An Image's agent port and shell are not for machines alone.
pub(crate) async fn the_catalog_shapes_containers_too(scene: &Scene) -> Result<()> {
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
