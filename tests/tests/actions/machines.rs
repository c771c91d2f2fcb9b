//! Machines that are reset, and their user-data.

use anyhow::{Result, ensure};
use http::StatusCode;
use kubeworkspaces_tests::fixtures::workspace;
use serde_json::json;

use crate::scene::{MACHINES, Scene, WORKSPACES, done, refused, send};

/// Writes an instance as KubeVirt would, owned by the machine of this UID.
async fn instance(scene: &Scene, name: &str, machine: &str, phase: &str) -> Result<String> {
    let owner = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": name,
        "uid": machine, "controller": true});
    let object = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {"name": name, "namespace": "default", "ownerReferences": [owner]},
        "spec": {"domain": {"devices": {}}}});
    let all = format!("{MACHINES}/virtualmachineinstances");
    let (code, made) = send(&scene.admin, "POST", &all, &object.to_string()).await?;
    ensure!(code == StatusCode::CREATED, "{code} {made}");
    let mut told = made.clone();
    told["status"] = json!({"phase": phase});
    let path = format!("{all}/{name}/status");
    let (code, told) = send(&scene.admin, "PUT", &path, &told.to_string()).await?;
    if code == StatusCode::NOT_FOUND {
        // Without a status subresource the object holds it.
        let mut whole = made.clone();
        whole["status"] = json!({"phase": phase});
        let (code, told) = send(
            &scene.admin,
            "PUT",
            &format!("{all}/{name}"),
            &whole.to_string(),
        )
        .await?;
        ensure!(code == StatusCode::OK, "{code} {told}");
    } else {
        ensure!(code == StatusCode::OK, "{code} {told}");
    }
    Ok(made["metadata"]["uid"]
        .as_str()
        .unwrap_or_default()
        .to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_replaces_the_workspaces_own_instance_and_no_other() -> Result<()> {
    let scene = Scene::open().await?;
    scene.kubevirt().await?;
    scene.deployment.apply(&workspace("m", "vm")).await?;
    let machine = format!("{MACHINES}/virtualmachines/m");
    scene
        .until(|| async { Ok(scene.get(&machine).await.is_ok()) })
        .await?;
    let uid = scene.get(&machine).await?["metadata"]["uid"].clone();
    let uid = uid.as_str().unwrap_or_default().to_owned();
    let vmi = format!("{MACHINES}/virtualmachineinstances/m");

    done(
        &scene.act("m", "reset", "").await?,
        "gets a new root disk when it starts",
    )?;
    refused(
        &scene.act("m", "reboot", "").await?,
        409,
        "does not run yet",
    )?;

    // Somebody's instance has the name: it is not reached with our rights.
    instance(
        &scene,
        "m",
        "00000000-0000-4000-8000-000000000001",
        "Running",
    )
    .await?;
    refused(
        &scene.act("m", "reset", "").await?,
        409,
        "does not belong to it",
    )?;
    refused(
        &scene.act("m", "reboot", "").await?,
        409,
        "does not belong to it",
    )?;
    scene.get(&vmi).await?;
    send(&scene.admin, "DELETE", &vmi, "").await?;
    scene
        .until(|| async { Ok(scene.get(&vmi).await.is_err()) })
        .await?;

    let own = instance(&scene, "m", &uid, "Running").await?;
    done(
        &scene.act("m", "reset?dryRun=All", "").await?,
        "is being reset",
    )?;
    ensure!(scene.get(&vmi).await?["metadata"]["uid"] == own.as_str());
    // No KubeVirt answers on this control plane: that is no fault of the caller.
    refused(&scene.act("m", "reboot", "").await?, 503, "")?;
    done(&scene.act("m", "reset", "").await?, "is being reset")?;
    scene
        .until(|| async { Ok(scene.get(&vmi).await.is_err()) })
        .await?;

    let paused = scene.act("m", "start", r#"{"paused": true}"#).await?;
    refused(&paused, 409, "not stopped")?;
    done(&scene.act("m", "stop", "").await?, "is being stopped")?;
    done(
        &scene.act("m", "reset", "").await?,
        "gets a new root disk when it starts",
    )?;
    scene
        .until(|| async {
            let object = scene.get(&format!("{WORKSPACES}/m")).await?;
            Ok(object["status"]["phase"] == "Stopped")
        })
        .await?;
    let paused = scene.act("m", "start", r#"{"paused": true}"#).await?;
    done(&paused, "is being started, paused")?;
    // The machine stays halted until KubeVirt, which is not there, has started it paused.
    let object = scene.get(&format!("{WORKSPACES}/m")).await?;
    ensure!(object["metadata"]["annotations"]["kubeworkspaces.io/start-paused"].is_string());
    scene
        .until(|| async { Ok(scene.get(&machine).await?["spec"]["runStrategy"] == "Halted") })
        .await?;
    // As KubeVirt does when it has: the wish has come true, and is taken away.
    let always = r#"{"spec": {"runStrategy": "Always"}}"#;
    let patch = ["patch", "vm", "m", "--type=merge", "-p", always];
    scene.deployment.kubectl(&patch).await?;
    scene
        .until(|| async {
            let object = scene.get(&format!("{WORKSPACES}/m")).await?;
            let strategy = &scene.get(&machine).await?["spec"]["runStrategy"];
            let wish = &object["metadata"]["annotations"]["kubeworkspaces.io/start-paused"];
            Ok(wish.is_null() && strategy == "Always")
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn user_data_is_what_the_machines_secret_holds() -> Result<()> {
    let scene = Scene::open().await?;
    let image = json!({"apiVersion": "kubeworkspaces.io/v1alpha1", "kind": "Image",
        "metadata": {"name": "tiny"},
        "spec": {"image": "example.test/image:1", "displayName": "Tiny", "defaultPort": 22,
            "category": "vm", "workspaceTypes": ["vm"],
            "defaultUserData": "#cloud-config\nhostname: ünique\n"}});
    scene.deployment.apply(&image.to_string()).await?;
    scene.deployment.apply(&workspace("m", "vm")).await?;
    let boss = scene.deployment.plane().client_as("boss", &[])?;
    let path = format!("{WORKSPACES}/m/userdata");
    let expected = json!("#cloud-config\nhostname: ünique\n");
    // Without KubeVirt there is no Secret yet: it is what would be written.
    let (code, rendered) = send(&boss, "GET", &path, "").await?;
    ensure!(
        code == StatusCode::OK && rendered == expected,
        "{code} {rendered}"
    );

    scene.kubevirt().await?;
    let secret = "/api/v1/namespaces/default/secrets/m-cloudinit";
    scene
        .until(|| async { Ok(scene.get(secret).await.is_ok()) })
        .await?;
    // A Secret is written once; the catalog goes on.
    let edit = r##"{"spec": {"defaultUserData": "#cloud-config\nhostname: other\n"}}"##;
    let patch = ["patch", "image", "tiny", "--type=merge", "-p", edit];
    scene.deployment.kubectl(&patch).await?;
    let (_, written) = send(&boss, "GET", &path, "").await?;
    ensure!(written == expected, "{written}");

    scene.deployment.apply(&workspace("c", "container")).await?;
    let path = format!("{WORKSPACES}/c/userdata");
    refused(&send(&boss, "GET", &path, "").await?, 400, "type vm")
}
