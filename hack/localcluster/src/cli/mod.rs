//! The subcommands.

mod bench;
mod edges;
mod env;
mod installed;
mod root;
mod status;
mod suites;
mod test;
mod up;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use localcluster::assets::Places;
use localcluster::harness::STATE_VARIABLE;
use localcluster::node::NodeCommand;
use localcluster::state::State;
use localcluster::{Assets, Binary};

/// A whole single-node Kubernetes on this machine, without a container engine
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Cli {
    /// Where the cluster keeps its things [default: .state at the top of the checkout]
    #[arg(long, env = STATE_VARIABLE, value_name = "DIR")]
    state: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Brings up the cluster with our server in it (hack/up)
    Up(up::UpArgs),
    /// Ends the cluster and removes what it kept (hack/down)
    Down(up::DownArgs),
    /// Says what runs, where its logs are, and what to type next (hack/status)
    Status,
    /// Prints exports for KUBECONFIG and PATH, for eval (hack/env)
    Env,
    /// Runs tests (hack/test)
    Test(test::TestArgs),
    /// Runs a benchmark (hack/bench)
    Bench(bench::BenchArgs),
    /// Builds the programs of the cluster into the cache, and prints where each is
    Assets {
        /// The older kubectl for compatibility tests too
        #[arg(long)]
        old_kubectl: bool,
    },
    /// Checks which crates use which (hack/lib/check-edges)
    CheckEdges,
    /// Prints a completion script for a shell
    Completion {
        /// Which
        shell: clap_complete::Shell,
    },
    #[command(flatten)]
    Root(root::RootCommand),
    #[command(flatten)]
    Node(NodeCommand),
}

impl Cli {
    pub(crate) async fn run(self) -> anyhow::Result<ExitCode> {
        let Self { state, command } = self;
        // Absolute: parts of this run elsewhere.
        let state = match state {
            Some(dir) => State::at(std::path::absolute(dir)?),
            None => State::of_checkout(&top()),
        };
        match command {
            Command::Up(args) => args.run(state).await?,
            Command::Down(args) => args.run(&state).await?,
            Command::Status => return status::run(&state).await,
            Command::Env => env::run(&state)?,
            Command::Test(args) => return args.run(&state).await,
            Command::Bench(args) => return args.run(&state),
            Command::Assets { old_kubectl } => assets(old_kubectl)?,
            Command::Completion { shell } => {
                // Into memory first: the crate panics when nobody reads.
                let mut script = Vec::new();
                clap_complete::generate(shell, &mut Self::command(), "localcluster", &mut script);
                std::io::stdout().write_all(&script)?;
            }
            Command::CheckEdges => return edges::run(),
            Command::Root(command) => command.run().await?,
            Command::Node(command) => command.run().await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The top of the checkout that this program was compiled in.
fn top() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.ancestors().nth(2).unwrap_or(manifest).to_owned()
}

fn assets(old_kubectl: bool) -> anyhow::Result<()> {
    let old = old_kubectl.then_some(Binary::OldKubectl);
    let wanted: Vec<Binary> = Binary::CLUSTER.into_iter().chain(old).collect();
    let assets = Assets::ensure(&wanted, &Places::from_env()?)?;
    for binary in wanted {
        println!("{}", assets.path(binary)?.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_top_holds_the_workspace() {
        assert!(top().join("Cargo.lock").is_file());
    }
}
