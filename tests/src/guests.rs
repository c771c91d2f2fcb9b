//! Workspaces that really run, in a namespace of the test's own.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use localcluster::harness::Cluster;

use crate::stream::Stream;

/// The tiny guest's containerDisk, as `hack/up` imports it.
pub const GUEST_IMAGE: &str = "kubeworkspaces.io/guest-tiny:dev";
/// The container sample's image.
pub const SHELL_IMAGE: &str = "kubeworkspaces.io/workspace-shell:dev";

/// Logs in on a serial line; the guest's getty may have printed its prompt before we came.
///
/// # Errors
/// When the guest does not ask for what is typed.
pub async fn log_in(console: &mut Stream) -> Result<()> {
    console.write("\n").await?;
    console.expect("login:", 60).await?;
    // A name typed within 100 ms of the prompt can be flushed by the getty.
    tokio::time::sleep(Duration::from_millis(300)).await;
    console.write("guest\n").await?;
    console.expect("assword", 20).await?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    console.write("guest\n").await?;
    console.expect("$", 20).await?;
    Ok(())
}

/// The cluster, and a namespace that goes with the test.
#[derive(Debug)]
pub struct Place {
    /// The cluster of `hack/up`.
    pub cluster: Cluster,
    /// The namespace.
    pub namespace: String,
}

impl Place {
    /// A fresh namespace `<name>-<something>`.
    ///
    /// # Errors
    /// When there is no cluster.
    pub async fn new(name: &str) -> Result<Self> {
        let cluster = Cluster::attach().await?;
        let namespace = format!("{name}-{}", &uuid::Uuid::new_v4().to_string()[..6]);
        cluster.kubectl(["create", "namespace", &namespace]).await?;
        let place = Self { cluster, namespace };
        place
            .until(
                &["get", "serviceaccount", "default", "-o", "name"],
                30,
                |o| o.contains("default"),
            )
            .await?;
        Ok(place)
    }

    /// What `kubectl -n <namespace> args` writes.
    ///
    /// # Errors
    /// When kubectl fails.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String> {
        let all = [&["-n", &self.namespace], args].concat();
        Ok(self.cluster.kubectl(all).await?)
    }

    /// Applies a manifest given as text.
    ///
    /// # Errors
    /// When kubectl fails.
    pub async fn apply(&self, manifest: &str) -> Result<()> {
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), manifest)?;
        self.kubectl(&["apply", "-f", &file.path().to_string_lossy()])
            .await
            .map(drop)
    }

    /// Asks kubectl again until it succeeds with the output that is wanted.
    ///
    /// # Errors
    /// After `seconds`, with the last answer.
    pub async fn until(
        &self,
        args: &[&str],
        seconds: u64,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<String> {
        let end = std::time::Instant::now() + Duration::from_secs(seconds);
        loop {
            let answer = self.kubectl(args).await;
            match answer {
                Ok(output) if wanted(&output) => return Ok(output),
                _ if std::time::Instant::now() < end => {
                    tokio::time::sleep(Duration::from_millis(200)).await
                }
                other => bail!(
                    "kubectl {} still says after {seconds} s: {other:?}",
                    args.join(" ")
                ),
            }
        }
    }

    /// A virtual machine, Ready.
    ///
    /// # Errors
    /// When it does not become ready in two minutes.
    pub async fn machine(&self, name: &str) -> Result<()> {
        self.workspace(
            name,
            "vm",
            GUEST_IMAGE,
            "resources: {limits: {cpu: '1', memory: 128Mi}}\n        ports: [{name: web, containerPort: 8080}]",
        )
        .await
    }

    /// A container workspace, Ready.
    ///
    /// # Errors
    /// When it does not become ready in two minutes.
    pub async fn container(&self, name: &str) -> Result<()> {
        self.workspace(
            name,
            "container",
            SHELL_IMAGE,
            "ports: [{containerPort: 8080}]",
        )
        .await
    }

    /// A scratch workspace, Ready.
    ///
    /// # Errors
    /// When it does not become ready in two minutes.
    pub async fn scratch(&self, name: &str) -> Result<()> {
        let ports = "ports: [{containerPort: 8080}]";
        self.workspace(name, "scratch", SHELL_IMAGE, ports).await
    }

    async fn workspace(&self, name: &str, kind: &str, image: &str, rest: &str) -> Result<()> {
        self.apply(&format!(
            "apiVersion: kubeworkspaces.io/v1alpha1\nkind: Workspace\nmetadata: {{name: {name}}}\nspec:\n  type: {kind}\n  \
             template:\n    spec:\n      terminationGracePeriodSeconds: 2\n      containers:\n      - name: main\n        \
             image: {image}\n        {rest}\n"
        ))
        .await?;
        let ready = self
            .kubectl(&[
                "wait",
                "--for=condition=Ready",
                "--timeout=120s",
                "ws",
                name,
            ])
            .await;
        if let Err(error) = ready {
            let state = self
                .kubectl(&["get", "ws,vm,vmi,pods", "-o", "yaml"])
                .await
                .unwrap_or_default();
            bail!("{error}\n{state}");
        }
        Ok(())
    }

    /// Path of a workspace's streaming subresource.
    pub fn path(&self, name: &str, subresource: &str) -> String {
        let namespace = &self.namespace;
        format!(
            "/apis/kubeworkspaces.io/v1alpha1/namespaces/{namespace}/workspaces/{name}/{subresource}"
        )
    }

    /// A client of an ordinary user with the shipped role `edit` in the namespace. Streams are never
    /// tested as an administrator, whom kube-apiserver treats differently.
    ///
    /// # Errors
    /// When the binding cannot be made.
    pub async fn editor(&self, user: &str) -> Result<kube::Client> {
        let user_flag = format!("--user={user}");
        self.kubectl(&[
            "create",
            "rolebinding",
            user,
            "--clusterrole=edit",
            &user_flag,
        ])
        .await?;
        let client = self.cluster.client_as(user, &[])?;
        // The role's aggregation and the binding reach the authorizer a moment later.
        let asked = format!("--as={user}");
        self.until(
            &[
                "auth",
                "can-i",
                "create",
                "workspaces.kubeworkspaces.io/console",
                &asked,
            ],
            30,
            |o| o.contains("yes"),
        )
        .await?;
        Ok(client)
    }

    /// Ends the namespace without waiting for it.
    ///
    /// # Errors
    /// When kubectl fails.
    pub async fn end(self) -> Result<()> {
        self.cluster
            .kubectl(["delete", "namespace", &self.namespace, "--wait=false"])
            .await?;
        Ok(())
    }

    /// A JSON answer of kubectl.
    ///
    /// # Errors
    /// When it fails or is no JSON.
    pub async fn json(&self, args: &[&str]) -> Result<serde_json::Value> {
        let all = [args, &["-o", "json"]].concat();
        Ok(serde_json::from_str(&self.kubectl(&all).await?)?)
    }

    /// Whether no session object is left.
    ///
    /// # Errors
    /// When one is still there after `seconds`.
    pub async fn no_sessions(&self, seconds: u64) -> Result<()> {
        let left = self
            .until(&["get", "wss", "-o", "name"], seconds, str::is_empty)
            .await;
        ensure!(left.is_ok(), "sessions stay behind: {left:?}");
        Ok(())
    }
}
