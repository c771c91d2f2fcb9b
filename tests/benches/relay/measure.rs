//! The measurements, one after the other, in one run of everything.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use relay_ends::client::{Target, Work};
use serde_json::Value;

use crate::{
    figures::{Cost, Figures, Idle, Keys, SetUp, median, percentile},
    place::Place,
    process::{Talker, core_seconds, resident},
};

/// How long nothing passes before memory is looked at.
const QUIET: Duration = Duration::from_secs(60);
/// Keystrokes of a measurement.
const KEYS: usize = 1_000;
/// Streams that are opened to measure set-ups.
const SET_UPS: usize = 200;
const GIB: f64 = (1u64 << 30) as f64;

/// Sizes of messages, and how much of them is sent each way in a round: enough that the kernel's ticks of 10 ms do not
/// matter.
const TRANSFERS: [(u32, u64); 3] = [(32 << 10, 512 << 20), (4 << 10, 256 << 20), (256, 48 << 20)];

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Rounds of each transfer.
    pub(crate) rounds: usize,
    /// Streams that are held.
    pub(crate) streams: usize,
    /// Whether to measure memory.
    pub(crate) idle: bool,
    /// Whether to measure keystrokes and set-ups.
    pub(crate) latency: bool,
    /// Whether to measure transfers.
    pub(crate) throughput: bool,
}

/// Measures, and prints the figures.
///
/// # Errors
/// When something does not run, or a relay carries other bytes than it was given.
pub(crate) async fn run(plan: &Plan) -> Result<()> {
    note(
        "starting the control plane, the server, the peer and the upstream of both (a double of KubeVirt's)",
    );
    let mut place = Place::start().await?;
    let mut figures = Figures::default();
    // Memory first: a server that has worked keeps some of what it used.
    if plan.idle {
        figures.idle = Some(idle(&place, plan.streams).await?);
    }
    if plan.latency {
        figures.keys = Some(keys(&place).await?);
        figures.set_up = Some(set_up(&place).await?);
    }
    if plan.throughput {
        for (size, bytes) in TRANSFERS {
            let costs = transfers(&mut place, plan.rounds, size, bytes).await?;
            figures.costs.extend(costs);
        }
    }
    place.check()?;
    print!("{}", figures.table());
    println!("{}", figures.json());
    Ok(())
}

fn note(text: &str) {
    eprintln!("relay: {text}");
}

/// Bytes per idle stream, ours and the peer's. Tunnels: many of one user lead to one machine.
async fn idle(place: &Place, streams: usize) -> Result<Idle> {
    let pids = (place.server_pid(), place.peer_pid()?);
    let before = (resident(pids.0)?, resident(pids.1)?);
    let started = Instant::now();
    note(&format!("opening {streams} streams through each relay"));
    let work = Work::Hold { streams };
    let tunnel = "portforward/22";
    let mut ours = Talker::client(&place.server(tunnel), work).await?;
    let mut theirs = Talker::client(&place.peer(tunnel), work).await?;
    note(&format!(
        "{streams} streams are open after {:.0} s; nothing passes for {} s",
        started.elapsed().as_secs_f64(),
        QUIET.as_secs()
    ));
    tokio::time::sleep(QUIET).await;
    let after = (resident(pids.0)?, resident(pids.1)?);
    ours.check()?;
    theirs.check()?;
    ours.end().await?;
    theirs.end().await?;
    let per_stream = |before: u64, after: u64| after.saturating_sub(before) as f64 / streams as f64;
    Ok(Idle {
        streams,
        ours: per_stream(before.0, after.0),
        theirs: per_stream(before.1, after.1),
    })
}

/// Keystrokes: there and back, without a relay and through each.
async fn keys(place: &Place) -> Result<Keys> {
    note("keystrokes: directly, through us, through the peer");
    let direct = typed(&place.direct("console")).await?;
    let ours = typed(&place.server("console")).await?;
    let theirs = typed(&place.peer("console")).await?;
    let added = |all: &[f64], q: f64| (percentile(all, q) - percentile(&direct, q)).max(0.0);
    Ok(Keys {
        ours: (added(&ours, 0.5), added(&ours, 0.99)),
        theirs: (added(&theirs, 0.5), added(&theirs, 0.99)),
    })
}

async fn typed(target: &Target) -> Result<Vec<f64>> {
    let mut client = Talker::client(target, Work::Keys { count: KEYS }).await?;
    let report = client.work().await?;
    client.end().await?;
    seconds(&report)
}

fn seconds(report: &Value) -> Result<Vec<f64>> {
    let all = report["seconds"]
        .as_array()
        .context("a report without seconds")?;
    Ok(all.iter().filter_map(Value::as_f64).collect())
}

/// Set-ups of consoles, each with a claim of its own.
async fn set_up(place: &Place) -> Result<SetUp> {
    note(&format!(
        "setting up {SET_UPS} consoles, one after the other"
    ));
    let own = "workspaces_streams_set_up_own_seconds";
    let before = Buckets::read(&place.metrics().await?, own, "console");
    let work = Work::Open { count: SET_UPS };
    let mut client = Talker::client(&place.server("console"), work).await?;
    let report = client.work().await?;
    client.end().await?;
    let after = Buckets::read(&place.metrics().await?, own, "console");
    Ok(SetUp {
        own: after.median_since(&before)?,
        total: percentile(&seconds(&report)?, 0.5),
    })
}

/// Cumulative buckets of a histogram: bound and count.
struct Buckets(Vec<(f64, f64)>);

impl Buckets {
    fn read(metrics: &str, name: &str, mode: &str) -> Self {
        let prefix = format!("{name}_bucket{{");
        let mode = format!("mode=\"{mode}\"");
        let lines = metrics.lines().filter_map(|line| {
            let (labels, count) = line.strip_prefix(&prefix)?.split_once("} ")?;
            let bound = labels.split("le=\"").nth(1)?.split('"').next()?;
            let bound = if bound == "+Inf" {
                f64::INFINITY
            } else {
                bound.parse().ok()?
            };
            labels
                .contains(&mode)
                .then_some((bound, count.parse().ok()?))
        });
        Self(lines.collect())
    }

    /// The upper bound of the bucket in which the median is: never less than what it is.
    fn median_since(&self, before: &Self) -> Result<f64> {
        let since = |(at, (bound, count)): (usize, &(f64, f64))| {
            let earlier = before.0.get(at).map_or(0.0, |(_, count)| *count);
            (*bound, count - earlier)
        };
        let all: Vec<(f64, f64)> = self.0.iter().enumerate().map(since).collect();
        let total = all.last().map_or(0.0, |(_, count)| *count);
        ensure!(total > 0.0, "the server counted no set-ups");
        let middle = all.iter().find(|(_, count)| *count >= total / 2.0);
        middle
            .map(|(bound, _)| *bound)
            .context("a histogram without buckets")
    }
}

/// Transfers of one size of messages, both ways; relays take turns.
async fn transfers(place: &mut Place, rounds: usize, size: u32, bytes: u64) -> Result<[Cost; 2]> {
    let (server, peer) = (place.server("console"), place.peer("console"));
    let pids = (place.server_pid(), place.peer_pid()?);
    let works = [Work::Up { size, bytes }, Work::Down { size, bytes }];
    let mut samples = works.map(|_| (Vec::new(), Vec::new(), Vec::new(), Vec::new()));
    for round in 1..=rounds {
        note(&format!(
            "messages of {size} bytes, round {round} of {rounds}: {} MiB each way through each relay",
            bytes >> 20
        ));
        for (work, sample) in works.iter().zip(&mut samples) {
            let (cost, rate) = transfer(&server, pids.0, *work, bytes).await?;
            sample.0.push(cost);
            sample.1.push(rate);
            let (cost, rate) = transfer(&peer, pids.1, *work, bytes).await?;
            sample.2.push(cost);
            sample.3.push(rate);
        }
        place.check()?;
    }
    let [up, down] = samples.map(|(ours, our_rate, theirs, their_rate)| {
        let each = (median(&ours), median(&theirs));
        (each, (median(&our_rate), median(&their_rate)))
    });
    let cost = |up: bool, (cost, rate)| Cost {
        size,
        up,
        cost,
        rate,
    };
    Ok([cost(true, up), cost(false, down)])
}

/// Core-seconds per GiB of this process, and MiB per second, for one transfer.
async fn transfer(target: &Target, pid: u32, work: Work, bytes: u64) -> Result<(f64, f64)> {
    let mut client = Talker::client(target, work).await?;
    let before = core_seconds(pid)?;
    let report = client.work().await?;
    let used = core_seconds(pid)? - before;
    client.end().await?;
    let took = report["seconds"].as_f64();
    let took = took.context("a report without seconds")?;
    let mib = bytes as f64 / (1u64 << 20) as f64;
    Ok((used * GIB / bytes as f64, mib / took))
}
