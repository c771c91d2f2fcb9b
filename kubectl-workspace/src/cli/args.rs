//! The arguments of each command.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::time;
use crate::forward::Ports;
use crate::target::{Login, Typed};

/// `list`.
#[derive(Clone, Debug, Args)]
pub struct List {
    /// Of all namespaces
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// Label selector, as kubectl has it
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<String>,
    /// More columns, the objects, or their names
    #[arg(short, long, value_enum)]
    pub output: Option<Output>,
}

/// How a list is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// All columns
    Wide,
    /// Names only
    Name,
    /// The API's answer
    Json,
}

/// `console`.
#[derive(Clone, Debug, Args)]
pub struct Console {
    /// NAME or NAME/NAMESPACE
    pub workspace: Typed,
    /// How long to wait for a workspace that is starting (5m), or a guest that does not answer yet (2m)
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub timeout: Option<Duration>,
    /// End the session of whoever holds the console
    #[arg(long)]
    pub takeover: bool,
    /// Type `stty rows … cols …` for this terminal's size, which a serial line cannot carry; use it
    /// when a shell waits at its prompt
    #[arg(long)]
    pub stty: bool,
}

/// `vnc`.
#[derive(Clone, Debug, Args)]
pub struct Vnc {
    /// NAME or NAME/NAMESPACE
    pub workspace: Typed,
    /// Print the address and let any viewer connect, one after the other, until Ctrl-C
    #[arg(long, conflicts_with_all = ["viewer", "screenshot"])]
    pub proxy_only: bool,
    /// The viewer to start, by name or path
    #[arg(long, value_name = "PROGRAM", conflicts_with = "screenshot")]
    pub viewer: Option<PathBuf>,
    /// Local port for the viewer; 0 is any
    #[arg(long, default_value_t = 0, conflicts_with = "screenshot")]
    pub port: u16,
    /// Local address for the viewer
    #[arg(
        long,
        default_value = "127.0.0.1",
        value_name = "IP",
        conflicts_with = "screenshot"
    )]
    pub address: std::net::IpAddr,
    /// Write a PNG of the display and end; - is standard output. Disturbs nobody
    #[arg(long, value_name = "FILE")]
    pub screenshot: Option<PathBuf>,
    /// End the session of whoever holds the display
    #[arg(long, conflicts_with = "screenshot")]
    pub takeover: bool,
    /// How long to wait for a workspace that is starting (5m), or a guest that does not answer yet (2m)
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub timeout: Option<Duration>,
}

/// What `ssh` and `cp` hand on to OpenSSH.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Options of ssh, handed on as they are")]
pub struct Shared {
    /// Identity file
    #[arg(short, value_name = "FILE")]
    pub identity: Vec<PathBuf>,
    /// Option of ssh_config, as KEY=VALUE
    #[arg(short = 'o', value_name = "OPTION")]
    pub option: Vec<String>,
    /// Say what happens; repeat for more
    #[arg(short, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// `ssh`.
#[derive(Clone, Debug, Args)]
pub struct Ssh {
    /// NAME or NAME/NAMESPACE, with USER@ before it if you like
    pub workspace: Login,
    /// The command to run; without one, a shell. With --stdio: the port
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    pub command: Vec<String>,
    /// Carry the bytes between standard input and output and the guest's sshd: for ProxyCommand
    #[arg(long)]
    pub stdio: bool,
    /// Accept the guest's new host key in place of the pinned one; needs update on workspaces
    #[arg(long)]
    pub accept_new_host_key: bool,
    /// How long to wait for a workspace that is starting (5m), or a guest that does not answer yet (2m)
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub timeout: Option<Duration>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub shared: Shared,
    /// User to log in as [default: the one in the workspace's status]
    #[arg(short, value_name = "USER", help_heading = OF_SSH)]
    pub login: Option<String>,
    /// Port of the sshd in the guest
    #[arg(short, value_name = "PORT", help_heading = OF_SSH)]
    pub port: Option<u16>,
    /// Forward a local port through the guest
    #[arg(short = 'L', value_name = "FORWARD", help_heading = OF_SSH)]
    pub local: Vec<String>,
    /// Forward a port of the guest to here
    #[arg(short = 'R', value_name = "FORWARD", help_heading = OF_SSH)]
    pub remote: Vec<String>,
    /// SOCKS proxy through the guest
    #[arg(short = 'D', value_name = "FORWARD", help_heading = OF_SSH)]
    pub dynamic: Vec<String>,
    /// Reach the guest's address over this host in place of the Kubernetes API
    #[arg(short = 'J', value_name = "HOST", help_heading = OF_SSH)]
    pub jump: Option<String>,
    /// Forward the agent
    #[arg(short = 'A', help_heading = OF_SSH)]
    pub agent: bool,
    /// No command, for forwards only
    #[arg(short = 'N', help_heading = OF_SSH)]
    pub no_command: bool,
    /// Terminal for a command; twice even without one here
    #[arg(short, action = clap::ArgAction::Count, help_heading = OF_SSH)]
    pub terminal: u8,
    /// No terminal
    #[arg(short = 'T', conflicts_with = "terminal", help_heading = OF_SSH)]
    pub no_terminal: bool,
}

const OF_SSH: &str = "Options of ssh, handed on as they are";

/// `ssh-config` and `known-hosts`.
#[derive(Clone, Debug, Args)]
pub struct SshConfig {
    /// NAME or NAME/NAMESPACE, with USER@ before it if you like
    pub workspace: Login,
}

/// `cp`.
#[derive(Clone, Debug, Args)]
pub struct Cp {
    /// Files here, or [USER@]NAME[/NAMESPACE]:PATH; the last one is where they go
    #[arg(required = true, num_args = 2.., value_name = "FILE")]
    pub files: Vec<String>,
    /// Directories too
    #[arg(short)]
    pub recursive: bool,
    /// Keep times and modes
    #[arg(short)]
    pub preserve: bool,
    /// No progress
    #[arg(short)]
    pub quiet: bool,
    /// The old scp protocol, for guests without an SFTP server
    #[arg(short = 'O')]
    pub old_protocol: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub shared: Shared,
}

/// `port-forward`.
#[derive(Clone, Debug, Args)]
pub struct PortForward {
    /// NAME or NAME/NAMESPACE
    pub workspace: Typed,
    /// [LOCAL:]PORT, repeated; :PORT takes any local port
    #[arg(required = true, value_name = "PORT")]
    pub ports: Vec<Ports>,
    /// Local addresses to listen on, separated by commas: IPs, or localhost for 127.0.0.1 and ::1
    #[arg(
        long,
        default_value = "localhost",
        value_delimiter = ',',
        value_name = "IP"
    )]
    pub address: Vec<String>,
    /// Carry the bytes of one connection between standard input and output: for ProxyCommand
    #[arg(long)]
    pub stdio: bool,
}

/// `stop` and `reset`, and what `start` and `reboot` have in common with them.
#[derive(Clone, Debug, Args)]
pub struct Action {
    /// NAME or NAME/NAMESPACE
    pub workspace: Typed,
    /// Wait until it is done, and say what happens meanwhile
    #[arg(long)]
    pub wait: bool,
    /// How long to wait
    #[arg(long, default_value = "5m", value_name = "TIME", value_parser = time::parse)]
    pub timeout: Duration,
    /// Ask the server whether it would do it, and change nothing
    #[arg(long, conflicts_with = "wait")]
    pub dry_run: bool,
}

/// `start`.
#[derive(Clone, Debug, Args)]
pub struct Start {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub action: Action,
    /// Stop a machine before its first instruction, until it is started once more
    #[arg(long, conflicts_with = "console")]
    pub paused: bool,
    /// Open the console of a machine before its first instruction, so that nothing of what it says
    /// at boot is missed
    #[arg(long, conflicts_with_all = ["wait", "dry_run"])]
    pub console: bool,
}

/// `reboot`.
#[derive(Clone, Debug, Args)]
pub struct Reboot {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub action: Action,
    /// Reset the machine as a button would, without asking its guest
    #[arg(long)]
    pub force: bool,
}

/// `userdata`.
#[derive(Clone, Debug, Args)]
pub struct UserData {
    /// NAME or NAME/NAMESPACE
    pub workspace: Typed,
}

/// `sessions`.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Sessions {
    /// kill: end sessions
    #[command(subcommand)]
    pub command: Option<SessionsCommand>,
    /// NAME or NAME/NAMESPACE of a workspace [default: all of the namespace]
    pub workspace: Option<Typed>,
    /// Of all namespaces
    #[arg(short = 'A', long, conflicts_with = "workspace")]
    pub all_namespaces: bool,
    /// More columns, the objects, or their names
    #[arg(short, long, value_enum)]
    pub output: Option<Output>,
}

/// What to do with sessions besides listing them.
#[derive(Clone, Debug, Subcommand)]
pub enum SessionsCommand {
    /// End sessions and wait until they have ended
    #[command(after_help = super::help::KILL)]
    Kill(Kill),
}

/// `sessions kill`.
#[derive(Clone, Debug, Args)]
pub struct Kill {
    /// Names of sessions, as `sessions` lists them
    #[arg(required_unless_present = "workspace", value_name = "SESSION")]
    pub sessions: Vec<String>,
    /// All sessions of this workspace
    #[arg(long, value_name = "NAME", conflicts_with = "sessions")]
    pub workspace: Option<Typed>,
    /// How long to wait
    #[arg(long, default_value = "1m", value_name = "TIME", value_parser = time::parse)]
    pub timeout: Duration,
}

/// `completion`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// GNU bash
    Bash,
    /// zsh
    Zsh,
    /// fish
    Fish,
}
