//! What steps do with kubectl: render, apply, wait.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Stdio;

use anyhow::Context as _;
use tokio::io::AsyncWriteExt as _;

use super::existing::Existing;
use super::{Context, Target};
use crate::harness::Kubectl;

/// Whose fields these are.
const MANAGER: &str = "hack-up";
/// How long a Deployment has to be what it should be.
const ROLLOUT_LIMIT: &str = "180s";

/// kubectl on the cluster of `context`, with a cache of its own.
pub(super) fn kubectl(context: &Context) -> Kubectl {
    match &context.target {
        Target::Existing { kubeconfig, .. } => {
            let kubeconfig = kubeconfig.clone();
            Existing { kubeconfig }.kubectl(&context.state)
        }
        Target::Local | Target::Dev => Kubectl::new(
            context.state.bin().join("kubectl"),
            context.kubeconfig(),
            context.state.kubectl_cache(),
        ),
    }
}

/// The manifests of a kustomization.
pub(super) async fn render(context: &Context, dir: &Path) -> anyhow::Result<String> {
    let words = [
        "kustomize".as_ref(),
        "--load-restrictor=LoadRestrictionsNone".as_ref(),
        dir.as_os_str(),
    ];
    Ok(kubectl(context).run(words).await?)
}

/// Applies manifests on the server's side: fields that were ours and are no longer there go, others' stay. What is so
/// already does not change.
pub(super) async fn apply(context: &Context, manifests: &str) -> anyhow::Result<()> {
    let mut command = kubectl(context).command(apply_words("-".as_ref()));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run kubectl")?;
    let mut stdin = child.stdin.take().context("kubectl has no input")?;
    let (written, output) = tokio::join!(
        async move { stdin.write_all(manifests.as_bytes()).await },
        child.wait_with_output()
    );
    let output = output.context("kubectl apply did not end")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(
        output.status.success(),
        "kubectl apply failed ({}):\n{complaint}",
        output.status
    );
    written.context("kubectl apply did not read the manifests")
}

/// The same with a file or a directory of manifests.
pub(super) async fn apply_files(context: &Context, path: &Path) -> anyhow::Result<()> {
    kubectl(context).run(apply_words(path.as_os_str())).await?;
    Ok(())
}

fn apply_words(from: &OsStr) -> [OsString; 6] {
    [
        "apply".into(),
        "--server-side".into(),
        "--force-conflicts".into(),
        format!("--field-manager={MANAGER}").into(),
        "-f".into(),
        from.into(),
    ]
}

/// Waits until a Deployment runs what it was told to. After a failure its pods are shown.
pub(super) async fn rolled_out(
    context: &Context,
    namespace: &str,
    deployment: &str,
) -> anyhow::Result<()> {
    let kubectl = kubectl(context);
    let limit = format!("--timeout={ROLLOUT_LIMIT}");
    let name = format!("deployment/{deployment}");
    let waited = kubectl
        .run(["-n", namespace, "rollout", "status", &name, &limit])
        .await;
    let Err(error) = waited else { return Ok(()) };
    let pods = kubectl
        .run(["-n", namespace, "get", "pods", "-o", "wide"])
        .await;
    Err(anyhow::Error::new(error).context(format!(
        "{namespace}/{deployment} does not get ready; its pods:\n{}\nSee: kubectl -n {namespace} describe pods, kubectl -n {namespace} logs {name}",
        pods.unwrap_or_else(|e| e.to_string())
    )))
}
