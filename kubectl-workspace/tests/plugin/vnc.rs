//! Displays: viewers, proxies, pictures.

use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::double::{Refuse, Script};
use crate::place::{Place, Ran, script};

const GREETING: &[u8] = b"RFB 003.008\n";

async fn place() -> Place {
    let place = Place::new().await;
    place.double.workspace("t1", "demo", "vm");
    place
        .double
        .script("demo/vnc", Script::Echo(GREETING.to_vec()));
    place
}

/// A viewer that reads the greeting, answers it, reads that back, and is closed by its user.
fn viewer(place: &Place, name: &str) {
    let text = r#"#!/bin/bash
        address=${1//::/ }; read -r host port <<<"$address"
        echo "$*" > "$HOME/called"
        exec 3<>"/dev/tcp/$host/$port" || exit 9
        read -r greeting <&3
        printf '%s\n' "$greeting" >&3
        read -r again <&3
        [ "$again" = "RFB 003.008" ]"#;
    script(&place.path(name), text);
}

fn with_path(place: &Place, args: &[&str], display: &str) -> tokio::process::Command {
    let mut command = place.command(args);
    let path = format!("{}:/usr/bin:/bin", place.home.path().display());
    command.env("PATH", path).env("DISPLAY", display);
    command
}

#[tokio::test]
async fn p_11_a_viewer_is_started_again_and_again_and_its_close_is_a_clean_end() {
    let place = place().await;
    viewer(&place, "vncviewer");
    for _ in 0..10 {
        let ran = Ran::of(with_path(&place, &["vnc", "demo"], ":0"))
            .await
            .well();
        assert_eq!(ran.err, "");
        place.double.streams(0).await;
        let called = std::fs::read_to_string(place.path("called")).unwrap();
        let port = called
            .trim()
            .strip_prefix("127.0.0.1::")
            .unwrap()
            .to_owned();
        assert!(
            TcpStream::connect(format!("127.0.0.1:{port}"))
                .await
                .is_err(),
            "the port is closed"
        );
    }
}

#[tokio::test]
async fn a_named_viewer_a_port_and_a_takeover_are_obeyed() {
    let place = place().await;
    viewer(&place, "mine");
    let port = free_port().await;
    let args = [
        "vnc",
        "demo",
        "--viewer",
        "mine",
        "--port",
        &port,
        "--takeover",
    ];
    Ran::of(with_path(&place, &args, "")).await.well();
    let called = std::fs::read_to_string(place.path("called")).unwrap();
    assert_eq!(called, format!("127.0.0.1::{port}\n"));
    assert!(
        place
            .double
            .asked()
            .pop()
            .unwrap()
            .target
            .ends_with("/vnc?takeover=true")
    );
}

async fn free_port() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().port().to_string()
}

#[tokio::test]
async fn p_11_without_a_viewer_or_a_display_nothing_is_opened() {
    let place = place().await;
    Ran::of(with_path(&place, &["vnc", "demo"], ":0"))
        .await
        .failed(1, &["install", "--proxy-only"]);
    viewer(&place, "vncviewer");
    Ran::of(with_path(&place, &["vnc", "demo"], ""))
        .await
        .failed(1, &["DISPLAY", "--proxy-only"]);
    script(&place.path("vncviewer"), "#!/bin/sh\nexit 3\n");
    let ran = Ran::of(with_path(&place, &["vnc", "demo"], ":0")).await;
    ran.failed(1, &["ended before it connected (exit status: 3)"]);
    place.double.streams(0).await;
}

async fn greeted(address: &str) -> TcpStream {
    let mut viewer = TcpStream::connect(address).await.unwrap();
    let mut greeting = [0; GREETING.len()];
    viewer.read_exact(&mut greeting).await.unwrap();
    assert_eq!(greeting, GREETING);
    viewer
}

#[tokio::test]
async fn p_11_the_proxy_serves_one_viewer_after_the_other() {
    let place = place().await;
    let mut command = place.command(&["vnc", "demo", "--proxy-only"]);
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines.next_line().await.unwrap().unwrap();
    let address = line.split(' ').nth(2).unwrap().to_owned();
    // nobody is kept out while no viewer is there
    place.double.streams(0).await;
    for _ in 0..2 {
        let mut viewer = greeted(&address).await;
        viewer.write_all(b"x").await.unwrap();
        assert_eq!(viewer.read_u8().await.unwrap(), b'x');
        drop(viewer);
        place.double.streams(0).await;
    }
    place
        .double
        .refuse("/vnc", Refuse::status(409, "demo is stopped"));
    let mut refused = TcpStream::connect(&address).await.unwrap();
    assert_eq!(refused.read(&mut [0; 1]).await.unwrap(), 0);
    greeted(&address).await;
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let ran = tokio::time::timeout(Duration::from_secs(2), Ran::end(child))
        .await
        .unwrap()
        .well();
    assert!(ran.err.contains("demo is stopped"), "{ran:?}");
}

#[tokio::test]
async fn what_ends_a_display_is_told() {
    let place = place().await;
    place.double.script(
        "demo/vnc",
        Script::Say(GREETING.to_vec(), 4003, "the workspace was stopped".into()),
    );
    viewer(&place, "vncviewer");
    let ran = Ran::of(with_path(&place, &["vnc", "demo"], ":0")).await;
    ran.failed(
        1,
        &["demo was stopped. Run `kubectl workspace start demo -n t1`"],
    );
}

#[tokio::test]
async fn a_picture_is_written_whole_or_not_at_all() {
    let place = place().await;
    let png = [&b"\x89PNG\r\n\x1a\n"[..], &[7; 1000]].concat();
    place.double.change(|world| world.screenshot = png.clone());
    place
        .run(&["vnc", "demo", "--screenshot", "demo.png"])
        .await
        .well();
    assert_eq!(std::fs::read(place.path("demo.png")).unwrap(), png);
    assert_eq!(
        place
            .run(&["vnc", "demo", "--screenshot", "-"])
            .await
            .well()
            .bytes,
        png
    );

    place
        .double
        .change(|world| world.screenshot = b"<html>".to_vec());
    place
        .run(&["vnc", "demo", "--screenshot", "demo.png"])
        .await
        .failed(1, &["no PNG"]);
    assert_eq!(
        std::fs::read(place.path("demo.png")).unwrap(),
        png,
        "the old one stays"
    );
    place
        .run(&["vnc", "demo", "--screenshot", "no/where.png"])
        .await
        .failed(1, &[]);
}
