//! `localcluster`: what `hack/up` and its sisters call, and what runs inside the node.

use std::process::ExitCode;

use clap::Parser;
use localcluster::node::NodeCommand;

/// A whole single-node Kubernetes on this machine
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    #[command(flatten)]
    Node(NodeCommand),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Cli {
        command: Command::Node(command),
    } = Cli::parse();
    match command.run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("localcluster: {error}");
            ExitCode::FAILURE
        }
    }
}
