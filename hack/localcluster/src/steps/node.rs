//! The node and the control plane run.

use async_trait::async_trait;

use super::{Context, Found, Step};
use crate::node::PROGRAMS;
use crate::proc::{Ledger, Record};
use crate::root::{CONTROL_PLANE, elevate};
use crate::{harness, state::State};

pub(super) struct Node;

#[async_trait]
impl Step for Node {
    fn name(&self) -> &'static str {
        "starting the node and the control plane"
    }

    async fn look(&self, context: &Context) -> anyhow::Result<Found> {
        let running = all_run(&context.state)?
            && harness::Cluster::attach_to(context.state.clone())
                .await
                .is_ok();
        Ok(if running { Found::Done } else { Found::ToDo })
    }

    async fn run(&self, context: &Context) -> anyhow::Result<()> {
        let args = context.root_command("root-up");
        let what = "starting the node and the control plane";
        Ok(tokio::task::spawn_blocking(move || elevate(what, &args)).await??)
    }
}

/// Whether all programs of the node and the control plane run.
pub(super) fn all_run(state: &State) -> anyhow::Result<bool> {
    let records = Ledger::in_dir(state.run()).all()?;
    let runs = |name: &&str| {
        records
            .iter()
            .any(|r| r.name == *name && Record::is_alive(r))
    };
    Ok(PROGRAMS.iter().chain(&CONTROL_PLANE).all(runs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_runs_in_a_new_state_directory() {
        let temp = tempfile::tempdir().unwrap();
        assert!(!all_run(&State::at(temp.path())).unwrap());
    }
}
