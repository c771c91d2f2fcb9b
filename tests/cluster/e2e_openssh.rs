//! Displays, ports and native OpenSSH through the plugin, with a real guest, as an ordinary user.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use kubeworkspaces_tests::{
    deployment::binary,
    desk::{Desk, PATIENCE, USER, ended, first_bytes, greeted, third_word},
    picture::Picture,
};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;

fn random(file: &Path) -> Result<Vec<u8>> {
    let mut bytes = vec![0; 1 << 20];
    std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut bytes)?;
    std::fs::write(file, &bytes)?;
    Ok(bytes)
}

#[tokio::test(flavor = "multi_thread")]
async fn ssh_scp_rsync_and_forwards_reach_a_real_guest() -> Result<()> {
    let desk = Desk::new().await?;
    let ran = desk
        .run(&["ssh", "demo", "--", "echo $((6*7))-$(id -un); exit 7"])
        .await?;
    assert_eq!(ran.status.code(), Some(7), "{ran:?}");
    assert_eq!(ran.stdout, b"42-guest\n", "{ran:?}");

    let bytes = random(&desk.file("here"))?;
    desk.well(&["cp", "-q", "here", "demo:there"]).await?;
    desk.well(&["cp", "-q", "demo:there", "back"]).await?;
    assert!(std::fs::read(desk.file("back"))? == bytes);

    let stanza = desk.well(&["ssh-config", "demo"]).await?.stdout;
    std::fs::write(desk.file("config"), stanza)?;
    let host = format!("demo.{}.ws", desk.place.namespace);
    let mut ssh = Command::new("ssh");
    desk.surround(&mut ssh);
    ssh.args(["-F", "config", &host, "sha256sum there | cut -c1-64"]);
    let sum = ended(ssh).await?;
    let mut local = Command::new("sha256sum");
    desk.surround(&mut local);
    local.arg("here");
    let expected = ended(local).await?;
    assert!(
        sum.stdout.len() == 65 && expected.stdout.starts_with(&sum.stdout[..64]),
        "{sum:?}"
    );

    // rsync of this machine, if it has one, with the guest's
    if Command::new("rsync")
        .arg("--version")
        .output()
        .await
        .is_ok()
    {
        let mut rsync = Command::new("rsync");
        desk.surround(&mut rsync);
        rsync.args([
            "-a",
            "-e",
            "ssh -F config",
            "here",
            &format!("{host}:synced"),
        ]);
        let ran = ended(rsync).await?;
        ensure!(ran.status.success(), "{ran:?}");
        desk.well(&["ssh", "demo", "--", "cmp there synced"])
            .await?;
    }

    let local = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let forward = format!("{local}:127.0.0.1:22");
    let _ssh = desk
        .plugin(&["ssh", "-N", "-L", &forward, "demo"])?
        .spawn()?;
    greeted(&local.to_string(), b"SSH-2.0").await?;
    desk.place.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn p_12_a_new_root_disk_has_new_keys_without_a_warning() -> Result<()> {
    let desk = Desk::new().await?;
    desk.well(&["ssh", "demo", "--", "true"]).await?;
    let before = desk.well(&["known-hosts", "demo"]).await?.stdout;
    desk.well(&["stop", "demo", "--wait"]).await?;
    desk.well(&["start", "demo", "--wait"]).await?;
    let again = desk.well(&["ssh", "demo", "--", "true"]).await?;
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(!said.contains("IDENTIFICATION"), "{said}");
    let after = desk.well(&["known-hosts", "demo"]).await?.stdout;
    assert_ne!(before, after, "a containerDisk is new at every start");
    desk.place.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_and_displays_reach_a_real_guest() -> Result<()> {
    let desk = Desk::new().await?;
    let (_forward, address) = desk.forward(":22").await?;
    greeted(&address, b"SSH-2.0").await?;

    desk.well(&["vnc", "demo", "--screenshot", "demo.png"])
        .await?;
    let shot = Picture::of_png(&std::fs::read(desk.file("demo.png"))?)?;
    let mut proxy = desk.plugin(&["vnc", "demo", "--proxy-only"])?.spawn()?;
    let address = third_word(&mut proxy).await?;
    for _ in 0..2 {
        assert_eq!(first_bytes(&address, 8).await?, b"RFB 003.");
    }
    let seen = Picture::of_display(TcpStream::connect(&address).await?).await?;
    assert!(shot.colours() > 1, "the guest shows nothing");
    // A cursor blinks on it.
    let differing = shot.differing(&seen)?;
    assert!(differing < 500, "{differing} points differ");
    desk.place.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_seen_and_ended_by_an_administrator() -> Result<()> {
    let desk = Desk::new().await?;
    let mut console = desk.plugin(&["console", "demo"])?.spawn()?;
    // An end while it is being dialled is a refusal, not the end of a session.
    let mut stderr = BufReader::new(console.stderr.take().context("no stderr")?);
    let connected = async {
        let mut line = String::new();
        while !line.contains("Connected to demo") {
            line.clear();
            ensure!(stderr.read_line(&mut line).await? > 0, "it ended first");
        }
        Ok(())
    };
    tokio::time::timeout(PATIENCE, connected).await??;
    desk.place
        .until(&["get", "wss", "-o", "name"], 30, |o| {
            o.contains("demo.console")
        })
        .await?;
    let seen = desk.well(&["sessions", "demo"]).await?;
    let seen = String::from_utf8_lossy(&seen.stdout).into_owned();
    assert!(
        seen.contains("demo.console") && seen.contains(USER),
        "{seen}"
    );
    // an editor ends nobody's session by deletion
    let refused = desk.run(&["sessions", "kill", "demo.console"]).await?;
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let mut kill = Command::new(binary("kubectl-workspace")?);
    desk.surround(&mut kill);
    kill.args([
        "sessions",
        "kill",
        "demo.console",
        "-n",
        &desk.place.namespace,
    ]);
    let ended_by = ended(kill).await?;
    ensure!(ended_by.status.success(), "{ended_by:?}");
    let mut said = String::new();
    stderr.read_to_string(&mut said).await?;
    assert!(
        said.contains("An administrator ended the session"),
        "{said}"
    );
    assert_eq!(console.wait().await?.code(), Some(1));
    desk.place.end().await
}
