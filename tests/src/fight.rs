//! Clients that fight for consoles: each is told why it loses, and an upstream that checks sees one
//! holder at a time. What is killed meanwhile, and how, is the test's business.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use futures::future::BoxFuture;
use http::StatusCode;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::stream::{End, Opened, Stream};

/// A stream that ends without a close frame is explained by a kill this long ago at most: a dead peer is
/// noticed at once, but the machine is busy.
const EXPLAINS: Duration = Duration::from_secs(10);

/// Chance that differs from run to run; its seed is printed (splitmix64).
pub struct Dice(AtomicU64);

impl Dice {
    /// Printed, so that a run can be looked at again.
    ///
    /// # Errors
    /// Never.
    pub fn new() -> Result<Self> {
        let uuid = uuid::Uuid::new_v4();
        let seed = u64::from_le_bytes(*uuid.as_bytes().first_chunk().context("a seed")?);
        println!("seed {seed}");
        Ok(Self(AtomicU64::new(seed)))
    }

    /// Below `n`.
    pub fn roll(&self, n: u64) -> u64 {
        let step = 0x9e37_79b9_7f4a_7c15_u64;
        let mut z = self.0.fetch_add(step, Ordering::Relaxed).wrapping_add(step);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    /// Up to so many milliseconds.
    pub fn up_to(&self, ms: u64) -> Duration {
        Duration::from_millis(self.roll(ms))
    }
}

/// How one user opens a path.
pub type Door = Arc<dyn Fn(String) -> BoxFuture<'static, Result<Opened>> + Send + Sync>;

/// What all clients share.
pub struct Fight {
    /// Chance.
    pub dice: Dice,
    /// The paths of the consoles.
    consoles: Vec<String>,
    over: AtomicBool,
    kills: Mutex<Vec<Instant>>,
    tally: Mutex<BTreeMap<String, u64>>,
    wrong: Mutex<Vec<String>>,
}

impl Fight {
    /// For these consoles.
    ///
    /// # Errors
    /// Never.
    pub fn new(consoles: Vec<String>) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            dice: Dice::new()?,
            consoles,
            over: AtomicBool::new(false),
            kills: Mutex::default(),
            tally: Mutex::default(),
            wrong: Mutex::default(),
        }))
    }

    /// Starts clients, one for each door and round.
    pub fn clients(self: &Arc<Self>, doors: &[Door], number: usize) -> JoinSet<()> {
        let mut clients = JoinSet::new();
        for n in 0..number {
            clients.spawn(client(self.clone(), doors[n % doors.len()].clone(), n));
        }
        clients
    }

    /// Whether clients stop.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Lets clients stop; those who hold or wait are killed.
    pub async fn end(&self, mut clients: JoinSet<()>) {
        self.over.store(true, Ordering::Relaxed);
        sleep(Duration::from_secs(2)).await;
        clients.shutdown().await;
    }

    /// A replica was killed outright: whom it carried gets no reason.
    pub fn killed(&self) {
        self.kills.lock().push(Instant::now());
        self.count("replicas killed");
    }

    /// Whatever broke until now is explained.
    pub fn explain(&self) {
        self.kills.lock().push(Instant::now());
    }

    /// Counts something.
    pub fn count(&self, what: impl Into<String>) {
        *self.tally.lock().entry(what.into()).or_default() += 1;
    }

    /// How often it was counted.
    pub fn counted(&self, what: &str) -> u64 {
        self.tally.lock().get(what).copied().unwrap_or(0)
    }

    /// Judges what the clients have met.
    ///
    /// # Errors
    /// When somebody lost without a reason, or nothing happened.
    pub fn judge(&self, streams: u64) -> Result<()> {
        let (tally, wrong) = (self.tally.lock().clone(), self.wrong.lock().clone());
        println!("{tally:#?}");
        ensure!(wrong.is_empty(), "{} of these: {wrong:#?}", wrong.len());
        ensure!(
            self.counted("streams") >= streams,
            "hardly anybody got a console: {tally:?}"
        );
        for what in ["refused 409", "1000 taken over by another user"] {
            ensure!(self.counted(what) > 0, "none: {what}: {tally:?}");
        }
        Ok(())
    }

    fn wrong(&self, what: String) {
        self.wrong.lock().push(what);
    }

    /// Whether a replica was killed a moment before, or is being killed.
    async fn explained(&self) -> bool {
        // The kill is noted when its command returns, which may be after the client has felt it.
        sleep(Duration::from_secs(2)).await;
        let kills = self.kills.lock();
        kills.iter().any(|at| at.elapsed() < EXPLAINS)
    }
}

/// One client, again and again.
async fn client(fight: Arc<Fight>, door: Door, n: usize) {
    while !fight.is_over() {
        let mut path =
            fight.consoles[fight.dice.roll(fight.consoles.len() as u64) as usize].clone();
        if fight.dice.roll(3) == 0 {
            path += "?takeover=true";
        }
        match timeout(Duration::from_secs(60), door(path.clone())).await {
            Err(_) => fight.wrong(format!("client {n}: {path} hangs")),
            Ok(Ok(Opened::Stream(stream, _))) => hold(&fight, *stream).await,
            Ok(Ok(Opened::Refused(code, status))) => refused(&fight, code, &status),
            Ok(Err(error)) => {
                fight.count("connection failed");
                if !fight.explained().await {
                    fight.wrong(format!(
                        "client {n}: {path} failed without a kill: {error:#}"
                    ));
                }
            }
        }
        sleep(Duration::from_millis(500) + fight.dice.up_to(3_000)).await;
    }
}

/// A refusal says what it is, and one because of a holder says who that is.
fn refused(fight: &Fight, code: StatusCode, status: &Value) {
    fight.count(format!("refused {}", code.as_u16()));
    let message = status["message"].as_str().unwrap_or_default();
    let held = status["details"]["causes"][0]["reason"] == "SessionHeld";
    let fits = match code.as_u16() {
        409 => held || message.contains("was lost while it was dialled"),
        403 => message.contains("cannot delete resource \"workspacesessions\""),
        429 => !message.is_empty(),
        // A replica that drains, or whose connection kube-apiserver has just lost.
        500 | 502 | 503 => true,
        _ => false,
    };
    if !fits {
        fight.wrong(format!("refused with {code}: {status}"));
    }
}

/// Uses a console for a while, and leaves it in one way or another.
async fn hold(fight: &Fight, mut stream: Stream) {
    fight.count("streams");
    let word = format!("<{}>", fight.dice.roll(u64::MAX));
    let stays = fight.dice.up_to(10_000);
    let using = async {
        stream.write(&word).await?;
        stream.expect(&word, 30).await?;
        sleep(stays).await;
        anyhow::Ok(())
    };
    if let Err(error) = using.await {
        // It was ended while it was used. Who could not write may still read why.
        let end = match error.downcast_ref::<End>() {
            Some(end) => end.clone(),
            None => stream.end(5).await.unwrap_or(End::Cut),
        };
        return ended(fight, end, &format!("{error:#}")).await;
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
            Ok(end) => ended(fight, end, "while it was held").await,
        },
    }
}

/// Somebody else ended it. The upstream never does by itself here, and nobody is to be told that it did.
async fn ended(fight: &Fight, end: End, how: &str) {
    let End::Closed(code, reason) = end else {
        return cut(fight, how).await;
    };
    fight.count(format!("{code} {reason}"));
    let fits = match code {
        1000 => reason == "taken over by another user",
        1001 => reason.contains("another replica answers"),
        4009 => !reason.is_empty(),
        _ => false,
    };
    if !fits {
        fight.wrong(format!("ended with {code} {reason:?}: {how}"));
    }
}

async fn cut(fight: &Fight, how: &str) {
    fight.count("cut");
    if !fight.explained().await {
        fight.wrong(format!(
            "a loser got no reason, and no replica was killed: {how}"
        ));
    }
}
