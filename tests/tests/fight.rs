//! Two server processes over a real control plane: forty clients fight for eight consoles, half through
//! kube-apiserver and half straight at the second server, while both are killed, drained and started
//! again in place. `soak` does the same in the whole cluster.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Result, ensure};
use kubeworkspaces_tests::{
    deployment::Deployment,
    direct,
    fight::{Door, Fight},
    fixtures::workspace,
    machines::{ECHO, Machines},
    stream::{open, open_over},
};
use localvirt::checker::Mode;
use rustix::process::Signal;
use tokio::time::{Instant, sleep};

const CONSOLES: usize = 8;
const CLIENTS: usize = 40;
const USERS: usize = 8;
const LENGTH: Duration = Duration::from_secs(30);
const RAW: [&str; 1] = ["plain.kubevirt.io"];
const SETTLED: Duration = Duration::from_secs(30);

async fn prepare(deployment: &Deployment) -> Result<()> {
    for n in 0..CONSOLES {
        let manifest = workspace(&format!("w{n}"), "vm").replace("example.test/image:1", ECHO);
        deployment.apply(&manifest).await?;
    }
    for n in 0..USERS {
        let role = if n % 4 == 0 { "admin" } else { "edit" };
        let (name, user) = (format!("u{n}"), format!("--user=u{n}"));
        let role = format!("--clusterrole={role}");
        deployment
            .kubectl(&["create", "rolebinding", &name, &role, &user])
            .await?;
    }
    let ready = [
        "wait",
        "--for=condition=Ready",
        "--timeout=120s",
        "ws",
        "--all",
    ];
    deployment.kubectl(&ready).await?;
    Ok(())
}

/// Half of the users go through kube-apiserver to the first server, half straight to the second.
async fn doors(deployment: &Deployment) -> Result<Vec<Door>> {
    let authority = direct::authority(deployment).await?;
    let (cert, key) = deployment.plane().front_proxy_client();
    let port = deployment.server(1).port;
    let mut doors: Vec<Door> = Vec::new();
    for n in 0..USERS {
        let user = format!("u{n}");
        if n % 2 == 0 {
            let client = deployment.plane().client_as(&user, &[])?;
            doors.push(Arc::new(move |path| {
                let client = client.clone();
                Box::pin(async move { open(&client, &path, &RAW).await })
            }));
            continue;
        }
        let way = Arc::new((authority.clone(), cert.clone(), key.clone(), user));
        doors.push(Arc::new(move |path| {
            let way = way.clone();
            Box::pin(async move {
                let (authority, cert, key, user): &(Vec<u8>, PathBuf, PathBuf, String) = &way;
                let identity = Some((cert.as_path(), key.as_path()));
                let io = direct::connect_to(authority, port, identity).await?;
                let headers = [
                    ("X-Remote-User", user.as_str()),
                    ("X-Remote-Group", "system:authenticated"),
                ];
                open_over(io, &path, &RAW, &headers).await
            })
        }));
    }
    Ok(doors)
}

async fn killer(fight: &Fight, deployment: &mut Deployment) -> Result<()> {
    let end = Instant::now() + LENGTH;
    while Instant::now() < end {
        sleep(Duration::from_secs(5) + fight.dice.up_to(5_000)).await;
        let server = fight.dice.roll(2) as usize;
        let signal = match fight.dice.roll(3) {
            0 => Signal::TERM,
            _ => Signal::KILL,
        };
        println!("server {server}: {signal:?}");
        fight.killed();
        deployment.restart_server(server, signal).await?;
        fight.explain();
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn s_04_consoles_have_one_holder_whatever_becomes_of_clients_and_servers() -> Result<()> {
    let mut deployment = Deployment::start().await?;
    let machines = Machines::start(deployment.plane()).await?;
    deployment.add_server(&[])?;
    prepare(&deployment).await?;
    deployment.ready(1).await?;
    let consoles = (0..CONSOLES).map(|n| {
        format!("/apis/kubeworkspaces.io/v1alpha1/namespaces/default/workspaces/w{n}/console")
    });
    let consoles: Vec<String> = consoles.collect();
    let fight = Fight::new(consoles.clone())?;
    let doors = doors(&deployment).await?;
    let clients = fight.clients(&doors, CLIENTS);
    killer(&fight, &mut deployment).await?;
    fight.end(clients).await;

    let end = Instant::now() + SETTLED;
    loop {
        let left = deployment.kubectl(&["get", "wss", "-o", "name"]).await?;
        let report = machines.checker().report(None);
        if left.is_empty() && report["modes"]["console"]["live"] == 0 {
            break;
        }
        ensure!(Instant::now() < end, "30 s after the end: {left} {report}");
        sleep(Duration::from_millis(300)).await;
    }
    fight.judge(CLIENTS as u64)?;
    let tally = machines.checker().tally("default", Mode::Console);
    ensure!(
        tally.violations == 0,
        "{:#}",
        machines.checker().report(None)
    );
    ensure!(tally.accepted >= fight.counted("streams"), "{tally:?}");
    for path in &consoles {
        doors[1](path.clone()).await?.stream()?.close().await?;
    }
    Ok(())
}
