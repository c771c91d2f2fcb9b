//! Actions on workspaces and their user-data, through the real kube-apiserver, with the rights that
//! the shipped roles give.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use http::{Request, StatusCode};
use kube::Client;
use kubeworkspaces_tests::{
    deployment::{Deployment, repository},
    fixtures::workspace,
};
use serde_json::{Value, json};

const WORKSPACES: &str = "/apis/kubeworkspaces.io/v1alpha1/namespaces/default/workspaces";
const MACHINES: &str = "/apis/kubevirt.io/v1/namespaces/default";
const PODS: &str = "/api/v1/namespaces/default/pods";
const STOPPED: &str = "kubeworkspaces.io/stopped";

/// A server, and users with Kubernetes' own roles: `viewer`, `editor`, `boss`.
struct Scene {
    deployment: Deployment,
    admin: Client,
    editor: Client,
}

impl Scene {
    async fn open() -> Result<Self> {
        let deployment = Deployment::start().await?;
        for (user, role) in [("viewer", "view"), ("editor", "edit"), ("boss", "admin")] {
            let arguments = [
                "create",
                "rolebinding",
                user,
                &format!("--clusterrole={role}"),
                &format!("--user={user}"),
            ];
            deployment.kubectl(&arguments).await?;
        }
        let scene = Self {
            admin: deployment.client()?,
            editor: deployment.plane().client_as("editor", &[])?,
            deployment,
        };
        scene.until_permitted().await?;
        Ok(scene)
    }

    /// Aggregated roles are filled by a controller a moment later.
    async fn until_permitted(&self) -> Result<()> {
        for (user, verb, what) in [
            ("editor", "create", "workspaces/stop"),
            ("boss", "get", "workspaces/userdata"),
        ] {
            let ask = ["auth", "can-i", verb, what, "--as", user];
            self.until(|| async { Ok(self.deployment.kubectl(&ask).await?.trim() == "yes") })
                .await
                .with_context(|| format!("{user} may {verb} {what}"))?;
        }
        Ok(())
    }

    async fn until<F>(&self, holds: impl Fn() -> F) -> Result<()>
    where
        F: Future<Output = Result<bool>>,
    {
        let end = std::time::Instant::now() + Duration::from_secs(60);
        loop {
            match holds().await {
                Ok(true) => return Ok(()),
                last if std::time::Instant::now() > end => {
                    bail!(
                        "did not come in a minute: {last:?}\n{}",
                        self.deployment.tail()
                    )
                }
                _ => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    async fn kubevirt(&self) -> Result<()> {
        for kind in ["virtualmachines", "virtualmachineinstances"] {
            let file = repository().join(format!("hack/localvirt/crds/{kind}.kubevirt.io.json"));
            let file = file.display().to_string();
            let apply = ["apply", "--server-side", "-f", &file];
            self.deployment.kubectl(&apply).await?;
        }
        let wait = ["wait", "--for=condition=Established", "crd", "--all"];
        self.deployment.kubectl(&wait).await?;
        Ok(())
    }

    async fn get(&self, path: &str) -> Result<Value> {
        let (code, value) = send(&self.admin, "GET", path, "").await?;
        ensure!(code == StatusCode::OK, "{path}: {code} {value}");
        Ok(value)
    }

    async fn stopped(&self, name: &str) -> Result<Value> {
        let object = self.get(&format!("{WORKSPACES}/{name}")).await?;
        Ok(object["metadata"]["annotations"][STOPPED].clone())
    }

    /// An action of the editor.
    async fn act(&self, name: &str, action: &str, body: &str) -> Result<(StatusCode, Value)> {
        send(
            &self.editor,
            "POST",
            &format!("{WORKSPACES}/{name}/{action}"),
            body,
        )
        .await
    }
}

/// Code, and body as JSON, or as a string if it is none.
async fn send(
    client: &Client,
    method: &str,
    path: &str,
    body: &str,
) -> Result<(StatusCode, Value)> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("Content-Type", "application/json")
        .body(kube::client::Body::from(body.as_bytes().to_vec()))?;
    let response = client.send(request).await?;
    let code = response.status();
    let bytes = http_body_util::BodyExt::collect(response.into_body())
        .await?
        .to_bytes();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok((
        code,
        serde_json::from_str(&text).unwrap_or(Value::String(text)),
    ))
}

fn refused(answer: &(StatusCode, Value), code: u16, words: &str) -> Result<()> {
    let (is, status) = answer;
    let message = status["message"].as_str().unwrap_or_default();
    ensure!(
        is.as_u16() == code && status["kind"] == "Status" && message.contains(words),
        "not {code} {words:?}: {is} {status}"
    );
    Ok(())
}

fn done(answer: &(StatusCode, Value), words: &str) -> Result<()> {
    let (code, status) = answer;
    let message = status["message"].as_str().unwrap_or_default();
    ensure!(
        *code == StatusCode::OK && status["status"] == "Success" && message.contains(words),
        "not done {words:?}: {code} {status}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn start_and_stop_are_wishes_that_may_be_repeated_and_tried() -> Result<()> {
    let scene = Scene::open().await?;
    scene.deployment.apply(&workspace("w", "container")).await?;

    for body in [r#"{"dryRun": ["All"]}"#, ""] {
        let action = if body.is_empty() {
            "stop?dryRun=All"
        } else {
            "stop"
        };
        done(&scene.act("w", action, body).await?, "is being stopped")?;
        ensure!(
            scene.stopped("w").await?.is_null(),
            "a dry run changes nothing"
        );
    }
    done(&scene.act("w", "stop", "").await?, "is being stopped")?;
    let since = scene.stopped("w").await?;
    ensure!(since.is_string(), "{since}");
    done(&scene.act("w", "stop", "{}").await?, "is stopped already")?;
    ensure!(scene.stopped("w").await? == since, "it says since when");
    scene
        .until(|| async {
            let object = scene.get(&format!("{WORKSPACES}/w")).await?;
            Ok(object["status"]["phase"] == "Stopped")
        })
        .await?;
    refused(
        &scene.act("w", "reboot", "").await?,
        409,
        "kubectl workspace start w",
    )?;
    refused(
        &scene.act("w", "start", r#"{"paused": true}"#).await?,
        400,
        "type vm",
    )?;
    done(&scene.act("w", "start", "").await?, "is being started")?;
    done(&scene.act("w", "start", "").await?, "is started already")?;
    ensure!(scene.stopped("w").await?.is_null());

    refused(
        &scene.act("nobody", "stop", "").await?,
        404,
        "\"nobody\" not found",
    )?;
    let (code, _) = send(&scene.editor, "GET", &format!("{WORKSPACES}/w/stop"), "").await?;
    // kube-apiserver asks for `get`, which no role has.
    ensure!(code == StatusCode::FORBIDDEN, "{code}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn options_are_read_strictly_when_that_is_asked_for() -> Result<()> {
    let scene = Scene::open().await?;
    scene.deployment.apply(&workspace("w", "container")).await?;
    let odd = r#"{"kind": "WorkspaceStopOptions", "gracePeriod": 3}"#;
    let strict = scene.act("w", "stop?fieldValidation=Strict", odd).await?;
    refused(&strict, 400, "unknown field \"gracePeriod\"")?;
    for (body, words) in [
        ("[]", "not an object"),
        ("{", "cannot be read"),
        (
            r#"{"kind": "Workspace"}"#,
            "must be \"WorkspaceStopOptions\"",
        ),
        (r#"{"dryRun": "All"}"#, "of type array"),
    ] {
        refused(&scene.act("w", "stop", body).await?, 400, words)?;
    }
    refused(
        &scene.act("w", "stop", r#"{"dryRun": ["Some"]}"#).await?,
        422,
        "dryRun",
    )?;
    refused(
        &scene.act("w", "stop?dryRun=Some", "").await?,
        422,
        "dryRun",
    )?;
    ensure!(scene.stopped("w").await?.is_null(), "nothing was done");
    done(&scene.act("w", "stop", odd).await?, "is being stopped")?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_act_and_who_may_read_user_data() -> Result<()> {
    let scene = Scene::open().await?;
    scene.deployment.apply(&workspace("w", "vm")).await?;
    let client = |user| scene.deployment.plane().client_as(user, &[]);
    for action in ["start", "stop", "reboot", "reset"] {
        let path = format!("{WORKSPACES}/w/{action}");
        let words = format!("cannot create resource \"workspaces/{action}\"");
        let answer = send(&client("viewer")?, "POST", &path, "").await?;
        refused(&answer, 403, &words)?;
        let (code, status) = send(&client("editor")?, "POST", &path, "").await?;
        ensure!(code != StatusCode::FORBIDDEN, "{action}: {code} {status}");
    }
    let path = format!("{WORKSPACES}/w/userdata");
    for user in ["viewer", "editor"] {
        let answer = send(&client(user)?, "GET", &path, "").await?;
        refused(&answer, 403, "cannot get resource \"workspaces/userdata\"")?;
    }
    let answer = send(&client("boss")?, "GET", &path, "").await?;
    refused(&answer, 404, "has no user-data")?;

    let resources = scene.get("/apis/kubeworkspaces.io/v1alpha1").await?;
    let row = |name: &str| {
        let all = resources["resources"].as_array().into_iter().flatten();
        all.clone()
            .find(|r| r["name"] == name)
            .cloned()
            .unwrap_or_default()
    };
    let start = row("workspaces/start");
    ensure!(start["kind"] == "WorkspaceStartOptions" && start["verbs"] == json!(["create"]));
    ensure!(row("workspaces/userdata")["verbs"] == json!(["get"]));
    let openapi = scene
        .get("/openapi/v3/apis/kubeworkspaces.io/v1alpha1")
        .await?;
    let path = "/paths/~1apis~1kubeworkspaces.io~1v1alpha1~1namespaces~1{namespace}~1workspaces~1{name}~1start/post";
    let post = openapi.pointer(path).context("no such path")?;
    let schema = &post["requestBody"]["content"]["application/json"]["schema"]["$ref"];
    let name = schema.as_str().and_then(|s| s.rsplit('/').next());
    let schema = &openapi["components"]["schemas"][name.unwrap_or_default()];
    ensure!(
        schema["properties"]["paused"]["type"] == "boolean",
        "{schema}"
    );
    Ok(())
}

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
