//! What happens to consoles when a server replica ends. In a test binary of its own, since other
//! tests would feel it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kubeworkspaces_tests::{
    deployment::NAMESPACE,
    guests::Place,
    stream::{End, Opened, open},
};
use serde_json::Value;

const RAW: [&str; 1] = ["plain.kubevirt.io"];

#[tokio::test(flavor = "multi_thread")]
async fn ending_a_server_pod_tells_its_clients_and_lets_them_in_again() -> Result<()> {
    let place = Place::new("drain").await?;
    place.machine("demo").await?;
    let alice = place.editor("alice").await?;
    let path = place.path("demo", "console");
    let before = place.json(&["get", "ws", "demo"]).await?;

    let mut console = open(&alice, &path, &RAW).await?.stream()?;
    let pod = holder(&place).await?;
    place
        .cluster
        .kubectl(["-n", NAMESPACE, "delete", "pod", &pod, "--wait=false"])
        .await?;
    let end = console.end(30).await?;
    let ended = Instant::now();
    assert!(
        matches!(&end, End::Closed(1001, reason) if !reason.is_empty()),
        "{end:?}"
    );
    let mut again = loop {
        match open(&alice, &path, &RAW).await? {
            Opened::Stream(stream, _) => break stream,
            refused @ Opened::Refused(..) => ensure!(
                ended.elapsed() < Duration::from_secs(1),
                "not in again within 1 s: {refused:?}"
            ),
        }
    };
    assert_ne!(
        holder(&place).await?,
        pod,
        "the other replica carries it now"
    );

    // Killed outright: no reason is possible, and the claim is free within 25 s.
    let pod = holder(&place).await?;
    kill_outright(&place, &pod).await?;
    let cut = Instant::now();
    assert_eq!(again.end(30).await?, End::Cut);
    let mut third = loop {
        match open(&alice, &path, &RAW).await {
            Ok(Opened::Stream(stream, _)) => break stream,
            refused => ensure!(
                cut.elapsed() < Duration::from_secs(25),
                "not free within 25 s: {refused:?}"
            ),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    third.close().await?;
    place.no_sessions(30).await?;
    let after = place.json(&["get", "ws", "demo"]).await?;
    assert_eq!(
        after["metadata"]["generation"],
        before["metadata"]["generation"]
    );
    assert_eq!(after["spec"], before["spec"]);
    assert_eq!(after["status"]["phase"], "Running");
    place.end().await
}

/// The server pod that carries the console of `demo`.
async fn holder(place: &Place) -> Result<String> {
    let session = place.json(&["get", "wss", "demo.console"]).await?;
    let replica = session["spec"]["replica"]
        .as_str()
        .context("the session names no replica")?
        .to_owned();
    let pods: Value = serde_json::from_str(
        &place
            .cluster
            .kubectl(["-n", NAMESPACE, "get", "pods", "-o", "json"])
            .await?,
    )?;
    let pods = pods["items"].as_array().context("no pods")?;
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

/// SIGKILL to the server in a pod, from the machine's side.
async fn kill_outright(place: &Place, pod: &str) -> Result<()> {
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
        let Ok(pid) = entry?.file_name().to_string_lossy().parse::<i32>() else {
            continue;
        };
        let of_pod = std::fs::read_to_string(format!("/proc/{pid}/cgroup"))
            .is_ok_and(|text| text.contains(&format!("pod{uid}")));
        let server = std::fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| line.starts_with(b"/usr/bin/workspaces-apiserver"));
        if of_pod && server {
            let pid = rustix::process::Pid::from_raw(pid).context("pid")?;
            rustix::process::kill_process(pid, rustix::process::Signal::KILL)?;
            killed += 1;
        }
    }
    ensure!(
        killed == 1,
        "expected one server process in pod {pod}, killed {killed} (the test needs root to kill it)"
    );
    Ok(())
}
