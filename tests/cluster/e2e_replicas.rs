//! What happens to consoles when a server replica ends. In a test binary of its own, since other
//! tests would feel it.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kubeworkspaces_tests::{
    deployment::NAMESPACE,
    guests::Place,
    servers::{holder, kill_outright},
    stream::{End, Opened, open},
};

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
