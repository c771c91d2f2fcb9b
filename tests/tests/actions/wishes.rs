//! `start` and `stop`, options, and who may.

use anyhow::{Context as _, Result, ensure};
use http::StatusCode;
use kubeworkspaces_tests::fixtures::workspace;
use serde_json::json;

use crate::scene::{Scene, WORKSPACES, done, refused, send};

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
