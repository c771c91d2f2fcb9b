//! What is measured, running: the real server before a real control plane, the peer, and the upstream of both.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use kube::config::{Kubeconfig, NamedCluster};
use kubeworkspaces_tests::{
    deployment::{Deployment, NAMESPACE, SERVICE, binary},
    direct,
    fixtures::workspace,
    machines::{ECHO, Machines},
};
use localcluster::harness::ControlPlane;
use relay_ends::client::Target;
use serde_json::json;

use crate::process::Talker;

/// Far above what is measured: the limits of users are not.
const FLAGS: [&str; 3] = [
    "--max-streams-per-user=100000",
    "--max-stream-setups-per-user=100000",
    "--max-streams-per-workspace=100000",
];
/// The user whose streams they are.
const USER: &str = "bench";
/// The machine that they lead to.
const MACHINE: &str = "w0";

/// All processes.
pub(crate) struct Place {
    deployment: Deployment,
    _machines: Machines,
    upstream: Talker,
    upstream_port: u16,
    peer: Talker,
    peer_port: u16,
    /// Of the upstream and the peer.
    cert: PathBuf,
    /// Of the server.
    authority: PathBuf,
}

impl Place {
    /// Starts everything.
    ///
    /// # Errors
    /// When a part does not start; the message names its log.
    pub(crate) async fn start() -> Result<Self> {
        let mut upstream = None;
        let deployment = Deployment::start_through(&FLAGS, async |plane| {
            let (started, cluster) = start_upstream(plane).await?;
            upstream = Some(started);
            Ok(cluster)
        })
        .await?;
        let (upstream, upstream_port) = upstream.context("the upstream was not started")?;
        let machines = Machines::start(deployment.plane()).await?;
        let manifest = workspace(MACHINE, "vm").replace("example.test/image:1", ECHO);
        deployment.apply(&manifest).await?;
        let ready = format!("ws/{MACHINE}");
        deployment
            .kubectl(&["wait", "--for=condition=Ready", "--timeout=120s", &ready])
            .await?;
        allow(&deployment).await?;
        let dir = deployment.plane().dir().to_owned();
        let authority = dir.join("server-authority.pem");
        std::fs::write(&authority, direct::authority(&deployment).await?)?;
        let (peer, peer_port) = start_peer(&dir, upstream_port).await?;
        Ok(Self {
            deployment,
            _machines: machines,
            upstream,
            upstream_port,
            peer,
            peer_port,
            cert: dir.join("double.pem"),
            authority,
        })
    }

    /// The server's process.
    pub(crate) fn server_pid(&self) -> u32 {
        self.deployment.server(0).pid()
    }

    /// The peer's process.
    ///
    /// # Errors
    /// When it has ended.
    pub(crate) fn peer_pid(&self) -> Result<u32> {
        self.peer.pid()
    }

    /// Whether everything still runs.
    ///
    /// # Errors
    /// What has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.upstream.check()?;
        self.peer.check()
    }

    /// A stream through us: `console`, or `portforward/22`.
    pub(crate) fn server(&self, stream: &str) -> Target {
        let (cert, key) = self.deployment.plane().front_proxy_client();
        Target {
            port: self.deployment.server(0).port,
            name: format!("{SERVICE}.{NAMESPACE}.svc"),
            authority: self.authority.clone(),
            cert: Some(cert),
            key: Some(key),
            user: Some(USER.to_owned()),
            path: format!(
                "/apis/kubeworkspaces.io/v1alpha1/namespaces/default/workspaces/{MACHINE}/{stream}"
            ),
        }
    }

    /// The same through the peer.
    pub(crate) fn peer(&self, stream: &str) -> Target {
        self.beside(self.peer_port, stream)
    }

    /// The same without anything between.
    pub(crate) fn direct(&self, stream: &str) -> Target {
        self.beside(self.upstream_port, stream)
    }

    fn beside(&self, port: u16, stream: &str) -> Target {
        Target {
            port,
            name: "localhost".to_owned(),
            authority: self.cert.clone(),
            cert: None,
            key: None,
            user: None,
            path: format!(
                "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/{MACHINE}/{stream}"
            ),
        }
    }

    /// What the server tells Prometheus.
    ///
    /// # Errors
    /// When it does not answer.
    pub(crate) async fn metrics(&self) -> Result<String> {
        let request = http::Request::get("/metrics")
            .header("X-Remote-User", "bench-metrics")
            .header("X-Remote-Group", "system:masters");
        let (cert, key) = self.deployment.plane().front_proxy_client();
        let identity = Some((&*cert, &*key));
        let (code, text) = direct::text(&self.deployment, 0, identity, request).await?;
        anyhow::ensure!(code.is_success(), "/metrics: {code} {text}");
        Ok(text)
    }
}

/// The right that a user of the product has: `edit` in the namespace.
async fn allow(deployment: &Deployment) -> Result<()> {
    let user = format!("--user={USER}");
    let bind = ["create", "rolebinding", USER, "--clusterrole=edit", &user];
    deployment.kubectl(&bind).await?;
    let console = "workspaces.kubeworkspaces.io/console";
    let asked = format!("--as={USER}");
    let can = ["auth", "can-i", "create", console, &asked];
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while let Err(error) = deployment.kubectl(&can).await {
        anyhow::ensure!(std::time::Instant::now() < end, "no rights: {error:#}");
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    Ok(())
}

/// The upstream, and how the server gets to it: as if it were kube-apiserver.
async fn start_upstream(plane: &ControlPlane) -> Result<((Talker, u16), NamedCluster)> {
    let dir = plane.dir();
    let (cert, key) = (dir.join("double.pem"), dir.join("double.key"));
    let names = ["localhost", "127.0.0.1"].map(str::to_owned).to_vec();
    let pair = rcgen::generate_simple_self_signed(names)?;
    std::fs::write(&cert, pair.cert.pem())?;
    std::fs::write(&key, pair.signing_key.serialize_pem())?;
    let kubeconfig = dir.join("double.kubeconfig");
    std::fs::write(&kubeconfig, anonymous(plane)?)?;
    let args = [
        "upstream".to_owned(),
        format!("--cert={}", cert.display()),
        format!("--key={}", key.display()),
        format!("--kubeconfig={}", kubeconfig.display()),
    ];
    let mut upstream = Talker::start(&binary("relay-ends")?, &args, "the upstream")?;
    let port: u16 = upstream.line().await?.parse()?;
    let cluster = json!({ "name": "double", "cluster": {
        "server": format!("https://127.0.0.1:{port}"), "certificate-authority": cert,
    }});
    Ok(((upstream, port), serde_json::from_value(cluster)?))
}

/// A kubeconfig without a user: whoever is forwarded shows a token of their own.
fn anonymous(plane: &ControlPlane) -> Result<String> {
    let admin = Kubeconfig::read_from(plane.kubeconfig())?;
    let cluster = admin.clusters.first().context("no cluster")?;
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [cluster],
        "users": [{ "name": "u", "user": {} }],
        "contexts": [{ "name": "c", "context": { "cluster": cluster.name, "user": "u" } }],
    });
    Ok(config.to_string())
}

async fn start_peer(dir: &Path, upstream: u16) -> Result<(Talker, u16)> {
    let cert = dir.join("double.pem");
    let args = [
        format!("--cert={}", cert.display()),
        format!("--key={}", dir.join("double.key").display()),
        format!("--upstream=127.0.0.1:{upstream}"),
        format!("--upstream-ca={}", cert.display()),
    ];
    let mut peer = Talker::start(&binary("relay-peer")?, &args, "the peer")?;
    let address: std::net::SocketAddr = peer.line().await?.parse()?;
    Ok((peer, address.port()))
}
