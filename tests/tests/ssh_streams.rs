//! `workspaces/ssh` through a real kube-apiserver to a real OpenSSH server, which stands behind port 22 of a
//! machine without a guest.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use http::{Request, StatusCode};
use kube::Client;
use kubeworkspaces_tests::{
    deployment::binary,
    scene::Scene,
    sshd::Sshd,
    stream::{End, Opened, Stream, open},
};
use serde_json::{Value, json};

const TERMINAL: &str = "ssh?cols=100&rows=30";
const TUNNEL: &str = "ssh?mode=tunnel";
const RAW: [&str; 1] = ["binary"];

async fn scene() -> Result<(Scene, Sshd)> {
    let scene = Scene::start(&[], &["w"]).await?;
    let sshd = Sshd::start(&["ed25519"], "").await?;
    scene.machines.serve(22, sshd.address());
    Ok((scene, sshd))
}

async fn opened(client: &Client, rest: &str) -> Result<Stream> {
    open(client, &Scene::path("w", rest), &RAW).await?.stream()
}

async fn log_in(client: &Client, sshd: &Sshd) -> Result<Stream> {
    let key = sshd.user_key(&["-t", "ed25519"]).await?;
    let mut stream = opened(client, TERMINAL).await?;
    let hello = json!({"type": "ssh", "user": sshd.user(), "privateKey": key});
    stream.say(&hello).await?;
    Ok(stream)
}

#[tokio::test(flavor = "multi_thread")]
async fn s_18_a_terminal_has_a_size_a_resize_and_an_exit_status() -> Result<()> {
    let (scene, sshd) = scene().await?;
    let jane = scene.editor("jane", &[]).await?;
    let mut stream = log_in(&jane, &sshd).await?;
    stream.write("stty size; echo term=$TERM\r").await?;
    stream.expect("30 100\r", 60).await?;
    stream.expect("term=xterm-256color", 20).await?;
    let size = json!({"type": "resize", "cols": 132, "rows": 43});
    stream.say(&size).await?;
    let wait = "while [ \"$(stty size)\" != '43 132' ]; do :; done; stty size\r";
    stream.write(wait).await?;
    stream.expect("43 132\r", 20).await?;

    let (code, status) = refused(open(&jane, &Scene::path("w", "ssh"), &RAW).await?)?;
    ensure!(code == StatusCode::CONFLICT, "{status}");
    stream.write("exit 7\r").await?;
    stream.expect("{\"code\":7,\"type\":\"exit\"}", 20).await?;
    let end = stream.end(20).await?;
    ensure!(matches!(end, End::Closed(1000, _)), "{end:?}");
    // Gone before the client knows.
    let mut again = log_in(&jane, &sshd).await?;
    again.write("exit\r").await?;
    again.end(20).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_with_a_thousand_groups_has_a_console_and_a_terminal() -> Result<()> {
    let (scene, sshd) = scene().await?;
    let groups: Vec<String> = (0..1000)
        .map(|n| format!("company-department-{n:04}"))
        .collect();
    let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
    let jane = scene.editor("jane", &groups).await?;
    let mut console = opened(&jane, "console").await?;
    console.write("hello").await?;
    console.expect("hello", 20).await?;
    let session = facts(&jane, "console").await?;
    // And `system:authenticated`.
    ensure!(session["spec"]["groupCount"] == 1001, "{session}");
    let named = session["spec"]["groups"].as_array().map(Vec::len);
    ensure!(named == Some(32), "{session}");
    console.close().await?;

    let mut terminal = log_in(&jane, &sshd).await?;
    terminal.write("echo in-$((40+2))\r").await?;
    terminal.expect("in-42", 60).await?;
    ensure!(facts(&jane, "ssh").await?["spec"]["groupCount"] == 1001);
    terminal.close().await
}

async fn facts(client: &Client, mode: &str) -> Result<Value> {
    let request = Request::get(Scene::path("w", mode)).body(Vec::new())?;
    Ok(client.request(request).await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn p_12_a_host_key_that_changed_is_refused_until_it_is_accepted() -> Result<()> {
    let (scene, mut sshd) = scene().await?;
    let jane = scene.editor("jane", &[]).await?;
    greeted(&jane, TUNNEL).await?;
    sshd.renew("ed25519").await?;
    scene.machines.serve(22, sshd.address());

    // A proof is shared for a moment.
    let end = Instant::now() + Duration::from_secs(60);
    let status = loop {
        match open(&jane, &Scene::path("w", TUNNEL), &RAW).await? {
            Opened::Refused(StatusCode::CONFLICT, status) => break status,
            other => ensure!(Instant::now() < end, "{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    };
    let cause = &status["details"]["causes"][0]["reason"];
    ensure!(cause == "HostKeyChanged", "{status}");
    let message = status["message"].as_str().unwrap_or_default();
    ensure!(message.contains("--accept-new-host-key"), "{status}");
    let (code, status) = refused(open(&jane, &Scene::path("w", TERMINAL), &RAW).await?)?;
    ensure!(code == StatusCode::CONFLICT, "{status}");

    let accepted = plugin(&scene, &sshd, &["--accept-new-host-key"]).await?;
    ensure!(accepted.contains("in-42"), "{accepted}");
    greeted(&jane, TUNNEL).await?;
    let again = plugin(&scene, &sshd, &[]).await?;
    ensure!(again.contains("in-42"), "{again}");
    Ok(())
}

/// A tunnel leads to an SSH server.
async fn greeted(client: &Client, rest: &str) -> Result<()> {
    let mut tunnel = opened(client, rest).await?;
    tunnel.expect("SSH-2.0-", 20).await?;
    tunnel.close().await
}

/// `kubectl workspace ssh` runs a command in the guest.
async fn plugin(scene: &Scene, sshd: &Sshd, flags: &[&str]) -> Result<String> {
    let home = tempfile::tempdir()?;
    let key = home.path().join("key");
    std::fs::write(&key, sshd.user_key(&["-t", "ed25519"]).await?)?;
    let mut private = std::fs::metadata(&key)?.permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut private, 0o600);
    std::fs::set_permissions(&key, private)?;
    let kubeconfig = scene.deployment.plane().kubeconfig_as("jane", &[])?;
    let mut command = tokio::process::Command::new(binary("kubectl-workspace")?);
    let target = format!("{}@w", sshd.user());
    command
        .env("KUBECONFIG", kubeconfig)
        .env("HOME", home.path())
        .args(["ssh", "-n", "default", "-i"])
        .arg(&key)
        .args(flags)
        .args([&target, "--", "echo in-$((40+2))"])
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true);
    let run = tokio::time::timeout(Duration::from_secs(60), command.output()).await;
    let output = run.context("ssh hangs")??;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {said}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn refused(opened: Opened) -> Result<(StatusCode, Value)> {
    match opened {
        Opened::Refused(code, status) => Ok((code, status)),
        Opened::Stream(..) => bail!("it was opened"),
    }
}
