//! The server as it is deployed, in front of a control plane of its own: the shipped manifests are
//! applied, and the real binary runs on this machine with its ServiceAccount's token and nothing more.

use std::{
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use kube::{
    Client,
    config::{Kubeconfig, NamedCluster},
};
use rustix::process::{Pid, Signal};

use crate::direct::direct_to;
use localcluster::{
    harness::{ControlPlane, external_name_service, wait_available},
    proc::{Child, CommandLine, Group},
};

/// Namespace of the server.
pub const NAMESPACE: &str = "kubeworkspaces-system";
/// Name of its Service, ServiceAccount and Deployment.
pub const SERVICE: &str = "workspaces-apiserver";
/// Name of its APIService.
pub const APISERVICE: &str = "v1alpha1.kubeworkspaces.io";

/// What is applied, in this order: all of `deploy/base` that needs no node.
const MANIFESTS: [&str; 8] = [
    "namespace.yaml",
    "generated/crds.yaml",
    "service-account.yaml",
    "rbac.yaml",
    "generated/rbac-controller.yaml",
    "user-roles.yaml",
    "policies.yaml",
    "flow-control.yaml",
];

/// A control plane and one or more servers; kube-apiserver's requests go to the first.
#[derive(Debug)]
pub struct Deployment {
    servers: Vec<Server>,
    group: Group,
    plane: ControlPlane,
    kubeconfig: PathBuf,
}

/// One server process.
#[derive(Debug)]
pub struct Server {
    /// The port that it listens on, on 127.0.0.1.
    pub port: u16,
    /// Its log.
    pub log: PathBuf,
    /// Its audit log.
    pub audit_log: PathBuf,
    child: Child,
}

impl Server {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Kills it outright.
    ///
    /// # Errors
    /// When it cannot be signalled.
    pub fn kill(&mut self) -> Result<()> {
        Ok(self.child.kill()?)
    }
}

impl Deployment {
    /// A control plane with one server, Available.
    ///
    /// # Errors
    /// When anything does not start; the message names the log.
    pub async fn start() -> Result<Self> {
        Self::start_with(&[]).await
    }

    /// The same with further flags of the server.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_with(flags: &[&str]) -> Result<Self> {
        Self::start_through(flags, async |plane| apiserver(plane)).await
    }

    /// The same with a server that finds kube-apiserver where `way` says, which may be something in between.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_through(
        flags: &[&str],
        way: impl AsyncFnOnce(&ControlPlane) -> Result<NamedCluster>,
    ) -> Result<Self> {
        let plane = ControlPlane::start().await?;
        apply_manifests(&plane).await?;
        external_name_service(&plane.client()?, NAMESPACE, SERVICE).await?;
        let kubeconfig = service_account_kubeconfig(&plane, way(&plane).await?).await?;
        // The group's directory is removed with it, so it gets one of its own.
        let group_dir = plane.dir().join("servers");
        std::fs::create_dir_all(&group_dir)?;
        let group = Group::start(&group_dir)?;
        let mut deployment = Self {
            servers: Vec::new(),
            group,
            plane,
            kubeconfig,
        };
        deployment.add_server(flags)?;
        deployment
            .available()
            .await
            .with_context(|| deployment.tail())?;
        Ok(deployment)
    }

    /// Waits until kube-apiserver finds the first server Available and publishes its OpenAPI, which it
    /// asks for a second later; a server that ends is not waited for.
    async fn available(&mut self) -> Result<()> {
        let client = self.plane.client()?;
        let mut available = std::pin::pin!(async {
            wait_available(&client, APISERVICE).await?;
            while !openapi(&client)
                .await?
                .contains("apis/kubeworkspaces.io/v1alpha1")
            {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            anyhow::Ok(())
        });
        loop {
            tokio::select! {
                answer = &mut available => return answer,
                () = tokio::time::sleep(Duration::from_millis(200)) => self.servers[0].child.check()?,
            }
        }
    }

    /// Starts another server process beside those that run; gives its index.
    ///
    /// # Errors
    /// When it does not start.
    pub fn add_server(&mut self, flags: &[&str]) -> Result<usize> {
        let index = self.servers.len();
        let port = free_port()?;
        let server = self.start_server(index, port, flags)?;
        self.servers.push(server);
        Ok(index)
    }

    /// Ends a server's process and starts another in its place, as a container is that restarts; waits
    /// until it is ready.
    ///
    /// # Errors
    /// When the process does not end in a minute, or the next one does not get ready.
    pub async fn restart_server(&mut self, index: usize, signal: Signal) -> Result<()> {
        let port = self.servers[index].port;
        let pid = i32::try_from(self.servers[index].pid())?;
        let pid = Pid::from_raw(pid).context("a process id is not zero")?;
        rustix::process::kill_process(pid, signal)?;
        let end = Instant::now() + Duration::from_secs(60);
        while self.servers[index].child.check().is_ok() {
            anyhow::ensure!(Instant::now() < end, "server {index} does not end");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.servers[index] = self.start_server(index, port, &[])?;
        self.ready(index).await
    }

    /// Waits until a server answers that it is ready.
    ///
    /// # Errors
    /// When it does not in a minute.
    pub async fn ready(&self, index: usize) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(60);
        let asked = async || -> Result<bool> {
            let readyz = http::Request::get("/readyz");
            let (code, _) = direct_to(self, index, None, readyz).await?;
            Ok(code.is_success())
        };
        while !asked().await.unwrap_or(false) {
            let log = &self.servers[index].log;
            anyhow::ensure!(
                Instant::now() < end,
                "{}",
                localcluster::proc::tail(log, 30)
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    fn start_server(&self, index: usize, port: u16, flags: &[&str]) -> Result<Server> {
        let (log, audit_log) = (self.file(index, "log"), self.file(index, "audit"));
        // Requests arrive at the first server; the Service leads to its port.
        let service_port = self.servers.first().map_or(port, |first| first.port);
        let mut command =
            CommandLine::new(format!("server-{index}"), binary("workspaces-apiserver")?)
                .flag("secure-port", port.to_string())
                .flag("bind-address", "127.0.0.1")
                .flag("kubeconfig", &self.kubeconfig)
                .flag("certificates", "self-managed")
                .flag("service-name", SERVICE)
                .flag("service-port", service_port.to_string())
                .flag("register", "true")
                // Pods have addresses that lead nowhere here: nothing is sent to them.
                .flag("pod-network", "false")
                .flag("audit-log-path", &audit_log)
                .env("POD_NAMESPACE", NAMESPACE)
                .env("POD_NAME", format!("server-{index}"))
                .env("POD_UID", format!("00000000-0000-4000-8000-{index:012}"));
        command = command.args(flags.iter().copied());
        let child = self.group.spawn(&command, &log)?;
        Ok(Server {
            port,
            log,
            audit_log,
            child,
        })
    }

    fn file(&self, index: usize, kind: &str) -> PathBuf {
        self.plane.dir().join(format!("server-{index}.{kind}"))
    }

    /// The control plane.
    pub fn plane(&self) -> &ControlPlane {
        &self.plane
    }

    /// The control plane, to restart parts of it.
    pub fn plane_mut(&mut self) -> &mut ControlPlane {
        &mut self.plane
    }

    /// A server.
    pub fn server(&self, index: usize) -> &Server {
        &self.servers[index]
    }

    /// A server, to end it.
    pub fn server_mut(&mut self, index: usize) -> &mut Server {
        &mut self.servers[index]
    }

    /// The administrator's client.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn client(&self) -> Result<Client> {
        Ok(self.plane.client()?)
    }

    /// What `kubectl args` writes, as the administrator.
    ///
    /// # Errors
    /// When kubectl fails; the message has its output.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String> {
        Ok(self.plane.kubectl(args).await?)
    }

    /// Applies a manifest given as text, as the administrator.
    ///
    /// # Errors
    /// When kubectl fails; the message has its output.
    pub async fn apply(&self, manifest: &str) -> Result<String> {
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), manifest)?;
        self.kubectl(&["apply", "-f", &file.path().to_string_lossy()])
            .await
    }

    /// The last lines of the first server's log, for error messages.
    pub fn tail(&self) -> String {
        let log = &self.servers[0].log;
        format!("{}:\n{}", log.display(), localcluster::proc::tail(log, 30))
    }
}

/// A program of this workspace, beside the test's own.
///
/// # Errors
/// When it has not been built.
pub fn binary(name: &str) -> Result<PathBuf> {
    let test = std::env::current_exe()?;
    let folder = test
        .parent()
        .and_then(Path::parent)
        .context("no target folder")?;
    let path = folder.join(name);
    if !path.is_file() {
        bail!(
            "{} does not exist: run `cargo build --workspace` first (hack/test does)",
            path.display()
        );
    }
    Ok(path)
}

/// The repository's top folder.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

async fn openapi(client: &Client) -> Result<String> {
    Ok(client
        .request_text(http::Request::get("/openapi/v3").body(Vec::new())?)
        .await?)
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
        .local_addr()?
        .port())
}

async fn apply_manifests(plane: &ControlPlane) -> Result<()> {
    let base = repository().join("deploy/base");
    for manifest in MANIFESTS {
        let file = base.join(manifest);
        plane
            .kubectl([
                "apply".as_ref(),
                "--server-side".as_ref(),
                "-f".as_ref(),
                file.as_os_str(),
            ])
            .await?;
    }
    let established = [
        "wait",
        "--for=condition=Established",
        "--timeout=60s",
        "crd",
        "--all",
    ];
    plane.kubectl(established).await?;
    Ok(())
}

/// Where the administrator finds kube-apiserver.
fn apiserver(plane: &ControlPlane) -> Result<NamedCluster> {
    let admin = Kubeconfig::read_from(plane.kubeconfig())?;
    let cluster = admin.clusters.into_iter().next();
    cluster.context("the administrator's kubeconfig has no cluster")
}

async fn service_account_kubeconfig(
    plane: &ControlPlane,
    cluster: NamedCluster,
) -> Result<PathBuf> {
    let token = plane
        .kubectl([
            "create",
            "token",
            SERVICE,
            "-n",
            NAMESPACE,
            "--duration=24h",
        ])
        .await?;
    let config = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [cluster],
        "users": [{"name": "u", "user": {"token": token.trim()}}],
        "contexts": [{"name": "c", "context": {"cluster": cluster.name, "user": "u"}}],
    });
    let path = plane.dir().join("server.kubeconfig");
    std::fs::write(&path, config.to_string())?;
    Ok(path)
}
