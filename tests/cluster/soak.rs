//! Two hundred clients fight for twenty consoles while clients and server replicas are killed at random.
//!
//! The machines have no guest: a checker inside the upstream counts who is let in while another stream
//! has not ended. Every client is an ordinary user, goes through kube-apiserver and the Service, and is
//! told why it loses, unless the replica that carried it was killed. Afterwards nothing is stuck.
//!
//! One minute; ten with `KUBEWORKSPACES_LONG=1`, or as many seconds as `KUBEWORKSPACES_SOAK_SECONDS` says.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use http::StatusCode;
use kube::Client;
use kubeworkspaces_tests::{
    deployment::NAMESPACE,
    guests::Place,
    servers::{kill_outright, pods},
    stream::{End, Opened, Stream, open},
};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

const CONSOLES: usize = 20;
const CLIENTS: usize = 200;
const USERS: usize = 20;
const GUESTLESS: &str = "kubeworkspaces.io/guestless:echo";
const RAW: [&str; 1] = ["plain.kubevirt.io"];
/// A stream that ends without a close frame is explained by a kill this long ago at most: kube-apiserver
/// notices a dead peer at once, but the machine is busy.
const EXPLAINS: Duration = Duration::from_secs(10);
/// Nothing may be stuck so long after the end.
const SETTLED: u64 = 30;

fn length() -> Duration {
    let seconds = std::env::var("KUBEWORKSPACES_SOAK_SECONDS").ok();
    let long = std::env::var_os("KUBEWORKSPACES_LONG").is_some();
    let seconds = seconds.and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(if long { 600 } else { 60 }))
}

/// Chance that differs from run to run; its seed is printed (splitmix64).
struct Dice(AtomicU64);

impl Dice {
    fn roll(&self, n: u64) -> u64 {
        let step = 0x9e37_79b9_7f4a_7c15_u64;
        let mut z = self.0.fetch_add(step, Ordering::Relaxed).wrapping_add(step);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    fn up_to(&self, ms: u64) -> Duration {
        Duration::from_millis(self.roll(ms))
    }
}

/// What all clients share.
struct Fight {
    place: Place,
    dice: Dice,
    over: AtomicBool,
    /// Kills of replicas.
    kills: Mutex<Vec<Instant>>,
    /// How attempts and streams ended.
    tally: Mutex<BTreeMap<String, u64>>,
    /// What must not happen.
    wrong: Mutex<Vec<String>>,
}

impl Fight {
    fn count(&self, what: impl Into<String>) {
        *self.tally.lock().entry(what.into()).or_default() += 1;
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Whether a replica was killed a moment before, or is being killed.
    async fn explained(&self) -> bool {
        // The kill is noted when its command returns, which may be after the client has felt it.
        sleep(Duration::from_secs(2)).await;
        let kills = self.kills.lock();
        kills.iter().any(|at| at.elapsed() < EXPLAINS)
    }
}

fn console(place: &Place, n: u64) -> String {
    place.path(&format!("w{n}"), "console")
}

/// One client, again and again.
async fn client(fight: Arc<Fight>, client: Client, user: String) {
    while !fight.is_over() {
        let mut path = console(&fight.place, fight.dice.roll(CONSOLES as u64));
        if fight.dice.roll(3) == 0 {
            path += "?takeover=true";
        }
        match timeout(Duration::from_secs(60), open(&client, &path, &RAW)).await {
            Err(_) => fight.wrong.lock().push(format!("{user}: {path} hangs")),
            Ok(Ok(Opened::Stream(stream, _))) => hold(&fight, *stream).await,
            Ok(Ok(Opened::Refused(code, status))) => refused(&fight, code, &status),
            Ok(Err(error)) => {
                fight.count("connection failed");
                if !fight.explained().await {
                    let wrong = format!("{user}: {path} failed without a kill: {error:#}");
                    fight.wrong.lock().push(wrong);
                }
            }
        }
        sleep(Duration::from_millis(500) + fight.dice.up_to(3_000)).await;
    }
}

/// A refusal says what it is, and one because of a holder says who that is.
fn refused(fight: &Fight, code: StatusCode, status: &Value) {
    fight.count(format!("refused {}", code.as_u16()));
    let said =
        status["kind"] == "Status" && status["message"].as_str().is_some_and(|m| !m.is_empty());
    let held = status["details"]["causes"][0]["reason"] == "SessionHeld";
    let fits = match code.as_u16() {
        409 => {
            said && (held
                || status["message"]
                    .as_str()
                    .is_some_and(|m| m.contains("was lost")))
        }
        // A replica that drains, or whose connection kube-apiserver has just lost.
        429 | 500 | 502 | 503 => true,
        _ => false,
    };
    if !fits {
        fight
            .wrong
            .lock()
            .push(format!("refused with {code}: {status}"));
    }
}

/// Uses a console for a while, and leaves it in one way or another.
async fn hold(fight: &Fight, mut stream: Stream) {
    fight.count("streams");
    let word = format!("<{}>", fight.dice.roll(u64::MAX));
    let stays = fight.dice.up_to(15_000);
    let using = async {
        stream.write(&word).await?;
        stream.expect(&word, 30).await?;
        sleep(stays).await;
        anyhow::Ok(())
    };
    if let Err(error) = using.await {
        // It was ended while it was used: how, the error says.
        let text = format!("{error:#}");
        match text.contains("closed with Some") {
            true => fight.count("ended early, with a reason"),
            false => cut(fight, &text).await,
        }
        return;
    }
    match fight.dice.roll(3) {
        0 => drop(stream), // killed
        1 => {
            stream.close().await.ok();
            fight.count("closed");
        }
        _ => match stream.end(30).await {
            // Nobody wanted it for so long.
            Err(_) => drop(stream),
            Ok(End::Cut) => cut(fight, "no close frame").await,
            Ok(End::Closed(code, reason)) => {
                fight.count(format!("{code} {reason}"));
                if reason.is_empty() || [1005, 1006, 1015].contains(&code) {
                    fight
                        .wrong
                        .lock()
                        .push(format!("ended with {code} {reason:?}"));
                }
            }
        },
    }
}

async fn cut(fight: &Fight, how: &str) {
    fight.count("cut");
    if !fight.explained().await {
        let wrong = format!("a loser got no reason, and no replica was killed: {how}");
        fight.wrong.lock().push(wrong);
    }
}

/// Kills replicas, each in one of two ways, and waits until the other can be killed.
async fn killer(fight: Arc<Fight>) -> Result<()> {
    while !fight.is_over() {
        sleep(Duration::from_secs(8) + fight.dice.up_to(12_000)).await;
        let pods = pods(&fight.place).await?;
        let ready = |pod: &Value| pod["status"]["containerStatuses"][0]["ready"] == true;
        let alive: Vec<&str> = pods
            .iter()
            .filter(|pod| ready(pod) && pod["metadata"]["deletionTimestamp"].is_null())
            .filter_map(|pod| pod["metadata"]["name"].as_str())
            .collect();
        if alive.len() < 2 || fight.is_over() {
            continue;
        }
        let pod = alive[fight.dice.roll(alive.len() as u64) as usize];
        match fight.dice.roll(3) {
            0 => {
                let delete = ["-n", NAMESPACE, "delete", "pod", pod, "--wait=false"];
                fight.place.cluster.kubectl(delete).await?;
                fight.count("replicas drained");
            }
            _ => {
                kill_outright(&fight.place, pod).await?;
                fight.kills.lock().push(Instant::now());
                fight.count("replicas killed");
            }
        }
    }
    Ok(())
}

async fn workspaces(place: &Place) -> Result<()> {
    let one = |n| {
        format!(
            "apiVersion: kubeworkspaces.io/v1alpha1\nkind: Workspace\nmetadata: {{name: w{n}}}\nspec:\n  type: vm\n  \
             template:\n    spec:\n      containers:\n      - name: main\n        image: {GUESTLESS}\n        \
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
async fn users(place: &Place) -> Result<Vec<(String, Client)>> {
    let mut users = Vec::new();
    for n in 0..USERS {
        let user = format!("soak-{n}");
        let client = place.editor(&user).await?;
        if n % 4 == 0 {
            let flag = format!("--user={user}");
            let name = format!("{user}-admin");
            place
                .kubectl(&["create", "rolebinding", &name, "--clusterrole=admin", &flag])
                .await?;
        }
        users.push((user, client));
    }
    Ok(users)
}

/// The upstream's verdict on the namespace.
async fn verdict(place: &Place) -> Result<Value> {
    let namespace = &place.namespace;
    let path =
        format!("/apis/subresources.kubevirt.io/v1/namespaces/{namespace}/localvirt/checker");
    let report = place.cluster.kubectl(["get", "--raw", &path]).await?;
    Ok(serde_json::from_str(&report)?)
}

/// Every console can be had at once, by somebody who takes over nothing.
async fn all_free(place: &Place, client: &Client) -> Result<()> {
    for n in 0..CONSOLES as u64 {
        let opened = open(client, &console(place, n), &RAW).await?;
        let mut stream = opened.stream().with_context(|| format!("w{n} is stuck"))?;
        stream.close().await?;
    }
    Ok(())
}

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
    let seed = u64::from_le_bytes(
        *uuid::Uuid::new_v4()
            .as_bytes()
            .first_chunk()
            .context("seed")?,
    );
    println!("seed {seed}, for {:?}", length());
    let fight = Arc::new(Fight {
        place,
        dice: Dice(AtomicU64::new(seed)),
        over: AtomicBool::new(false),
        kills: Mutex::default(),
        tally: Mutex::default(),
        wrong: Mutex::default(),
    });
    let mut clients = JoinSet::new();
    for n in 0..CLIENTS {
        let (user, of) = users[n % users.len()].clone();
        clients.spawn(client(fight.clone(), of, user));
    }
    let killing = tokio::spawn(killer(fight.clone()));
    sleep(length()).await;
    fight.over.store(true, Ordering::Relaxed);
    killing.await??;
    // Whoever holds or waits at the end is killed too.
    sleep(Duration::from_secs(2)).await;
    clients.shutdown().await;

    settled(&fight.place).await?;
    let report = verdict(&fight.place).await?;
    let (tally, wrong) = (fight.tally.lock().clone(), fight.wrong.lock().clone());
    println!("{tally:#?}\n{report:#}");
    ensure!(report["verdict"] == "pass", "{report:#}");
    ensure!(wrong.is_empty(), "{} of these: {wrong:#?}", wrong.len());
    let count = |what: &str| tally.get(what).copied().unwrap_or(0);
    ensure!(
        count("streams") > CLIENTS as u64 / 2,
        "hardly anybody got a console: {tally:?}"
    );
    ensure!(
        count("refused 409") > 0 && count("1000 taken over by another user") > 0,
        "{tally:?}"
    );
    ensure!(
        count("replicas killed") + count("replicas drained") > 0,
        "{tally:?}"
    );
    let accepted = report["modes"]["console"]["accepted"].as_u64().unwrap_or(0);
    ensure!(
        accepted >= count("streams"),
        "the checker has seen less than the clients: {report}"
    );
    all_free(&fight.place, &users[1].1).await?;
    let place = Arc::into_inner(fight).context("a client is left")?.place;
    place.end().await
}
