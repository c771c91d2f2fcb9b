//! The subcommands that this program runs through sudo. People do not call them, so help does not show them.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use localcluster::assets::Places;
use localcluster::root::{self, Keep};
use localcluster::state::State;

/// What the part that needs root cannot find out by itself: its environment is sudo's.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// The cache of programs
    #[arg(long)]
    cache: PathBuf,
    /// Programs that come before those of the cache
    #[arg(long)]
    assets: Option<PathBuf>,
    /// The state directory
    #[arg(long = "in")]
    state_dir: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RootCommand {
    /// Brings up the node and the control plane
    #[command(hide = true, name = "root-up")]
    Up {
        #[command(flatten)]
        common: Common,
    },
    /// Imports images into the node
    #[command(hide = true, name = "root-import")]
    Import {
        #[command(flatten)]
        common: Common,
        /// OCI archives
        #[arg(required = true)]
        archives: Vec<PathBuf>,
    },
    /// Ends them and removes what they kept
    #[command(hide = true, name = "root-down")]
    Down {
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
            Self::Up { common } => {
                let (state, places) = common.resolve();
                root::up(&state, &places, std::env::current_exe()?).await?;
            }
            Self::Import { common, archives } => {
                let (state, places) = common.resolve();
                root::import(&state, &places, std::env::current_exe()?, &archives)?;
            }
            Self::Down {
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

impl Common {
    fn resolve(self) -> (State, Places) {
        let Self {
            cache,
            assets,
            state_dir,
        } = self;
        (State::at(state_dir), Places::at(assets, cache))
    }
}
