//! Consoles of real guests and real pods, through the real kube-apiserver.

use std::time::Duration;

use anyhow::{Context as _, Result};
use http::StatusCode;
use kubeworkspaces_tests::{
    guests::{Place, log_in},
    stream::{End, Opened, open},
};

const RAW: [&str; 1] = ["plain.kubevirt.io"];
const V5: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];

#[tokio::test(flavor = "multi_thread")]
async fn a_guests_serial_console_takes_a_login_and_one_holder() -> Result<()> {
    let place = Place::new("console").await?;
    place.machine("demo").await?;
    let alice = place.editor("alice").await?;
    let bob = place.editor("bob").await?;
    let path = place.path("demo", "console");

    let mut console = match open(&alice, &path, &RAW).await? {
        Opened::Stream(stream, chosen) => {
            assert_eq!(chosen.as_deref(), Some("plain.kubevirt.io"));
            *stream
        }
        Opened::Refused(code, body) => anyhow::bail!("refused with {code}: {body}"),
    };
    log_in(&mut console).await?;
    console.write("echo $((6*7))-$(uname -s)\n").await?;
    console.expect("42-Linux", 20).await?;

    // Whichever replica answers, a second caller is told who holds it.
    for _ in 0..6 {
        let Opened::Refused(code, status) = open(&bob, &path, &RAW).await? else {
            anyhow::bail!("two holders of one serial line")
        };
        assert_eq!(code, StatusCode::CONFLICT, "{status}");
        let causes = status["details"]["causes"].to_string();
        assert!(
            causes.contains("SessionHeld")
                && status["message"]
                    .as_str()
                    .unwrap_or_default()
                    .contains("alice"),
            "{status}"
        );
    }
    let sessions = place.json(&["get", "wss"]).await?;
    assert_eq!(sessions["items"][0]["metadata"]["name"], "demo.console");
    assert_eq!(sessions["items"][0]["spec"]["user"], "alice");

    console.write("echo still-$((1+1))-here\n").await?;
    console.expect("still-2-here", 20).await?;
    console.close().await?;
    // Released at once: no wait, no 409 of one's own.
    let mut again = open(&bob, &path, &RAW).await?.stream()?;
    again.close().await?;
    place.no_sessions(10).await?;
    place.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_dies_or_is_stopped_says_so_to_its_console() -> Result<()> {
    let place = Place::new("gone").await?;
    place.machine("demo").await?;
    let alice = place.editor("alice").await?;
    let path = place.path("demo", "console");

    let mut console = open(&alice, &path, &RAW).await?.stream()?;
    place
        .kubectl(&[
            "delete",
            "pod",
            "-l",
            "kubevirt.io=virt-launcher",
            "--grace-period=0",
            "--force",
        ])
        .await?;
    let end = console.end(30).await?;
    assert!(
        matches!(&end, End::Closed(4006 | 1011, reason) if !reason.is_empty()),
        "{end:?}"
    );

    place
        .kubectl(&[
            "wait",
            "--for=condition=Ready",
            "--timeout=120s",
            "ws",
            "demo",
        ])
        .await?;
    let mut console = loop {
        match open(&alice, &path, &RAW).await? {
            Opened::Stream(stream, _) => break stream,
            Opened::Refused(StatusCode::BAD_REQUEST, _) => {
                tokio::time::sleep(Duration::from_millis(200)).await
            }
            refused => anyhow::bail!("{refused:?}"),
        }
    };
    place
        .kubectl(&["annotate", "ws", "demo", "kubeworkspaces.io/stopped=true"])
        .await?;
    let end = console.end(60).await?;
    assert!(
        matches!(&end, End::Closed(4003, reason) if !reason.is_empty()),
        "{end:?}"
    );
    place
        .until(
            &["get", "ws", "demo", "-o", "jsonpath={.status.phase}"],
            60,
            |o| o == "Stopped",
        )
        .await?;
    let Opened::Refused(code, status) = open(&alice, &path, &RAW).await? else {
        anyhow::bail!("a stopped machine has a console")
    };
    assert_eq!(code, StatusCode::CONFLICT, "{status}");
    place.no_sessions(10).await?;
    place.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_containers_console_and_a_scratch_ones_are_shells_with_resize_and_exit_status()
-> Result<()> {
    let place = Place::new("shell").await?;
    place.container("box").await?;
    place.scratch("pad").await?;
    let alice = place.editor("alice").await?;

    // A scratch workspace's shell is in the pod of its Deployment.
    let pad = place.path("pad", "console");
    let mut shell = open(&alice, &pad, &V5).await?.stream()?;
    shell.write("hostname; exit 4\n").await?;
    shell.expect("\npad-", 20).await?;
    shell.end(20).await?;
    let status = shell.status.clone().context("no status on channel 3")?;
    assert_eq!(status["details"]["causes"][0]["message"], "4", "{status}");

    let path = place.path("box", "console");

    let mut shell = open(&alice, &path, &V5).await?.stream()?;
    shell
        .write_channel(4, br#"{"Width":123,"Height":45}"#)
        .await?;
    shell.write("stty size; hostname\n").await?;
    shell.expect("45 123", 20).await?;
    shell.expect("box-0", 20).await?;
    shell.write("exit 7\n").await?;
    shell.end(20).await?;
    let status = shell.status.clone().context("no status on channel 3")?;
    assert_eq!(status["status"], "Failure", "{status}");
    assert_eq!(status["details"]["causes"][0]["message"], "7", "{status}");

    // The end of input, said at once, costs no output.
    let mut piped = open(&alice, &path, &V5).await?.stream()?;
    piped.write("seq 1 20000; exit 3\n").await?;
    piped.write_channel(255, &[0]).await?;
    piped.expect("\n20000\r\n", 20).await?;
    piped.end(20).await?;
    let status = piped.status.clone().context("no status on channel 3")?;
    assert_eq!(status["details"]["causes"][0]["message"], "3", "{status}");

    // Raw clients get bytes; shells are not exclusive.
    let mut one = open(&alice, &path, &RAW).await?.stream()?;
    let mut two = open(&alice, &path, &[]).await?.stream()?;
    for shell in [&mut one, &mut two] {
        shell.write("echo $((40+2))\n").await?;
        shell.expect("42", 20).await?;
        shell.close().await?;
    }
    place.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_subprotocols_are_refused_before_anything_is_dialled() -> Result<()> {
    let place = Place::new("protocol").await?;
    place.container("box").await?;
    let alice = place.editor("alice").await?;
    let Opened::Refused(code, status) =
        open(&alice, &place.path("box", "console"), &["smoke-signals"]).await?
    else {
        anyhow::bail!("accepted")
    };
    assert_eq!(code, StatusCode::BAD_REQUEST);
    assert!(
        status["message"]
            .as_str()
            .unwrap_or_default()
            .contains("v5.channel.k8s.io"),
        "{status}"
    );
    place.end().await
}
