//! A server with users, and what tests ask of it.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use http::{Request, StatusCode};
use kube::Client;
use kubeworkspaces_tests::deployment::{Deployment, repository};
use serde_json::Value;

pub(crate) const WORKSPACES: &str =
    "/apis/kubeworkspaces.io/v1alpha1/namespaces/default/workspaces";
pub(crate) const MACHINES: &str = "/apis/kubevirt.io/v1/namespaces/default";
pub(crate) const STOPPED: &str = "kubeworkspaces.io/stopped";

/// A server, and users with Kubernetes' own roles: `viewer`, `editor`, `boss`.
pub(crate) struct Scene {
    pub(crate) deployment: Deployment,
    pub(crate) admin: Client,
    pub(crate) editor: Client,
}

impl Scene {
    pub(crate) async fn open() -> Result<Self> {
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
    pub(crate) async fn until_permitted(&self) -> Result<()> {
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

    pub(crate) async fn until<F>(&self, holds: impl Fn() -> F) -> Result<()>
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

    pub(crate) async fn kubevirt(&self) -> Result<()> {
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

    pub(crate) async fn get(&self, path: &str) -> Result<Value> {
        let (code, value) = send(&self.admin, "GET", path, "").await?;
        ensure!(code == StatusCode::OK, "{path}: {code} {value}");
        Ok(value)
    }

    pub(crate) async fn stopped(&self, name: &str) -> Result<Value> {
        let object = self.get(&format!("{WORKSPACES}/{name}")).await?;
        Ok(object["metadata"]["annotations"][STOPPED].clone())
    }

    /// An action of the editor.
    pub(crate) async fn act(
        &self,
        name: &str,
        action: &str,
        body: &str,
    ) -> Result<(StatusCode, Value)> {
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
pub(crate) async fn send(
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

pub(crate) fn refused(answer: &(StatusCode, Value), code: u16, words: &str) -> Result<()> {
    let (is, status) = answer;
    let message = status["message"].as_str().unwrap_or_default();
    ensure!(
        is.as_u16() == code && status["kind"] == "Status" && message.contains(words),
        "not {code} {words:?}: {is} {status}"
    );
    Ok(())
}

pub(crate) fn done(answer: &(StatusCode, Value), words: &str) -> Result<()> {
    let (code, status) = answer;
    let message = status["message"].as_str().unwrap_or_default();
    ensure!(
        *code == StatusCode::OK && status["status"] == "Success" && message.contains(words),
        "not done {words:?}: {code} {status}"
    );
    Ok(())
}
