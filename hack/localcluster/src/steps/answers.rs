//! The cluster that exists answers.

use anyhow::Context as _;
use async_trait::async_trait;

use super::{Context, Found, Step};

pub(super) struct Answers;

#[async_trait]
impl Step for Answers {
    fn name(&self) -> &'static str {
        "asking the cluster"
    }

    async fn look(&self, context: &Context) -> anyhow::Result<Found> {
        let version = context.client().await?.apiserver_version().await;
        let version =
            version.with_context(|| format!("no answer by {}", context.kubeconfig().display()))?;
        eprintln!("The cluster is Kubernetes {}.", version.git_version);
        Ok(Found::Done)
    }

    async fn run(&self, _: &Context) -> anyhow::Result<()> {
        Ok(())
    }
}
