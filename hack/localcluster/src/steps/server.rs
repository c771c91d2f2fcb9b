//! Our server runs and is registered: in the cluster, or as a process of this machine.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use async_trait::async_trait;

use super::host;
use super::images::{Image, named};
use super::kubectl::{apply, kubectl, render, rolled_out};
use super::kustomization::{Kustomization, Replacement};
use super::{Context, Found, Step, Target};
use crate::harness;

/// Its namespace.
pub const NAMESPACE: &str = "kubeworkspaces-system";
/// Its Deployment, Service and ServiceAccount.
pub const NAME: &str = super::compile::SERVER;
/// Its APIService.
pub const APISERVICE: &str = "v1alpha1.kubeworkspaces.io";

/// What is asked to see whether it answers.
const QUESTION: &str = "/apis/kubeworkspaces.io/v1alpha1/images?limit=1";
/// How long it has to answer, once it is Available.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
const ASK_EVERY: Duration = Duration::from_millis(200);

pub(super) struct Server;

#[async_trait]
impl Step for Server {
    fn name(&self) -> &'static str {
        "installing the server"
    }

    /// Applying what is so already changes nothing, and mends what somebody changed.
    async fn look(&self, _: &Context) -> anyhow::Result<Found> {
        Ok(Found::ToDo)
    }

    async fn run(&self, context: &Context) -> anyhow::Result<()> {
        let dir = manifests(context)?;
        let manifests = render(context, &dir).await?;
        match context.target {
            Target::Dev => {
                apply(context, &manifests).await?;
                remove_deployed(context).await?;
                host::start(context).await?;
            }
            Target::Local => {
                host::stop(context).await?;
                apply(context, &manifests).await?;
                rolled_out(context, NAMESPACE, NAME).await?;
            }
            Target::Existing { .. } => {
                apply(context, &manifests).await?;
                rolled_out(context, NAMESPACE, NAME).await?;
            }
        }
        harness::wait_available(&context.client().await?, APISERVICE).await?;
        answers(context).await
    }
}

/// Asks until the server answers through kube-apiserver, which may still think of the one that ran before.
async fn answers(context: &Context) -> anyhow::Result<()> {
    let (kubectl, begun) = (kubectl(context), Instant::now());
    loop {
        match kubectl.run(["get", "--raw", QUESTION]).await {
            Ok(_) => return Ok(()),
            Err(error) if begun.elapsed() > ANSWER_LIMIT => return Err(error.into()),
            Err(_) => {
                if context.target == Target::Dev {
                    host::check(context)?;
                }
                tokio::time::sleep(ASK_EVERY).await;
            }
        }
    }
}

/// Writes the kustomization and says where.
fn manifests(context: &Context) -> anyhow::Result<PathBuf> {
    let dir = context.build_dir().join("deploy/server");
    kustomization(context)?.write(&dir)?;
    Ok(dir)
}

fn kustomization(context: &Context) -> anyhow::Result<Kustomization> {
    let repository = Image::Server.repository();
    let base = match &context.target {
        Target::Dev => {
            return Ok(Kustomization {
                bases: vec!["deploy/overlays/dev"],
                objects: vec![("endpoints.yaml", host::endpoints(context)?)],
                ..Kustomization::default()
            });
        }
        Target::Local => "deploy/overlays/local",
        Target::Existing { .. } => "deploy/base",
    };
    let to = match &context.target {
        Target::Existing { push, .. } => format!("{push}/{}", Image::Server.base()),
        Target::Local | Target::Dev => repository.clone(),
    };
    Ok(Kustomization {
        bases: vec![base],
        images: vec![Replacement {
            from: repository,
            to,
            tag: named(Image::Server, context)?.tag().to_owned(),
        }],
        ..Kustomization::default()
    })
}

/// What the cluster ran before: its Deployment, and endpoints that nobody keeps any more once the Service has no
/// selector (from Endpoints, kube-controller-manager would make slices again).
async fn remove_deployed(context: &Context) -> anyhow::Result<()> {
    let kubectl = kubectl(context);
    let own = ["-n", NAMESPACE, "delete", "--ignore-not-found", "--wait"];
    let objects = ["deployment", "poddisruptionbudget", "endpoints"].map(|k| format!("{k}/{NAME}"));
    kubectl
        .run(own.into_iter().map(str::to_owned).chain(objects))
        .await?;
    let kept = format!(
        "kubernetes.io/service-name={NAME},endpointslice.kubernetes.io/managed-by!={}",
        host::MANAGED_BY
    );
    kubectl
        .run(own.into_iter().chain(["endpointslices", "-l", &kept]))
        .await?;
    Ok(())
}
