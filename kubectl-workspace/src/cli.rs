//! The command line. Flags that kubectl has are spelled and mean the same here. Entry point: [`Cli`].

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::target::Typed;

/// Open, start and stop workspaces.
#[derive(Debug, Parser)]
#[command(name = "kubectl-workspace", bin_name = "kubectl workspace", version)]
pub struct Cli {
    /// The flags of kubectl.
    #[command(flatten)]
    pub cluster: ClusterFlags,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// kubectl's connection flags.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Flags of kubectl")]
pub struct ClusterFlags {
    /// Kubeconfig file; KUBECONFIG may name several
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
    /// Cluster of the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
    pub cluster: Option<String>,
    /// User of the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
    pub user: Option<String>,
    /// Namespace of the workspace
    #[arg(short, long, global = true, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Act as this user
    #[arg(long = "as", global = true, value_name = "USER")]
    pub impersonate: Option<String>,
    /// Act as a member of this group; repeat
    #[arg(long = "as-group", global = true, value_name = "GROUP")]
    pub impersonate_groups: Vec<String>,
    /// Act with this uid
    #[arg(long = "as-uid", global = true, value_name = "UID")]
    pub impersonate_uid: Option<String>,
    /// Bearer token
    #[arg(long, global = true, hide_env_values = true)]
    pub token: Option<String>,
    /// Address of the API server
    #[arg(short, long, global = true, value_name = "URL")]
    pub server: Option<String>,
    /// CA certificate file of the API server
    #[arg(long, global = true, value_name = "FILE")]
    pub certificate_authority: Option<PathBuf>,
    /// Do not verify the API server's certificate
    #[arg(long, global = true)]
    pub insecure_skip_tls_verify: bool,
    /// Name to verify in the API server's certificate
    #[arg(long, global = true, value_name = "NAME")]
    pub tls_server_name: Option<String>,
    /// Time for one request, as 30s or 2m; 0 is no limit. Streams have none
    #[arg(long, global = true, value_name = "TIME", value_parser = parse_time)]
    pub request_timeout: Option<Duration>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Open the console: the serial line of a vm, a shell in a container
    #[command(after_help = CONSOLE_HELP)]
    Console(Console),
    /// Start a stopped workspace
    #[command(
        after_help = "Examples:\n  kubectl workspace start demo\n  kubectl workspace start demo -n team-a --wait"
    )]
    Start(Power),
    /// Stop a workspace; its disks stay
    #[command(
        after_help = "Examples:\n  kubectl workspace stop demo\n  kubectl workspace stop demo/team-a --wait --timeout 2m"
    )]
    Stop(Power),
    /// Print a completion script
    #[command(
        after_help = "Examples:\n  source <(kubectl-workspace completion bash)\n  kubectl-workspace completion fish | source"
    )]
    Completion {
        /// For which shell
        shell: clap_complete::Shell,
    },
}

const CONSOLE_HELP: &str = "\
The session ends with Ctrl-]. Everything else, Ctrl-C too, goes to the workspace. In a pipe,
standard output has the workspace's bytes only. There a shell in a container has no terminal, as
with kubectl exec -i: it reads its commands to their end, and its errors come on standard error.
A serial line has no end of input: the reading stays open.

Exit codes: 0 the session ended in the ordinary way, 1 it did not or never began, 128 + N ended by
signal N; for a container the exit code of its shell.

Examples:
  kubectl workspace console demo
  kubectl workspace console demo -n team-a --timeout 10m
  kubectl workspace console demo --takeover
  kubectl workspace console demo | grep -m1 login
  kubectl workspace console box < script.sh > output";

/// `console`.
#[derive(Clone, Debug, Args)]
pub struct Console {
    /// NAME or NAME/NAMESPACE
    pub workspace: Typed,
    /// How long to wait for a workspace that is starting
    #[arg(long, default_value = "5m", value_name = "TIME", value_parser = parse_time)]
    pub timeout: Duration,
    /// End the session of whoever holds the console
    #[arg(long)]
    pub takeover: bool,
}

/// `start` and `stop`.
#[derive(Clone, Debug, Args)]
pub struct Power {
    /// NAME or NAME/NAMESPACE
    pub workspace: Typed,
    /// Wait until it is done
    #[arg(long)]
    pub wait: bool,
    /// How long to wait
    #[arg(long, default_value = "5m", value_name = "TIME", value_parser = parse_time)]
    pub timeout: Duration,
}

/// Go's durations, as far as people type them: `90`, `90s`, `1m30s`, `2h`, `500ms`.
fn parse_time(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a time such as 30s, 2m or 1h");
    if let Ok(seconds) = text.parse::<u64>() {
        return Ok(Duration::from_secs(seconds));
    }
    let (mut total, mut rest) = (Duration::ZERO, text);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let number: u32 = rest[..digits].parse().map_err(|_| wrong())?;
        let unit = rest[digits..]
            .find(|c: char| c.is_ascii_digit())
            .map_or(rest.len(), |end| digits + end);
        let one = match &rest[digits..unit] {
            "ms" => Duration::from_millis(1),
            "s" => Duration::from_secs(1),
            "m" => Duration::from_secs(60),
            "h" => Duration::from_secs(3600),
            _ => return Err(wrong()),
        };
        total += one * number;
        rest = &rest[unit..];
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

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
            let cli = Cli::try_parse_from(std::iter::once("x").chain(line.split(' '))).unwrap();
            assert_eq!(cli.cluster.namespace.as_deref(), Some("t1"), "{line}");
            assert_eq!(cli.cluster.impersonate.as_deref(), Some("ann"), "{line}");
        }
    }

    #[test]
    fn times_are_gos() {
        let cases = [
            ("90", 90_000),
            ("90s", 90_000),
            ("1m30s", 90_000),
            ("2h", 7_200_000),
            ("500ms", 500),
            ("0", 0),
        ];
        for (text, expected) in cases {
            assert_eq!(
                parse_time(text),
                Ok(Duration::from_millis(expected)),
                "{text}"
            );
        }
        for text in ["x", "1x", "s", "1m3", "-1s"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }
}
