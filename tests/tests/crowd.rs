//! Many open consoles of ordinary users, through a real kube-apiserver with our FlowSchemas: others are
//! answered as ever. kube-apiserver counts an upgrade of a console as a request that takes a seat of its
//! user's priority level for its whole life.
//!
//! 60 consoles over a level that is made so small that they would fill it; 500 over the level as it comes
//! with `KUBEWORKSPACES_LONG=1`.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream::iter};
use http::{Request, StatusCode};
use kube::Client;
use kubeworkspaces_tests::{
    scene::Scene,
    stream::{Opened, Stream, open},
};
use serde_json::Value;
use tokio::time::{sleep, timeout};

const USERS: usize = 5;
const RAW: [&str; 1] = ["plain.kubevirt.io"];
/// What the sixth user may have to wait.
const PROMPT: Duration = Duration::from_secs(1);
const LIST: &str = "/apis/kubeworkspaces.io/v1alpha1/namespaces/default/workspaces?limit=1";
const PATIENCE: Duration = Duration::from_secs(60);

fn is_long() -> bool {
    std::env::var_os("KUBEWORKSPACES_LONG").is_some()
}

fn consoles() -> usize {
    if is_long() { 500 } else { 60 }
}

/// `global-default`, where ordinary users' requests are, with as few seats as consoles are few.
async fn narrow(scene: &Scene) -> Result<()> {
    if is_long() {
        return Ok(());
    }
    let keep = "apf.kubernetes.io/autoupdate-spec=false";
    let level = ["prioritylevelconfiguration", "global-default"];
    let annotate = ["annotate", level[0], level[1], keep, "--overwrite"];
    scene.deployment.kubectl(&annotate).await?;
    let spec = r#"{"spec":{"limited":{"nominalConcurrencyShares":5,"borrowingLimitPercent":0}}}"#;
    let patch = ["patch", level[0], level[1], "--type=merge", "-p", spec];
    scene.deployment.kubectl(&patch).await?;
    let seats = "apiserver_flowcontrol_nominal_limit_seats{priority_level=\"global-default\"} ";
    let end = Instant::now() + PATIENCE;
    loop {
        let metrics = scene
            .deployment
            .kubectl(&["get", "--raw", "/metrics"])
            .await?;
        let line = metrics.lines().find_map(|line| line.strip_prefix(seats));
        let seats: f64 = line.context("no such metric")?.parse()?;
        // Fewer than consoles, and some for the set-up of each.
        if (5.0..30.0).contains(&seats) {
            println!("global-default has {seats} seats");
            return Ok(());
        }
        ensure!(
            Instant::now() < end,
            "global-default still has {seats} seats"
        );
        sleep(Duration::from_millis(200)).await;
    }
}

async fn scene() -> Result<(Scene, Vec<Client>, Client)> {
    let names: Vec<String> = (0..consoles()).map(|n| format!("w{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let scene = Scene::start(&[], &names).await?;
    let mut users = Vec::new();
    for n in 0..USERS {
        users.push(scene.editor(&format!("user-{n}"), &[]).await?);
    }
    let sixth = scene.editor("sixth", &[]).await?;
    narrow(&scene).await?;
    Ok((scene, users, sixth))
}

/// Opens a console; where its user's limit of set-ups is met, a second later.
async fn console(client: &Client, name: usize) -> Result<Stream> {
    let path = Scene::path(&format!("w{name}"), "console");
    let end = Instant::now() + PATIENCE;
    loop {
        match open(client, &path, &RAW).await? {
            Opened::Stream(stream, _) => return Ok(*stream),
            Opened::Refused(StatusCode::TOO_MANY_REQUESTS, status) if is_ours(&status) => {
                ensure!(Instant::now() < end, "{status}");
                sleep(Duration::from_millis(500)).await;
            }
            Opened::Refused(code, status) => bail!("{path}: {code} {status}"),
        }
    }
}

/// Whether a 429 is the server's and not kube-apiserver's own.
fn is_ours(status: &Value) -> bool {
    let message = status["message"].as_str().unwrap_or_default();
    message.contains("--max-stream-setups-per-user")
}

async fn lists(client: &Client) -> Result<Duration> {
    let begun = Instant::now();
    let request = Request::get(LIST).body(Vec::new())?;
    let list: Value = timeout(PROMPT, client.request(request))
        .await
        .context("no list within a second")??;
    ensure!(
        list["items"].as_array().is_some_and(|l| l.len() == 1),
        "{list}"
    );
    Ok(begun.elapsed())
}

#[tokio::test(flavor = "multi_thread")]
async fn five_users_consoles_leave_a_sixth_user_room() -> Result<()> {
    let (_scene, users, sixth) = scene().await?;
    let opening = (0..consoles()).map(|n| console(&users[n % USERS], n));
    let mut open: Vec<Stream> = iter(opening).buffer_unordered(20).try_collect().await?;
    for _ in 0..10 {
        println!("listed in {:?}", lists(&sixth).await?);
    }
    // All of them live.
    for (n, stream) in open.iter_mut().enumerate() {
        let word = format!("<{n}>");
        stream.write(&word).await?;
        stream.expect(&word, 30).await?;
    }
    Ok(())
}

/// What the FlowSchemas are for: the same without them.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_flow_schemas_there_would_be_none() -> Result<()> {
    let (scene, users, sixth) = scene().await?;
    lists(&sixth).await?;
    let schema = ["delete", "flowschema", "kubeworkspaces-streams"];
    scene.deployment.kubectl(&schema).await?;
    let opening: Vec<_> = (0..consoles())
        .map(|n| {
            let client = users[n % USERS].clone();
            tokio::spawn(async move {
                let stream = console(&client, n).await;
                // Whoever is let in stays.
                let _stream = stream;
                std::future::pending::<()>().await;
            })
        })
        .collect();
    // One list may be late for other reasons; not one after the other.
    let (end, mut late) = (Instant::now() + PATIENCE, 0);
    while late < 3 {
        match lists(&sixth).await {
            Ok(_) => late = 0,
            Err(_) => late += 1,
        }
        ensure!(
            Instant::now() < end,
            "everybody is answered without FlowSchemas"
        );
        sleep(Duration::from_millis(200)).await;
    }
    for task in opening {
        task.abort();
    }
    Ok(())
}
