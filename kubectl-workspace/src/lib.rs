//! The kubectl plugin: console, start and stop of workspaces.
//!
//! [`cli`] is the command line, [`cluster`] turns kubectl's flags into a client. A console is opened by [`upgrade`] and
//! run by [`relay`] between a [`terminal`] and the stream, whose bytes [`channel`] and [`escape`] understand; [`close`]
//! says what its end means. Entry point: [`run`].

pub mod channel;
pub mod cli;
pub mod close;
pub mod cluster;
pub mod console;
pub mod escape;
pub mod power;
pub mod relay;
pub mod target;
pub mod terminal;
pub mod upgrade;

use clap::CommandFactory;

use crate::cli::{Cli, Command};
use crate::cluster::Cluster;
use crate::power::Power;

/// Does what the command line says, and answers with the exit code.
pub async fn run(cli: Cli) -> anyhow::Result<u8> {
    let Cli {
        cluster: flags,
        command,
    } = cli;
    match command {
        Command::Console(options) => {
            console::console(&Cluster::connect(&flags).await?, options).await
        }
        Command::Start(options) => {
            power::power(&Cluster::connect(&flags).await?, options, Power::On).await
        }
        Command::Stop(options) => {
            power::power(&Cluster::connect(&flags).await?, options, Power::Off).await
        }
        Command::Completion { shell } => {
            clap_complete::generate(
                shell,
                &mut Cli::command(),
                "kubectl-workspace",
                &mut std::io::stdout(),
            );
            Ok(0)
        }
    }
}
