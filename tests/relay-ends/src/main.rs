//! `relay-ends`: one end of the streams of `hack/bench relay`, which starts it.

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};
use relay_ends::{client, upstream};

/// One end of the streams of `hack/bench relay`, which starts it
#[derive(Debug, Parser)]
#[command(name = "relay-ends")]
struct Cli {
    #[command(subcommand)]
    end: End,
}

#[derive(Debug, Subcommand)]
enum End {
    /// A double of KubeVirt's streams, before a real kube-apiserver
    Upstream {
        /// File of the serving certificate
        #[arg(long)]
        cert: PathBuf,
        /// File of its key
        #[arg(long)]
        key: PathBuf,
        /// Where kube-apiserver is, without a user
        #[arg(long)]
        kubeconfig: PathBuf,
    },
    /// Clients
    Client {
        #[command(flatten)]
        target: client::Target,
        #[command(subcommand)]
        work: client::Work,
    },
}

/// One thread: the relay between two ends has the rest of the machine.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let done = match Cli::parse().end {
        End::Upstream {
            cert,
            key,
            kubeconfig,
        } => upstream::run(&cert, &key, &kubeconfig).await,
        End::Client { target, work } => client::run(&target, work).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("relay-ends: {error:#}");
            ExitCode::FAILURE
        }
    }
}
