//! Open streams of ordinary users through kube-apiserver, and the end of their rights.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kube::Client;
use kubeworkspaces_tests::{
    deployment::Deployment,
    fixtures::workspace,
    machines::{ECHO, Machines},
    stream::{End, Opened, open},
};
use tokio::time::sleep;

const RAW: [&str; 1] = ["plain.kubevirt.io"];

struct Place {
    deployment: Deployment,
    _machines: Machines,
}

impl Place {
    /// Machines `w0` and `w1`.
    async fn new() -> Result<Self> {
        let deployment = Deployment::start().await?;
        let machines = Machines::start(deployment.plane()).await?;
        for n in 0..2 {
            let manifest = workspace(&format!("w{n}"), "vm").replace("example.test/image:1", ECHO);
            deployment.apply(&manifest).await?;
        }
        let ready = [
            "wait",
            "--for=condition=Ready",
            "--timeout=120s",
            "ws",
            "--all",
        ];
        deployment.kubectl(&ready).await?;
        Ok(Self {
            deployment,
            _machines: machines,
        })
    }

    /// A client of a user with the shipped role `edit`.
    async fn editor(&self, user: &str) -> Result<Client> {
        let flag = format!("--user={user}");
        let bind = ["create", "rolebinding", user, "--clusterrole=edit", &flag];
        self.deployment.kubectl(&bind).await?;
        let client = self.deployment.plane().client_as(user, &[])?;
        let end = Instant::now() + Duration::from_secs(60);
        let console = "workspaces.kubeworkspaces.io/console";
        let asked = format!("--as={user}");
        while self
            .deployment
            .kubectl(&["auth", "can-i", "create", console, &asked])
            .await
            .is_err()
        {
            ensure!(Instant::now() < end, "{user} has no rights");
            sleep(Duration::from_millis(200)).await;
        }
        Ok(client)
    }
}

fn path(name: &str, rest: &str) -> String {
    format!("/apis/kubeworkspaces.io/v1alpha1/namespaces/default/workspaces/{name}/{rest}")
}

async fn console(client: &Client, name: &str) -> Result<Opened> {
    open(client, &path(name, "console"), &RAW).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_role_binding_cuts_a_stream_within_30_s() -> Result<()> {
    let place = Place::new().await?;
    let (jane, joe) = (place.editor("jane").await?, place.editor("joe").await?);
    let mut stream = console(&jane, "w0").await?.stream()?;
    let mut stays = console(&joe, "w1").await?.stream()?;
    place
        .deployment
        .kubectl(&["delete", "rolebinding", "jane"])
        .await?;
    let removed = Instant::now();
    let end = stream.end(30).await?;
    println!("cut after {:?}", removed.elapsed());
    let End::Closed(4002, reason) = end else {
        anyhow::bail!("{end:?}");
    };
    ensure!(reason.contains("revoked"), "{reason}");
    stays.write("still here").await?;
    stays.expect("still here", 10).await?;
    stays.close().await
}
