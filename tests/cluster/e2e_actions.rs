//! Actions on real guests in real Pods, through the real kube-apiserver and by the plugin.

use std::time::Duration;

use anyhow::{Result, ensure};
use http::{Request, StatusCode};
use kubeworkspaces_tests::{
    guests::{Place, log_in},
    plugin::{plugin, text},
    stream::{End, Opened, Stream, open},
};

const RAW: [&str; 1] = ["plain.kubevirt.io"];
const TUNNEL: [&str; 1] = ["v1.tunnel.kubeworkspaces.io"];

/// Runs the plugin, which must succeed; what it wrote on both outputs.
async fn done(place: &Place, args: &[&str]) -> Result<String> {
    let ran = plugin(place, args, "").await?;
    ensure!(ran.status.success(), "{args:?}: {}", text(&ran));
    Ok(text(&ran))
}

/// One field of the machine's instance.
async fn instance(place: &Place, path: &str) -> Result<String> {
    let path = format!("jsonpath={path}");
    place.kubectl(&["get", "vmi", "demo", "-o", &path]).await
}

/// What names this boot of a guest's kernel, asked on its serial line.
async fn boot(console: &mut Stream) -> Result<String> {
    console
        .write("echo boot=$(cat /proc/sys/kernel/random/boot_id)=\n")
        .await?;
    // The line as it was typed has no identity behind the sign.
    let mut seen = String::new();
    loop {
        seen.push_str(&console.expect("=", 30).await?);
        let found = seen.split("boot=").skip(1).find_map(|rest| {
            let (id, _) = rest.split_once('=')?;
            (id.len() == 36).then(|| id.to_owned())
        });
        if let Some(id) = found {
            return Ok(id);
        }
    }
}

/// KubeVirt's own action on the instance: workspaces have no word for it.
async fn ask_kubevirt(place: &Place, verb: &str) -> Result<()> {
    let uri = format!(
        "/apis/subresources.kubevirt.io/v1/namespaces/{}/virtualmachineinstances/demo/{verb}",
        place.namespace
    );
    let request = Request::put(uri)
        .header("Content-Type", "application/json")
        .body(b"{}".to_vec())?;
    place.cluster.client()?.request_text(request).await?;
    Ok(())
}

/// Waits until the workspace's Ready has this reason.
async fn until_ready_says(place: &Place, reason: &str) -> Result<()> {
    let path = "jsonpath={.status.conditions[?(@.type=='Ready')].reason}";
    let ask = ["get", "ws", "demo", "-o", path];
    place.until(&ask, 60, |said| said == reason).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_reboots_in_its_machine_and_keeps_its_console() -> Result<()> {
    let place = Place::new("reboot").await?;
    place.machine("demo").await?;
    let alice = place.editor("alice").await?;
    let path = place.path("demo", "console");
    let mut console = open(&alice, &path, &RAW).await?.stream()?;
    log_in(&mut console).await?;
    let first = boot(&mut console).await?;
    let uid = instance(&place, "{.metadata.uid}").await?;
    let pods = instance(&place, "{.status.activePods}").await?;

    // Asked to shut down by its power button. Nothing tells when it is up again: it has no agent.
    let said = done(&place, &["reboot", "demo", "--wait"]).await?;
    ensure!(said.contains("Not waited for"), "{said}");
    console.expect("login:", 120).await?;
    log_in(&mut console).await?;
    let second = boot(&mut console).await?;
    ensure!(first != second, "the guest has not rebooted: {first}");

    // Without being asked.
    done(&place, &["reboot", "demo", "--force"]).await?;
    console.expect("login:", 120).await?;
    log_in(&mut console).await?;
    let third = boot(&mut console).await?;
    ensure!(second != third, "the guest was not reset: {second}");

    assert_eq!(instance(&place, "{.metadata.uid}").await?, uid);
    assert_eq!(instance(&place, "{.status.activePods}").await?, pods);
    console.close().await?;
    place.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_gives_a_new_machine_and_ends_the_old_ones_console() -> Result<()> {
    let place = Place::new("reset").await?;
    place.machine("demo").await?;
    let alice = place.editor("alice").await?;
    let path = place.path("demo", "console");
    let mut console = open(&alice, &path, &RAW).await?.stream()?;
    let before = instance(&place, "{.metadata.uid}").await?;
    // The plugin waits until the new guest's machine is ready.
    done(&place, &["reset", "demo", "--wait"]).await?;
    let end = console.end(30).await?;
    ensure!(
        matches!(&end, End::Closed(4006, reason) if !reason.is_empty()),
        "{end:?}"
    );
    ensure!(instance(&place, "{.metadata.uid}").await? != before);
    let mut console = open(&alice, &path, &RAW).await?.stream()?;
    log_in(&mut console).await?;
    console.close().await?;
    place.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_start_waits_for_its_console_and_a_paused_guest_says_nothing() -> Result<()> {
    let place = Place::new("paused").await?;
    place.machine("demo").await?;
    let alice = place.editor("alice").await?;
    let path = place.path("demo", "console");
    done(&place, &["stop", "demo", "--wait"]).await?;
    done(&place, &["start", "demo", "--paused", "--wait"]).await?;
    until_ready_says(&place, "Paused").await?;
    let mut console = open(&alice, &path, &RAW).await?.stream()?;
    ask_kubevirt(&place, "unpause").await?;
    // From its first words on, since nothing had run before.
    console.expect("login:", 120).await?;
    log_in(&mut console).await?;
    let id = boot(&mut console).await?;

    ask_kubevirt(&place, "pause").await?;
    until_ready_says(&place, "Paused").await?;
    let ports = place.path("demo", "portforward/22");
    let Opened::Refused(code, status) = open(&alice, &ports, &TUNNEL).await? else {
        anyhow::bail!("a port of a paused guest was opened")
    };
    assert_eq!(code, StatusCode::CONFLICT, "{status}");
    console.write("echo woken-$((40+2))\n").await?;
    let silence = tokio::time::timeout(Duration::from_secs(3), console.expect("woken-42", 60));
    ensure!(silence.await.is_err(), "a paused guest answers");
    ask_kubevirt(&place, "unpause").await?;
    console.expect("woken-42", 30).await?;
    assert_eq!(boot(&mut console).await?, id, "it went on where it was");
    console.close().await?;
    place.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_picture_of_a_real_guests_display_is_a_png() -> Result<()> {
    let place = Place::new("picture").await?;
    place.machine("demo").await?;
    let file = tempfile::NamedTempFile::new()?;
    let name = file.path().to_string_lossy();
    done(&place, &["vnc", "demo", "--screenshot", &name]).await?;
    let png = std::fs::read(file.path())?;
    ensure!(png.starts_with(b"\x89PNG\r\n\x1a\n"), "{} bytes", png.len());
    // The header of the picture: a screen and not a dot (PNG specification, 11.2.1).
    let side = |at: usize| u32::from_be_bytes([png[at], png[at + 1], png[at + 2], png[at + 3]]);
    let (width, height) = (side(16), side(20));
    ensure!(width >= 320 && height >= 200, "{width}x{height}");
    place.end().await
}

/// Its pod names no node here, and its address leads nowhere: the way is KubeVirt's portforward.
#[tokio::test(flavor = "multi_thread")]
async fn ports_of_a_guestless_machine_answer_beside_real_nodes() -> Result<()> {
    let place = Place::new("guestless").await?;
    place
        .apply(
            "apiVersion: kubeworkspaces.io/v1alpha1\nkind: Workspace\nmetadata: {name: demo}\nspec:\n  type: vm\n  \
             template:\n    spec:\n      containers:\n      - {name: main, image: 'kubeworkspaces.io/guestless:echo', \
             ports: [{containerPort: 8080}]}\n",
        )
        .await?;
    let ready = [
        "wait",
        "--for=condition=Ready",
        "--timeout=120s",
        "ws",
        "demo",
    ];
    place.kubectl(&ready).await?;
    let alice = place.editor("alice").await?;
    let path = place.path("demo", "portforward/8080");
    let mut port = open(&alice, &path, &TUNNEL).await?.stream()?;
    port.write("\0echo me").await?;
    port.expect("echo me", 30).await?;
    port.close().await?;
    place.end().await
}
