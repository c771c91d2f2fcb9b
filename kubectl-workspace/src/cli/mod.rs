//! The command line. Flags that kubectl has are spelled and mean the same here. Entry point: [`Cli`].

mod args;
mod flags;
mod help;
mod time;

use clap::{Parser, Subcommand};

pub use args::{
    Action, Console, Cp, Kill, List, Output, PortForward, Reboot, Sessions, SessionsCommand,
    Shared, Shell, Ssh, SshConfig, Start, UserData, Vnc,
};
pub use flags::{ClusterFlags, TOKEN_VARIABLE};

/// Open, reach, start and stop workspaces.
#[derive(Debug, Parser)]
#[command(
    name = "kubectl-workspace",
    bin_name = "kubectl workspace",
    version,
    after_help = help::MAIN
)]
pub struct Cli {
    /// The flags of kubectl.
    #[command(flatten)]
    pub cluster: ClusterFlags,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List workspaces
    #[command(visible_alias = "ls", after_help = help::LIST)]
    List(List),
    /// Open the console: the serial line of a vm, a shell in a container
    #[command(after_help = help::CONSOLE)]
    Console(Console),
    /// Open the display, or take a picture of it
    #[command(after_help = help::VNC)]
    Vnc(Vnc),
    /// Log in with OpenSSH, through the Kubernetes API
    #[command(after_help = help::SSH)]
    Ssh(Box<Ssh>),
    /// Print a stanza for ~/.ssh/config
    #[command(after_help = help::SSH_CONFIG)]
    SshConfig(SshConfig),
    /// Print the guest's host keys as known_hosts lines
    #[command(after_help = help::KNOWN_HOSTS)]
    KnownHosts(SshConfig),
    /// Copy files from and to a workspace, with scp
    #[command(after_help = help::CP)]
    Cp(Cp),
    /// Forward local ports to a workspace
    #[command(after_help = help::PORT_FORWARD)]
    PortForward(PortForward),
    /// Start a stopped workspace
    #[command(after_help = help::START)]
    Start(Start),
    /// Stop a workspace; its disks stay
    #[command(after_help = help::STOP)]
    Stop(Action),
    /// Restart the guest; its disks stay
    #[command(after_help = help::REBOOT)]
    Reboot(Reboot),
    /// Give a machine a new root disk; all that is on the old one is lost
    #[command(after_help = help::RESET)]
    Reset(Action),
    /// Print a machine's cloud-init user-data
    #[command(name = "userdata", after_help = help::USER_DATA)]
    UserData(UserData),
    /// List open sessions, and end them
    #[command(after_help = help::SESSIONS)]
    Sessions(Sessions),
    /// Print a completion script
    #[command(after_help = help::COMPLETION)]
    Completion {
        /// For which shell
        shell: Shell,
    },
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parsed(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(std::iter::once("x").chain(line.split(' ')))
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn kubectls_flags_stand_before_and_after_the_command() {
        for line in [
            "-n t1 --as ann console demo",
            "console demo -n t1 --as=ann",
            "console -n=t1 demo --as ann",
        ] {
            let cli = parsed(line).unwrap();
            assert_eq!(cli.cluster.namespace.as_deref(), Some("t1"), "{line}");
            assert_eq!(cli.cluster.impersonate.as_deref(), Some("ann"), "{line}");
        }
    }

    #[test]
    fn options_of_ssh_end_where_the_command_begins() {
        let cases: [(&str, &[&str]); 5] = [
            ("ssh demo -n t1", &[]),
            ("ssh demo -n t1 -- ls -l", &["ls", "-l"]),
            ("ssh -n t1 demo ls -n x -- y", &["ls", "-n", "x", "--", "y"]),
            (
                "ssh -l ann demo -n t1 rsync --server -vlogDtpr . /x",
                &["rsync", "--server", "-vlogDtpr", ".", "/x"],
            ),
            ("ssh --stdio -n t1 demo 22", &["22"]),
        ];
        for (line, command) in cases {
            let cli = parsed(line).unwrap();
            assert_eq!(cli.cluster.namespace.as_deref(), Some("t1"), "{line}");
            let Command::Ssh(ssh) = cli.command else {
                panic!("{line}")
            };
            assert_eq!(ssh.command, command, "{line}");
        }
    }

    #[test]
    fn every_command_has_examples_and_says_its_exit_codes() {
        for command in Cli::command()
            .get_subcommands()
            .filter(|c| !c.is_hide_set())
        {
            let help = command.get_after_help().map(ToString::to_string);
            let help = help.unwrap_or_default();
            assert!(help.contains("Examples:"), "{}", command.get_name());
            assert!(help.contains("Exit codes:"), "{}", command.get_name());
        }
    }

    #[test]
    fn sessions_are_listed_or_ended() {
        for line in [
            "sessions",
            "sessions demo",
            "sessions demo/t1 -o wide",
            "sessions -A",
            "sessions kill demo.console",
            "sessions kill --workspace demo",
        ] {
            assert!(parsed(line).is_ok(), "{line}");
        }
        for line in [
            "sessions kill",
            "sessions kill a --workspace demo",
            "sessions demo -A",
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }
}
