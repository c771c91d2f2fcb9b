//! `launcher`: pid 1 of a VM pod's container. What it does is in [`localvirt::launcher`].
//!
//! Exit codes: 0 the guest powered off, 1 the machine did not start, 2 QEMU died, 3 the grace period was over.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use localvirt::launcher::run::{Places, run};
use localvirt::launcher::spec::{CONFIG_DIR, RUN_DIR};
use tracing_subscriber::EnvFilter;

/// Runs one virtual machine and gives localvirt its console, display and buttons.
#[derive(Debug, Parser)]
struct Options {
    /// Directory with spec.json, tls.crt, tls.key and ca.crt.
    #[arg(long, default_value = CONFIG_DIR)]
    config: PathBuf,
    /// Directory for sockets and overlays; its path must be short.
    #[arg(long, default_value = RUN_DIR)]
    run: PathBuf,
    /// File for the one line that Kubernetes shows as the reason of the end.
    #[arg(long, default_value = "/dev/termination-log")]
    termination_message: PathBuf,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Options {
        config,
        run: run_dir,
        termination_message,
    } = Options::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    let (message, code) = match run(&Places {
        config,
        run: run_dir,
    })
    .await
    {
        Ok(outcome) => (outcome.message(), outcome.exit_code()),
        Err(e) => (format!("{:#}", anyhow::Error::from(e)), 1),
    };
    tracing::info!(code, "{message}");
    leave_message(&termination_message, &message);
    ExitCode::from(code)
}

/// Outside a pod there is no such file, and none is made.
fn leave_message(file: &Path, message: &str) {
    if file.exists()
        && let Err(e) = std::fs::write(file, message)
    {
        tracing::warn!(error = %e, "the termination message is lost");
    }
}
