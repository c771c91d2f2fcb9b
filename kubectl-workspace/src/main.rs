//! `kubectl workspace`: see the library for what it does.

use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use kubectl_workspace::cli::Cli;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match start(cli) {
        Ok(code) => ExitCode::from(code),
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(cli: Cli) -> anyhow::Result<u8> {
    // the one provider of the build; a second installation is refused and harmless
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Runtime::new().context("cannot start")?;
    let result = runtime.block_on(kubectl_workspace::run(cli));
    // a read of standard input cannot be cancelled, and is not waited for
    runtime.shutdown_background();
    result
}
