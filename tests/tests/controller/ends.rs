//! Deletion, and what was told of a life.

use anyhow::{Context as _, Result, ensure};
use apiserver_generic::Object;
use apiserver_generic::registry::DeleteOptions;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::scene::{DEPLOYMENT, SERVICE, Scene, eventually, key_of, object, user};

pub(crate) async fn deleted_means_left_alone(scene: &Scene) -> Result<()> {
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
pub(crate) async fn a_finalizer_holds_it(scene: &Scene) -> Result<()> {
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
pub(crate) async fn what_happened_is_told(scene: &Scene) -> Result<()> {
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
