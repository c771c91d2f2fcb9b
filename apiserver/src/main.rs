//! `workspaces-apiserver`: the server's program.

use std::{alloc::System, io::IsTerminal as _, process::ExitCode};

use clap::Parser as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;
use workspaces_apiserver::{options::Options, run, streams::ssh::secret};
use zeroizing_alloc::ZeroAlloc;

/// Users' private keys pass through buffers of the TLS and HTTP layers, which do not wipe what they
/// free (docs/adr/0007-private-keys.md).
#[global_allocator]
static WIPING: ZeroAlloc<System> = ZeroAlloc(System);

fn main() -> ExitCode {
    let options = Options::parse();
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(options.generic.logging.filter()))
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    if let Err(error) = secret::forbid_dumps() {
        eprintln!("workspaces-apiserver: core dumps cannot be switched off: {error}");
        return ExitCode::FAILURE;
    }
    if rustls::crypto::ring::default_provider()
        .install_default()
        .is_err()
    {
        eprintln!("workspaces-apiserver: a crypto provider is installed already");
        return ExitCode::FAILURE;
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("workspaces-apiserver: cannot start threads: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(serve(options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("workspaces-apiserver: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(options: Options) -> Result<(), Box<dyn std::error::Error>> {
    let stop = CancellationToken::new();
    let (mut term, mut int) = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
    );
    let asked = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
        asked.cancel();
    });
    Ok(run(options, stop).await?)
}
