//! sudo has been asked for the password that it may want: at the beginning, while somebody is there to type it, and not
//! after all has been compiled.

use anyhow::Context as _;
use async_trait::async_trait;

use super::node::all_run;
use super::{Context, Found, Step};
use crate::checks::sudo_asks_nothing;

pub(super) struct Rights;

#[async_trait]
impl Step for Rights {
    fn name(&self) -> &'static str {
        "asking sudo for the node part, which comes later"
    }

    /// Root needs none, and neither does a second run.
    async fn look(&self, context: &Context) -> anyhow::Result<Found> {
        let root = rustix::process::geteuid().is_root();
        let done = root || all_run(&context.state)? || sudo_asks_nothing();
        Ok(if done { Found::Done } else { Found::ToDo })
    }

    async fn run(&self, _: &Context) -> anyhow::Result<()> {
        let mut sudo = tokio::process::Command::new("sudo");
        let status = sudo.args(["--", "true"]).status().await;
        let status = status.context("cannot run sudo")?;
        anyhow::ensure!(
            status.success(),
            "sudo does not let this user through ({status}): its reason stands above"
        );
        Ok(())
    }
}
