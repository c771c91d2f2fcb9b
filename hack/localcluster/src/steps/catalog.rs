//! The samples' images are in the catalog, so that a sample is one command.

use async_trait::async_trait;

use super::kubectl::kubectl;
use super::{Context, Found, Step};

/// The catalog's entries.
const IMAGES: &str = "deploy/samples/image-tiny.yaml";

pub(super) struct Catalog;

#[async_trait]
impl Step for Catalog {
    fn name(&self) -> &'static str {
        "filling the catalog"
    }

    /// kubectl compares, and changes nothing that is so already.
    async fn look(&self, _: &Context) -> anyhow::Result<Found> {
        Ok(Found::ToDo)
    }

    async fn run(&self, context: &Context) -> anyhow::Result<()> {
        let (kubectl, images) = (kubectl(context), context.top.join(IMAGES));
        kubectl
            .run(["apply".as_ref(), "-f".as_ref(), images.as_os_str()])
            .await?;
        // The whole way, as people go it: kubectl, kube-apiserver, our server, its storage.
        kubectl.run(["get", "images,workspaces", "-A"]).await?;
        Ok(())
    }
}
