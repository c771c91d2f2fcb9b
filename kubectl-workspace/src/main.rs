//! `kubectl workspace`: see the library for what it does.

#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use kubectl_workspace::cli::Cli;
use kubectl_workspace::complete::{self, COMPLETE, COMPLETER};
use kubectl_workspace::say;

/// Nobody reads our output: as a program that a SIGPIPE ends.
const BROKEN_PIPE: u8 = 141;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args_os()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let result = match completion(&words) {
        Some(words) => block_on(async {
            complete::answer(words).await?;
            Ok(0)
        }),
        None => block_on(kubectl_workspace::run(Cli::parse())),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(e) if say::is_broken_pipe(&e) => ExitCode::from(BROKEN_PIPE),
        Err(e) => {
            say::note(&format!("error: {e:#}"));
            ExitCode::FAILURE
        }
    }
}

/// The words to complete, when kubectl or a shell asks for that.
fn completion(words: &[String]) -> Option<&[String]> {
    let (program, words) = words.split_first()?;
    let name = Path::new(program).file_name()?;
    match words.split_first() {
        _ if name == COMPLETER => Some(words),
        Some((first, words)) if first == COMPLETE => Some(words),
        _ => None,
    }
}

fn block_on(work: impl Future<Output = anyhow::Result<u8>>) -> anyhow::Result<u8> {
    // the one provider of the build; a second installation is refused and harmless
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Runtime::new().context("cannot start")?;
    let result = runtime.block_on(work);
    // a read of standard input cannot be cancelled, and is not waited for
    runtime.shutdown_background();
    result
}
