//! `localvirt`: a stand-in for KubeVirt. What it does is in the library.

use anyhow::Result;
use clap::Parser as _;
use localvirt::{limits, options::Options, run::Localvirt};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::info;
use tracing_subscriber::EnvFilter;

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    limits::raise_files();
    let localvirt = Localvirt::start(&options).await?;
    info!(address = %localvirt.address()?, "this is localvirt, a stand-in for KubeVirt");
    let shutdown = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let stop = shutdown.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stop.cancel();
    });
    localvirt.run(shutdown).await;
    Ok(())
}
