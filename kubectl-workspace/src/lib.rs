//! The kubectl plugin: consoles, displays, logins, ports, files, and what workspaces do.
//!
//! [`cli`] is the command line, [`mod@cluster`] turns kubectl's flags into requests. [`upgrade`] opens a stream: a
//! [`mod@console`] is run by [`relay`] between a [`terminal`] and the stream, whose bytes [`channel`] and [`escape`]
//! understand; everything else is a [`tunnel`] for [`mod@forward`], [`mod@vnc`] and, by way of OpenSSH, [`mod@ssh`].
//! [`close`] says what the end of a stream means, [`signals`] and [`say`] how a command ends and speaks.
//! Entry points: [`run`], [`complete`].

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod actions;
pub mod channel;
pub mod cli;
pub mod close;
pub mod cluster;
pub mod complete;
pub mod console;
pub mod escape;
pub mod forward;
pub mod list;
pub mod relay;
pub mod say;
pub mod sessions;
pub mod signals;
pub mod ssh;
pub mod table;
pub mod target;
pub mod terminal;
pub mod tunnel;
pub mod upgrade;
pub mod userdata;
pub mod vnc;
pub mod which;

use crate::actions::Action;
use crate::cli::{Cli, ClusterFlags, Command};
use crate::cluster::Cluster;
use crate::signals::{Manners, until_signal};

/// Does what the command line says, and answers with the exit code.
pub async fn run(cli: Cli) -> anyhow::Result<u8> {
    let Cli {
        cluster: flags,
        command,
    } = cli;
    until_signal(manners(&command), execute(&flags, command)).await
}

fn manners(command: &Command) -> Manners {
    match command {
        Command::Ssh(options) if options.stdio => Manners::Quiet,
        Command::PortForward(options) if options.stdio => Manners::Quiet,
        Command::PortForward(_) => Manners::UntilInterrupted,
        Command::Vnc(options) if options.proxy_only => Manners::UntilInterrupted,
        _ => Manners::Work,
    }
}

async fn execute(flags: &ClusterFlags, command: Command) -> anyhow::Result<u8> {
    let cluster = || Cluster::connect(flags);
    let action = |options, action| async move { actions::act(&cluster()?, options, action).await };
    match command {
        Command::List(options) => list::list(&cluster()?, options).await,
        Command::Console(options) => console::console(&cluster()?, options).await,
        Command::Vnc(options) => vnc::vnc(&cluster()?, options).await,
        Command::Ssh(options) => ssh::ssh(flags, *options).await,
        Command::SshConfig(options) => ssh::ssh_config(flags, options).await,
        Command::KnownHosts(options) => ssh::print_known_hosts(flags, options).await,
        Command::Cp(options) => ssh::cp(flags, options).await,
        Command::PortForward(options) => forward::port_forward(&cluster()?, options).await,
        Command::Start(options) if options.console => console::boot(&cluster()?, options).await,
        Command::Start(options) => {
            let paused = options.paused;
            action(options.action, Action::Start { paused }).await
        }
        Command::Stop(options) => action(options, Action::Stop).await,
        Command::Reboot(options) => {
            let force = options.force;
            action(options.action, Action::Reboot { force }).await
        }
        Command::Reset(options) => action(options, Action::Reset).await,
        Command::UserData(options) => userdata::userdata(&cluster()?, options).await,
        Command::Sessions(options) => sessions::sessions(&cluster()?, options).await,
        Command::Completion { shell } => {
            say::bytes(complete::script(shell).as_bytes())?;
            Ok(0)
        }
    }
}
