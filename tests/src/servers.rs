//! The server's pods in the whole cluster, and their violent ends.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::{deployment::NAMESPACE, guests::Place, own_cluster::as_root};

/// The server pod that carries the console of `demo`.
///
/// # Errors
/// When nobody holds it, or its pod is gone.
pub async fn holder(place: &Place) -> Result<String> {
    let session = place.json(&["get", "wss", "demo.console"]).await?;
    let replica = session["spec"]["replica"]
        .as_str()
        .context("the session names no replica")?
        .to_owned();
    let pods = pods(place).await?;
    let pod = pods.iter().find(|pod| {
        pod["metadata"]["uid"]
            .as_str()
            .is_some_and(|uid| replica.contains(uid))
    });
    let name = pod.and_then(|pod| pod["metadata"]["name"].as_str());
    Ok(name
        .with_context(|| format!("no pod has the UID in {replica}"))?
        .to_owned())
}

/// The server's pods.
///
/// # Errors
/// When they cannot be listed.
pub async fn pods(place: &Place) -> Result<Vec<Value>> {
    let selector = "app.kubernetes.io/name=workspaces-apiserver";
    let args = ["-n", NAMESPACE, "get", "pods", "-l", selector, "-o", "json"];
    let pods: Value = serde_json::from_str(&place.cluster.kubectl(args).await?)?;
    let pods = pods["items"].as_array().context("no pods")?;
    Ok(pods.clone())
}

/// SIGKILL to the server in a pod, from the machine's side.
///
/// # Errors
/// When there is not exactly one such process, or root's rights are not to be had.
pub async fn kill_outright(place: &Place, pod: &str) -> Result<()> {
    let uid = place
        .cluster
        .kubectl([
            "-n",
            NAMESPACE,
            "get",
            "pod",
            pod,
            "-o",
            "jsonpath={.metadata.uid}",
        ])
        .await?;
    let mut killed = 0;
    for entry in std::fs::read_dir("/proc")? {
        let pid = entry?.file_name().to_string_lossy().into_owned();
        if !pid.bytes().all(|b| b.is_ascii_digit()) {
            continue;
        }
        let of_pod = std::fs::read_to_string(format!("/proc/{pid}/cgroup"))
            .is_ok_and(|text| text.contains(&format!("pod{uid}")));
        let server = std::fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| line.starts_with(b"/usr/bin/workspaces-apiserver"));
        if of_pod && server {
            as_root("kill", &["-KILL", &pid])?;
            killed += 1;
        }
    }
    ensure!(
        killed == 1,
        "expected one server process in pod {pod}, killed {killed}"
    );
    Ok(())
}
