//! The subcommands of `localcluster` that run inside the node. People do not call them, so help does not show them.

use std::ffi::OsString;

use super::init::{self, InitArgs};
use super::{NodeError, sysctl};

/// What runs inside.
#[derive(Clone, Debug, PartialEq, Eq, clap::Subcommand)]
pub enum NodeCommand {
    /// The node's pid 1
    #[command(hide = true, name = init::SUBCOMMAND)]
    Init(InitArgs),
    /// Becomes the kubelet, with private files over the machine's settings
    #[command(hide = true, name = sysctl::SUBCOMMAND)]
    Kubelet {
        /// The kubelet
        program: OsString,
        /// Its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
}

impl NodeCommand {
    /// Runs it; pid 1 returns when it is told to end, the kubelet replaces this process.
    ///
    /// # Errors
    /// When the kernel refuses what they set up.
    pub async fn run(self) -> Result<(), NodeError> {
        match self {
            Self::Init(args) => init::run(args).await,
            Self::Kubelet { program, args } => match sysctl::exec(&program, &args)? {},
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(subcommand)]
        command: NodeCommand,
    }

    #[test]
    fn the_kubelets_flags_are_not_ours() {
        let words = [
            "localcluster",
            "node-kubelet",
            "--",
            "/b/kubelet",
            "--config=/c",
            "-v",
            "2",
        ];
        let want = NodeCommand::Kubelet {
            program: "/b/kubelet".into(),
            args: ["--config=/c", "-v", "2"].map(OsString::from).to_vec(),
        };
        assert_eq!(Cli::parse_from(words).command, want);
    }

    #[test]
    fn pid_one_understands_what_it_is_started_with() {
        let start = super::super::namespaces::Start {
            localcluster: "/b/localcluster".as_ref(),
            state: "/s".as_ref(),
            hostname: "node",
            keep: vec!["/k".into(), "/l".into()],
            bind: vec![("/f".into(), "/t")],
        };
        let words = start.command().words();
        let ours = words.iter().position(|word| word == "--").unwrap() + 1;
        let want = NodeCommand::Init(InitArgs {
            state: "/s".into(),
            hostname: "node".into(),
            keep: vec!["/k".into(), "/l".into()],
            bind: vec![("/f".into(), "/t".into())],
        });
        assert_eq!(Cli::parse_from(&words[ours..]).command, want);
    }
}
