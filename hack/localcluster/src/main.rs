//! `localcluster`: what `hack/up` and its sisters call, and what runs inside the node.

mod cli;

use std::process::ExitCode;

use clap::Parser as _;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match cli::Cli::parse().run().await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("localcluster: {error:#}");
            ExitCode::FAILURE
        }
    }
}
