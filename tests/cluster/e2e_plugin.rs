//! `kubectl workspace`, the program that people type, against real guests and pods.

use std::process::Stdio;

use anyhow::{Context as _, Result};
use kubeworkspaces_tests::{
    deployment::binary,
    guests::Place,
    plugin::{plugin, text},
};
use tokio::io::AsyncWriteExt as _;

#[tokio::test(flavor = "multi_thread")]
async fn a_shell_in_a_pipe_gives_its_output_and_its_exit_status() -> Result<()> {
    let place = Place::new("plugin").await?;
    place.container("box").await?;
    let ran = plugin(
        &place,
        &["console", "box"],
        "echo $((6*7))-$(hostname)\nexit 7\n",
    )
    .await?;
    assert_eq!(ran.status.code(), Some(7), "{}", text(&ran));
    assert!(text(&ran).contains("42-box-0"), "{}", text(&ran));

    // The end of the input is the end of the shell: nothing here says `exit`.
    let ended = plugin(&place, &["console", "box"], "echo hi\n").await?;
    assert_eq!(ended.status.code(), Some(0), "{}", text(&ended));
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "hi\n");
    let failed = plugin(
        &place,
        &["console", "box"],
        "echo out; echo err >&2; (exit 3)",
    )
    .await?;
    assert_eq!(failed.status.code(), Some(3), "{}", text(&failed));
    assert_eq!(String::from_utf8_lossy(&failed.stdout), "out\n");
    assert!(String::from_utf8_lossy(&failed.stderr).contains("err\n"));

    let missing = plugin(&place, &["console", "nobody"], "").await?;
    assert_eq!(missing.status.code(), Some(1), "{}", text(&missing));
    assert!(
        text(&missing).contains("\"nobody\" not found"),
        "{}",
        text(&missing)
    );
    place.end().await
}

/// A program that reads the rest of the script takes its end: on a terminal the shell would wait.
#[tokio::test(flavor = "multi_thread")]
async fn a_mebibyte_passes_each_way_and_nothing_of_it_is_lost_at_the_end() -> Result<()> {
    let place = Place::new("pipe").await?;
    place.container("box").await?;
    let line = format!("{}\n", "0123456789abcde".repeat(4));
    let data = line.repeat((1 << 20) / line.len() + 1);
    let ran = plugin(&place, &["console", "box"], &format!("exec cat\n{data}")).await?;
    assert_eq!(ran.status.code(), Some(0), "{}", ran.status);
    assert!(data.len() >= 1 << 20 && ran.stdout == data.as_bytes());

    let script = "head -c 1048576 /dev/zero; cat > /dev/null\nexit 9\n";
    let ran = plugin(&place, &["console", "box"], script).await?;
    assert_eq!((ran.status.code(), ran.stdout.len()), (Some(0), 1 << 20));
    place.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_and_start_wait_until_it_is_so() -> Result<()> {
    let place = Place::new("plugin").await?;
    place.machine("demo").await?;
    let phase = ["get", "ws", "demo", "-o", "jsonpath={.status.phase}"];
    let stopped = plugin(&place, &["stop", "demo", "--wait"], "").await?;
    assert!(stopped.status.success(), "{}", text(&stopped));
    assert_eq!(place.kubectl(&phase).await?, "Stopped");

    let refused = plugin(&place, &["console", "demo"], "").await?;
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused));
    assert!(
        text(&refused).contains("start"),
        "it says what to do: {}",
        text(&refused)
    );

    let started = plugin(&place, &["start", "demo", "--wait"], "").await?;
    assert!(started.status.success(), "{}", text(&started));
    assert_eq!(place.kubectl(&phase).await?, "Running");
    // A person at a terminal: `script` gives the plugin one.
    let command = format!(
        "{} console demo -n {}",
        binary("kubectl-workspace")?.display(),
        place.namespace
    );
    let mut person = tokio::process::Command::new("script")
        .args(["-qefc", &command, "/dev/null"])
        .env("KUBECONFIG", place.cluster.state().kubeconfig())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut typing = person.stdin.take().context("no stdin")?;
    let mut screen = person.stdout.take().context("no stdout")?;
    let mut seen = String::new();
    let mut buffer = [0; 4096];
    let login = async {
        while !seen.contains("login:") {
            let read = tokio::io::AsyncReadExt::read(&mut screen, &mut buffer).await?;
            anyhow::ensure!(read > 0, "the console ended: {seen}");
            seen.push_str(&String::from_utf8_lossy(&buffer[..read]));
            typing.write_all(b"\n").await?;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), login).await??;
    assert!(
        seen.contains("Connected to demo. The escape sequence is Ctrl-]"),
        "{seen}"
    );
    typing.write_all(b"\x1d").await?;
    let status = tokio::time::timeout(std::time::Duration::from_secs(20), person.wait()).await??;
    assert_eq!(status.code(), Some(0), "Ctrl-] is a clean end");
    place.no_sessions(10).await?;
    place.end().await
}
