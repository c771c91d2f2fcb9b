//! Pods that are replaced.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use http::StatusCode;
use kubeworkspaces_tests::fixtures::workspace;
use serde_json::{Value, json};

use crate::scene::{Scene, done, refused, send};

const PODS: &str = "/api/v1/namespaces/default/pods";

impl Scene {
    /// Makes an object as its controller would, of which there is none here; gives its UID.
    async fn made(&self, path: &str, object: Value) -> Result<String> {
        let mut last = Value::Null;
        // The namespace's ServiceAccount may be a moment late.
        for _ in 0..100 {
            let (code, made) = send(&self.admin, "POST", path, &object.to_string()).await?;
            if code == StatusCode::CREATED {
                return Ok(made["metadata"]["uid"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned());
            }
            last = made;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        bail!("{path}: {last}")
    }

    async fn pod(&self, name: &str, workspace: &str, owner: &Value) -> Result<String> {
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "labels": {"workspace-name": workspace},
                "ownerReferences": [owner]},
            "spec": {"containers": [{"name": "main", "image": "example.test/image:1"}]}});
        self.made(PODS, pod).await?;
        Ok(format!("{PODS}/{name}"))
    }
}

fn owner(kind: &str, name: &str, uid: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid, "controller": true})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reboot_replaces_the_pod_of_a_container_and_of_a_scratch_workspace() -> Result<()> {
    let scene = Scene::open().await?;
    let apps = "/apis/apps/v1/namespaces/default";
    for (kind, workload) in [("container", "statefulsets"), ("scratch", "deployments")] {
        scene.deployment.apply(&workspace(kind, kind)).await?;
        let path = format!("{apps}/{workload}/{kind}");
        scene
            .until(|| async { Ok(scene.get(&path).await.is_ok()) })
            .await?;
        refused(
            &scene.act(kind, "reboot", "").await?,
            409,
            "no pod at the moment",
        )?;
        let made = scene.get(&path).await?;
        let uid = made["metadata"]["uid"].as_str().unwrap_or_default();
        let of = match kind {
            "container" => owner("StatefulSet", kind, uid),
            _ => {
                let spec = &made["spec"];
                let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet",
                    "metadata": {"name": "scratch-1", "ownerReferences": [owner("Deployment", kind, uid)]},
                    "spec": {"selector": spec["selector"], "template": spec["template"]}});
                let set = scene.made(&format!("{apps}/replicasets"), set).await?;
                owner("ReplicaSet", "scratch-1", &set)
            }
        };
        let own = scene.pod(&format!("{kind}-own"), kind, &of).await?;
        // Anybody may put the label on a pod; this one belongs to another object.
        let config = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("{kind}-other")}});
        let maps = "/api/v1/namespaces/default/configmaps";
        let map = scene.made(maps, config).await?;
        let mut stranger = owner("ConfigMap", &format!("{kind}-other"), &map);
        stranger["apiVersion"] = json!("v1");
        let other = scene.pod(&format!("{kind}-other"), kind, &stranger).await?;
        done(
            &scene.act(kind, "reboot?dryRun=All", "").await?,
            "is being replaced",
        )?;
        scene.get(&own).await?;
        done(&scene.act(kind, "reboot", "").await?, "is being replaced")?;
        let (code, _) = send(&scene.admin, "GET", &own, "").await?;
        ensure!(code == StatusCode::NOT_FOUND, "{code}");
        scene.get(&other).await?;
        refused(&scene.act(kind, "reset", "").await?, 400, "type vm")?;
    }
    Ok(())
}
