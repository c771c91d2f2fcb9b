//! Two hundred clients fight for twenty consoles while clients and server replicas are killed at random.
//!
//! The machines have no guest: a checker inside the upstream counts who is let in while another stream
//! has not ended. Every client is an ordinary user, goes through kube-apiserver and the Service, and is
//! told why it loses, unless the replica that carried it was killed. Afterwards nothing is stuck.
//!
//! One minute; ten with `KUBEWORKSPACES_LONG=1`, or as many seconds as `KUBEWORKSPACES_SOAK_SECONDS` says.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use kube::Client;
use kubeworkspaces_tests::{
    deployment::NAMESPACE,
    fight::{Door, Fight},
    guests::Place,
    machines::ECHO,
    servers::{kill_outright, pods},
    stream::open,
};
use serde_json::Value;
use tokio::time::{Instant, sleep};

const CONSOLES: usize = 20;
const CLIENTS: usize = 200;
const USERS: usize = 20;
const RAW: [&str; 1] = ["plain.kubevirt.io"];
/// Nothing may be stuck so long after the end.
const SETTLED: u64 = 30;

fn length() -> Duration {
    let seconds = std::env::var("KUBEWORKSPACES_SOAK_SECONDS").ok();
    let long = std::env::var_os("KUBEWORKSPACES_LONG").is_some();
    let seconds = seconds.and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(if long { 600 } else { 60 }))
}

/// Kills replicas, each in one of two ways, as long as another is ready.
async fn killer(fight: &Fight, place: &Place) -> Result<()> {
    while !fight.is_over() {
        sleep(Duration::from_secs(8) + fight.dice.up_to(12_000)).await;
        let pods = pods(place).await?;
        let ready = |pod: &&Value| {
            pod["status"]["containerStatuses"][0]["ready"] == true
                && pod["metadata"]["deletionTimestamp"].is_null()
        };
        let alive: Vec<&str> = pods
            .iter()
            .filter(ready)
            .filter_map(|pod| pod["metadata"]["name"].as_str())
            .collect();
        if alive.len() < 2 || fight.is_over() {
            continue;
        }
        let pod = alive[fight.dice.roll(alive.len() as u64) as usize];
        if fight.dice.roll(3) == 0 {
            let delete = ["-n", NAMESPACE, "delete", "pod", pod, "--wait=false"];
            place.cluster.kubectl(delete).await?;
            fight.count("replicas drained");
        } else {
            kill_outright(place, pod).await?;
            fight.killed();
        }
    }
    Ok(())
}

async fn workspaces(place: &Place) -> Result<()> {
    let one = |n| {
        format!(
            "apiVersion: kubeworkspaces.io/v1alpha1\nkind: Workspace\nmetadata: {{name: w{n}}}\nspec:\n  type: vm\n  \
             template:\n    spec:\n      containers:\n      - name: main\n        image: {ECHO}\n        \
             resources: {{limits: {{cpu: '1', memory: 64Mi}}}}\n"
        )
    };
    let all: Vec<String> = (0..CONSOLES).map(one).collect();
    place.apply(&all.join("---\n")).await?;
    let ready = [
        "wait",
        "--for=condition=Ready",
        "--timeout=180s",
        "ws",
        "--all",
    ];
    place.kubectl(&ready).await?;
    Ok(())
}

/// Users of edit take over their own streams, every fourth of admin anybody's.
async fn users(place: &Place) -> Result<Vec<Client>> {
    let mut users = Vec::new();
    for n in 0..USERS {
        let user = format!("soak-{n}");
        users.push(place.editor(&user).await?);
        if n % 4 == 0 {
            let (flag, name) = (format!("--user={user}"), format!("{user}-admin"));
            place
                .kubectl(&["create", "rolebinding", &name, "--clusterrole=admin", &flag])
                .await?;
        }
    }
    Ok(users)
}

fn door(client: &Client) -> Door {
    let client = client.clone();
    Arc::new(move |path| {
        let client = client.clone();
        Box::pin(async move { open(&client, &path, &RAW).await })
    })
}

/// The upstream's verdict on the namespace.
async fn verdict(place: &Place) -> Result<Value> {
    let namespace = &place.namespace;
    let path =
        format!("/apis/subresources.kubevirt.io/v1/namespaces/{namespace}/localvirt/checker");
    let report = place.cluster.kubectl(["get", "--raw", &path]).await?;
    Ok(serde_json::from_str(&report)?)
}

/// Waits until nobody holds anything.
async fn settled(place: &Place) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(SETTLED);
    loop {
        let report = verdict(place).await?;
        let sessions = place.kubectl(&["get", "wss", "-o", "name"]).await?;
        let live = &report["modes"]["console"]["live"];
        if sessions.is_empty() && *live == 0 {
            return Ok(());
        }
        if Instant::now() > end {
            bail!(
                "{SETTLED} s after the end {live} streams are live, and sessions are left: {sessions}"
            );
        }
        sleep(Duration::from_millis(500)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn consoles_have_one_holder_whoever_is_killed() -> Result<()> {
    let place = Place::new("soak").await?;
    workspaces(&place).await?;
    let users = users(&place).await?;
    let consoles = (0..CONSOLES).map(|n| place.path(&format!("w{n}"), "console"));
    let consoles: Vec<String> = consoles.collect();
    println!("for {:?}", length());
    let fight = Fight::new(consoles.clone())?;
    let doors: Vec<Door> = users.iter().map(door).collect();
    let clients = fight.clients(&doors, CLIENTS);
    tokio::select! {
        killed = killer(&fight, &place) => killed?,
        () = sleep(length()) => {}
    }
    fight.end(clients).await;

    settled(&place).await?;
    let report = verdict(&place).await?;
    println!("{report:#}");
    // Not how many: a killed replica leaves its consoles unreachable for up to 25 s.
    fight.judge(CONSOLES as u64)?;
    ensure!(report["verdict"] == "pass", "{report:#}");
    let accepted = report["modes"]["console"]["accepted"].as_u64();
    ensure!(
        accepted >= Some(fight.counted("streams")),
        "the checker has seen less than the clients: {report}"
    );
    let ended = fight.counted("replicas killed") + fight.counted("replicas drained");
    ensure!(ended > 0, "no replica was killed");
    // Every console can be had at once, by somebody who takes over nothing.
    for path in &consoles {
        let opened = open(&users[1], path, &RAW).await?;
        let mut stream = opened
            .stream()
            .with_context(|| format!("{path} is stuck"))?;
        stream.close().await?;
    }
    place.end().await
}
