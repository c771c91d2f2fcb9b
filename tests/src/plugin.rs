//! `kubectl workspace`, run against the cluster of `hack/up`.

use std::process::{Output, Stdio};

use anyhow::{Context as _, Result};
use tokio::io::AsyncWriteExt as _;

use crate::{deployment::binary, guests::Place};

/// Runs the plugin with input; it is ended after two minutes.
///
/// # Errors
/// When it cannot be run, or does not end.
pub async fn plugin(place: &Place, args: &[&str], input: &str) -> Result<Output> {
    let mut child = tokio::process::Command::new(binary("kubectl-workspace")?)
        .args(args)
        .args(["--namespace", &place.namespace])
        .env("KUBECONFIG", place.cluster.state().kubeconfig())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut stdin = child.stdin.take().context("no stdin")?;
    // Beside the reading, or two full pipes would wait for each other.
    let typing = async {
        let typed = stdin.write_all(input.as_bytes()).await;
        drop(stdin);
        typed
    };
    let limit = std::time::Duration::from_secs(120);
    let both = async { tokio::join!(typing, child.wait_with_output()) };
    let (typed, output) = tokio::time::timeout(limit, both).await?;
    // Who ends early reads no more.
    typed.or_else(|error| match error.kind() {
        std::io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(error),
    })?;
    Ok(output?)
}

/// Exit status and all that it wrote, to be shown.
pub fn text(output: &Output) -> String {
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    format!("{:?}\n{out}\n{err}", output.status.code())
}
