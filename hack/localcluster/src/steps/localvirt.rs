//! localvirt, the stand-in for KubeVirt, runs in the cluster.

use async_trait::async_trait;
use serde_json::json;

use super::images::{Image, named};
use super::kubectl::{apply, apply_files, render, rolled_out};
use super::kustomization::{Kustomization, Replacement};
use super::{Context, Found, Step};
use crate::harness;

/// Its namespace and Deployment.
pub const NAME: &str = "localvirt";
/// Its APIService.
pub const APISERVICE: &str = "v1.subresources.kubevirt.io";
/// The APIs of KubeVirt.
const CRDS: &str = "hack/localvirt/crds";

pub(super) struct Localvirt;

#[async_trait]
impl Step for Localvirt {
    fn name(&self) -> &'static str {
        "installing localvirt"
    }

    /// Applying what is so already changes nothing, and mends what somebody changed.
    async fn look(&self, _: &Context) -> anyhow::Result<Found> {
        Ok(Found::ToDo)
    }

    async fn run(&self, context: &Context) -> anyhow::Result<()> {
        apply_files(context, &context.top.join(CRDS)).await?;
        let dir = context.build_dir().join("deploy").join(NAME);
        kustomization(context)?.write(&dir)?;
        apply(context, &render(context, &dir).await?).await?;
        rolled_out(context, NAME, NAME).await?;
        harness::wait_available(&context.client().await?, APISERVICE).await?;
        Ok(())
    }
}

fn kustomization(context: &Context) -> anyhow::Result<Kustomization> {
    let (own, launcher) = (
        named(Image::Localvirt, context)?,
        named(Image::Launcher, context)?,
    );
    let from = Image::Localvirt.repository();
    let argument = format!("--launcher-image={}", launcher.name());
    let patch = json!([{"op": "replace", "path": "/spec/template/spec/containers/0/args/0", "value": argument}]);
    Ok(Kustomization {
        bases: vec!["hack/localvirt/deploy"],
        images: vec![Replacement {
            to: from.clone(),
            from,
            tag: own.tag().to_owned(),
        }],
        patches: vec![json!({"target": {"kind": "Deployment"}, "patch": patch.to_string()})],
        ..Kustomization::default()
    })
}
