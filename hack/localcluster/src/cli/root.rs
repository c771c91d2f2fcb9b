//! The subcommands that this program runs through sudo. People do not call them, so help does not show them.

use std::path::PathBuf;

use clap::Subcommand;
use localcluster::assets::Places;
use localcluster::root::{self, Keep};
use localcluster::state::State;

#[derive(Debug, Subcommand)]
pub(crate) enum RootCommand {
    /// Brings up the node and the control plane
    #[command(hide = true)]
    RootUp {
        /// The cache of programs
        #[arg(long)]
        cache: PathBuf,
        /// Programs that come before those of the cache
        #[arg(long)]
        assets: Option<PathBuf>,
        /// The state directory
        #[arg(long = "in")]
        state_dir: PathBuf,
    },
    /// Ends them and removes what they kept
    #[command(hide = true)]
    RootDown {
        /// The state directory
        #[arg(long = "in")]
        state_dir: PathBuf,
        /// Leave the logs
        #[arg(long)]
        keep_logs: bool,
    },
}

impl RootCommand {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        match self {
            Self::RootUp {
                cache,
                assets,
                state_dir,
            } => {
                let program = std::env::current_exe()?;
                root::up(&State::at(state_dir), &Places::at(assets, cache), program).await?;
            }
            Self::RootDown {
                state_dir,
                keep_logs,
            } => {
                let keep = if keep_logs { Keep::Logs } else { Keep::Nothing };
                root::down(&State::at(state_dir), keep)?;
            }
        }
        Ok(())
    }
}
