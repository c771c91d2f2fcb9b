//! Open streams of ordinary users: how many there may be, and the end of their rights.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use http::StatusCode;
use kube::Client;
use kubeworkspaces_tests::{
    deployment::Deployment,
    direct,
    fixtures::workspace,
    machines::{ECHO, Machines},
    stream::{End, Opened, open, open_over},
};
use tokio::time::sleep;

const RAW: [&str; 1] = ["plain.kubevirt.io"];

struct Place {
    deployment: Deployment,
    _machines: Machines,
}

impl Place {
    /// Machines `w0` to `w2`, with these flags of the server.
    async fn new(flags: &[&str]) -> Result<Self> {
        let deployment = Deployment::start_with(flags).await?;
        let machines = Machines::start(deployment.plane()).await?;
        for n in 0..3 {
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

/// Straight to the server, as kube-apiserver does it for this user: kube's client would wait and try again
/// by itself after a 429.
async fn at_once(place: &Place, user: &str, path: &str) -> Result<Opened> {
    let (cert, key) = place.deployment.plane().front_proxy_client();
    let io = direct::connect(&place.deployment, 0, Some((&cert, &key))).await?;
    open_over(io, path, &RAW, &[("X-Remote-User", user)]).await
}

/// 429 that names the flag and says when to come back.
fn too_many(opened: &Opened, flag: &str) -> Result<()> {
    let Opened::Refused(code, status) = opened else {
        bail!("let in, past {flag}");
    };
    let message = status["message"].as_str().unwrap_or_default();
    ensure!(
        *code == StatusCode::TOO_MANY_REQUESTS && message.contains(flag),
        "{code} {status}"
    );
    ensure!(status["details"]["retryAfterSeconds"].is_u64(), "{status}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_users_streams_leave_room_for_anothers() -> Result<()> {
    let place = Place::new(&[
        "--max-streams-per-user=2",
        "--max-streams-per-workspace=2",
        "--max-stream-setups-per-user=1000",
    ])
    .await?;
    place.editor("jane").await?;
    place.editor("joe").await?;
    let open = async |user, name, rest| at_once(&place, user, &path(name, rest)).await;
    let mut first = open("jane", "w0", "console").await?.stream()?;
    let mut second = open("jane", "w1", "console").await?.stream()?;
    too_many(
        &open("jane", "w2", "console").await?,
        "--max-streams-per-user",
    )?;
    let mut display = open("joe", "w0", "vnc").await?.stream()?;
    too_many(
        &open("joe", "w0", "console").await?,
        "--max-streams-per-workspace",
    )?;
    let mut other = open("joe", "w2", "console").await?.stream()?;
    other.close().await?;
    first.close().await?;
    // The place is free with the stream's end, which its client has seen.
    let mut again = open("jane", "w2", "console").await?.stream()?;
    for stream in [&mut second, &mut display, &mut again] {
        stream.close().await?;
    }
    Ok(())
}

fn path(name: &str, rest: &str) -> String {
    format!("/apis/kubeworkspaces.io/v1alpha1/namespaces/default/workspaces/{name}/{rest}")
}

async fn console(client: &Client, name: &str) -> Result<Opened> {
    open(client, &path(name, "console"), &RAW).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_role_binding_cuts_a_stream_within_30_s() -> Result<()> {
    let place = Place::new(&[]).await?;
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
