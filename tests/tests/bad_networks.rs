//! Streams across networks that cut what is quiet, lose packets without a word, and lose their
//! kube-apiserver; and clients that speak HTTP/2 only.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use kube::{Client, Config};
use kubeworkspaces_tests::{
    scene::Scene,
    sshd::Sshd,
    stream::{Opened, Stream, open},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, tcp::OwnedReadHalf, tcp::OwnedWriteHalf},
    sync::watch,
    time::{sleep, timeout},
};

const RAW: [&str; 1] = ["binary"];

/// A load balancer in TCP mode that ends connections on which one direction is quiet for too long, as
/// HAProxy's `timeout client` and `timeout server` do, and that can lose everything.
struct Balancer {
    address: SocketAddr,
    lost: watch::Sender<bool>,
}

impl Balancer {
    async fn start(upstream: SocketAddr, quiet: Duration) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, lost) = (listener.local_addr()?, watch::Sender::new(false));
        let losing = lost.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let lost = losing.subscribe();
                tokio::spawn(async move { carry(client, upstream, quiet, lost).await });
            }
        });
        Ok(Self { address, lost })
    }
}

async fn carry(
    client: TcpStream,
    upstream: SocketAddr,
    quiet: Duration,
    lost: watch::Receiver<bool>,
) -> Result<()> {
    let server = TcpStream::connect(upstream).await?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        ended = pass(from_client, to_server, quiet, lost.clone()) => ended,
        ended = pass(from_server, to_client, quiet, lost) => ended,
    }
}

async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    quiet: Duration,
    lost: watch::Receiver<bool>,
) -> Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = timeout(quiet, from.read(&mut buffer))
            .await
            .context("quiet")??;
        if *lost.borrow() {
            // Nobody hears of it, neither now nor later.
            return std::future::pending().await;
        }
        ensure!(read > 0, "the end");
        to.write_all(&buffer[..read]).await?;
    }
}

/// A client of a user whose way leads through the balancer.
fn through(scene: &Scene, balancer: &Balancer, user: &str) -> Result<Client> {
    let mut config: Config = scene.deployment.plane().config_as(user, &[])?;
    let host = config.cluster_url.host().context("no host")?.to_owned();
    config.tls_server_name = Some(host);
    config.cluster_url = format!("https://{}", balancer.address).parse()?;
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

fn kube_apiserver(scene: &Scene) -> Result<SocketAddr> {
    let url = scene.deployment.plane().config().cluster_url;
    Ok(url.authority().context("no authority")?.as_str().parse()?)
}

async fn opened(client: &Client, rest: &str) -> Result<Stream> {
    open(client, &Scene::path("w", rest), &RAW).await?.stream()
}

/// 45 s, ten minutes with `KUBEWORKSPACES_LONG=1`.
fn silence() -> Duration {
    match std::env::var_os("KUBEWORKSPACES_LONG") {
        Some(_) => Duration::from_secs(600),
        None => Duration::from_secs(45),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s_01_quiet_streams_live_behind_a_load_balancer_that_cuts_quiet_connections() -> Result<()>
{
    let scene = Scene::start(&[], &["w"]).await?;
    let sshd = Sshd::start(&["ed25519"], "").await?;
    scene.machines.serve(22, sshd.address());
    scene.editor("jane", &[]).await?;
    let balancer = Balancer::start(kube_apiserver(&scene)?, Duration::from_secs(20)).await?;
    let jane = through(&scene, &balancer, "jane")?;
    let mut console = opened(&jane, "console").await?;
    let mut display = opened(&jane, "vnc").await?;
    let mut tunnel = opened(&jane, "ssh?mode=tunnel").await?;
    let mut port = opened(&jane, "portforward/8080").await?;
    display.expect("RFB 003.008\n", 20).await?;
    tunnel.expect("SSH-2.0-", 20).await?;
    // Nothing is typed; reading answers the pings, and fails when a stream is cut.
    let quiet = silence().as_secs();
    let (a, b, c, d) = tokio::join!(
        console.end(quiet),
        display.end(quiet),
        tunnel.end(quiet),
        port.end(quiet),
    );
    for (name, end) in [("console", a), ("vnc", b), ("ssh", c), ("port", d)] {
        ensure!(end.is_err(), "{name} ended: {end:?}");
    }
    for stream in [&mut console, &mut port] {
        stream.write("still here").await?;
        stream.expect("still here", 20).await?;
    }
    Ok(())
}

/// Asks every second, as the second user does; how long it took, with what the others were told.
async fn free_again(client: &Client, limit: Duration) -> Result<Duration> {
    let (begun, path) = (Instant::now(), Scene::path("w", "console"));
    loop {
        let asking = open(client, &path, &RAW);
        match timeout(Duration::from_secs(10), asking)
            .await
            .context("it hangs")?
        {
            Ok(Opened::Stream(..)) => return Ok(begun.elapsed()),
            Ok(Opened::Refused(code, status)) if code.as_u16() == 409 => {
                let cause = &status["details"]["causes"][0];
                ensure!(
                    cause["reason"] == "SessionHeld" && cause["message"] == "jane",
                    "{status}"
                );
            }
            // A kube-apiserver that is not there, or not quite.
            other => println!("{other:?}"),
        }
        ensure!(begun.elapsed() < limit, "held after {:?}", begun.elapsed());
        sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s_04_a_holder_whose_packets_are_lost_or_whose_kube_apiserver_dies_is_gone() -> Result<()> {
    let mut scene = Scene::start(&[], &["w"]).await?;
    scene.editor("jane", &[]).await?;
    let joe = scene.editor("joe", &[]).await?;
    // (a) The client is gone.
    let jane = scene.deployment.plane().client_as("jane", &[])?;
    drop(opened(&jane, "console").await?);
    let took = free_again(&joe, Duration::from_secs(3)).await?;
    println!("(a) {took:?}");

    // (b) No packet of the client's arrives any more, and none tells of an end.
    let balancer = Balancer::start(kube_apiserver(&scene)?, Duration::from_secs(600)).await?;
    let far = through(&scene, &balancer, "jane")?;
    // The console of the line before ends first.
    let mut held = None;
    for _ in 0..50 {
        match open(&far, &Scene::path("w", "console"), &RAW).await? {
            Opened::Stream(stream, _) => {
                held = Some(stream);
                break;
            }
            Opened::Refused(..) => sleep(Duration::from_millis(100)).await,
        }
    }
    let held = held.context("the console stays held")?;
    balancer.lost.send_replace(true);
    let took = free_again(&joe, Duration::from_secs(50)).await?;
    println!("(b) {took:?}");
    drop(held);

    // (d) kube-apiserver is killed, and another takes its place.
    let held = opened_soon(&jane).await?;
    scene.deployment.plane_mut().restart_apiserver().await?;
    let took = free_again(&joe, Duration::from_secs(20)).await?;
    println!("(d) {took:?} after kube-apiserver was ready again");
    drop(held);
    let tally = scene
        .machines
        .checker()
        .tally("default", localvirt::checker::Mode::Console);
    ensure!(tally.violations == 0, "{tally:?}");
    Ok(())
}

async fn opened_soon(client: &Client) -> Result<Stream> {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        match open(client, &Scene::path("w", "console"), &RAW).await? {
            Opened::Stream(stream, _) => return Ok(*stream),
            Opened::Refused(_, status) => ensure!(Instant::now() < end, "{status}"),
        }
        sleep(Duration::from_millis(200)).await;
    }
}
