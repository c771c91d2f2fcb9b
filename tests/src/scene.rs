//! A server over a real control plane, machines without guests, and ordinary users: what tests of streams
//! begin with. Streams are never tested as an administrator, whom kube-apiserver treats differently.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kube::Client;
use tokio::time::sleep;

use crate::{
    deployment::Deployment,
    fixtures::workspace,
    machines::{ECHO, Machines},
};

const PATIENCE: Duration = Duration::from_secs(60);

/// The server and the machines.
pub struct Scene {
    /// The server.
    pub deployment: Deployment,
    /// What plays the machines.
    pub machines: Machines,
}

impl Scene {
    /// A server with these flags, and a machine of each of these names, which echoes and runs.
    ///
    /// # Errors
    /// When anything does not start.
    pub async fn start(flags: &[&str], names: &[&str]) -> Result<Self> {
        let deployment = Deployment::start_with(flags).await?;
        let machines = Machines::start(deployment.plane()).await?;
        let manifests = names
            .iter()
            .map(|name| workspace(name, "vm").replace("example.test/image:1", ECHO));
        let manifests: Vec<String> = manifests.collect();
        deployment.apply(&manifests.join("---\n")).await?;
        let scene = Self {
            deployment,
            machines,
        };
        scene.ready(120).await?;
        Ok(scene)
    }

    /// Waits until all workspaces are ready.
    ///
    /// # Errors
    /// When one is not in so many seconds.
    pub async fn ready(&self, seconds: u64) -> Result<()> {
        let timeout = format!("--timeout={seconds}s");
        let ready = ["wait", "--for=condition=Ready", &timeout, "ws", "--all"];
        self.deployment.kubectl(&ready).await?;
        Ok(())
    }

    /// A client of a user with the shipped role `edit`, once it has reached the authorizer. An answer is
    /// an answer: nothing is asked again by itself.
    ///
    /// # Errors
    /// When it does not in a minute.
    pub async fn editor(&self, user: &str, groups: &[&str]) -> Result<Client> {
        self.bind(user, "edit").await?;
        let mut config = self.deployment.plane().config_as(user, groups)?;
        config.default_retry = false;
        let client = Client::try_from(config)?;
        let (end, asked) = (Instant::now() + PATIENCE, format!("--as={user}"));
        let console = "workspaces.kubeworkspaces.io/console";
        let can = ["auth", "can-i", "create", console, &asked];
        while self.deployment.kubectl(&can).await.is_err() {
            ensure!(Instant::now() < end, "{user} has no rights");
            sleep(Duration::from_millis(200)).await;
        }
        Ok(client)
    }

    /// Gives a user a ClusterRole in the namespace.
    ///
    /// # Errors
    /// When the binding cannot be made.
    pub async fn bind(&self, user: &str, role: &str) -> Result<()> {
        let (user_flag, role_flag) = (format!("--user={user}"), format!("--clusterrole={role}"));
        let bind = ["create", "rolebinding", user, &role_flag, &user_flag];
        self.deployment.kubectl(&bind).await?;
        Ok(())
    }

    /// The path of a workspace's subresource.
    pub fn path(name: &str, subresource: &str) -> String {
        format!(
            "/apis/kubeworkspaces.io/v1alpha1/namespaces/default/workspaces/{name}/{subresource}"
        )
    }
}
