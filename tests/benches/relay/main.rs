//! `hack/bench relay`: what a relayed stream costs, beside KubeVirt-like Go code that does the same work.
//!
//! Every process is real and one of its own: the server (release) before a control plane of its own, the peer
//! (`tests/relay-peer`), a client, and an upstream that ends the streams of both (`tests/relay-ends`). That upstream is a double of KubeVirt's
//! subresources, and lets all other requests of the server through to kube-apiserver. Traffic goes straight to the ports
//! of server and peer over loopback. Entry point: [`measure::run`].

mod figures;
mod measure;
mod place;
mod process;

use std::process::ExitCode;

use clap::{Parser, ValueEnum};

/// Streams held at once by `--long`: with both ends of each in one process, 20,000 files are enough.
const MANY: usize = 9_000;

/// What a stream through the server costs, beside a Go relay on gorilla/websocket that does the same work.
#[derive(Debug, Parser)]
#[command(
    name = "hack/bench relay --",
    max_term_width = 110,
    after_help = "\
Figures:
  core-seconds per GiB   processor time (user and system) of the relay's process alone, for messages of 32 KiB, 4 KiB
                         and 256 B, both directions; the median of the rounds. Every byte is compared at its end
  bytes per idle stream  resident memory with the streams open, a minute after the last byte, minus that without any,
                         per stream
  keystroke              a byte there and back on a server that does nothing else, minus the same without a relay
  set-up                 from a request's head to its 101 without the waits for claim, reviews and upstream, by the
                         server's own metrics; and the same with them

The last line is JSON; its `ratios` are ours over the peer's, so below 1 is less than the peer."
)]
struct Cli {
    /// Rounds of each transfer; relays take turns
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=50))]
    rounds: u32,

    /// Streams that are held open and idle
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(10..=9_000))]
    streams: u32,

    /// Hold 9,000 streams (needs a hard limit of 20,000 open files)
    #[arg(long, conflicts_with = "streams")]
    long: bool,

    /// Measure only this; may be repeated
    #[arg(long, value_enum)]
    only: Vec<Part>,

    /// What `cargo bench` says to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

/// A part of the measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Memory of streams on which nothing passes.
    Idle,
    /// Keystrokes and set-ups.
    Latency,
    /// Core-seconds per GiB.
    Throughput,
}

impl Cli {
    fn plan(&self) -> measure::Plan {
        let wants = |part| self.only.is_empty() || self.only.contains(&part);
        measure::Plan {
            rounds: self.rounds as usize,
            streams: match self.long {
                true => MANY,
                false => self.streams as usize,
            },
            idle: wants(Part::Idle),
            latency: wants(Part::Latency),
            throughput: wants(Part::Throughput),
        }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    match measure::run(&Cli::parse().plan()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("relay: {error:#}");
            ExitCode::FAILURE
        }
    }
}
