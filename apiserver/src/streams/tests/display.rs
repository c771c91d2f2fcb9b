//! `workspaces/vnc` and `workspaces/screenshot`.

use std::time::Duration;

use futures::SinkExt as _;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use super::world::{MACHINE, World, closed, data};
use crate::{sessions::Timing, streams::opening::StreamOptions};

const BINARY: [(&str, &str); 1] = [("sec-websocket-protocol", "binary")];
const ACTIVE: &str = "Can't connect to websocket (503): websocket: bad handshake: application info: Active VNC connection. Request denied.";

/// How long KubeVirt may not notice an end of ours here.
const LINGERS: Duration = Duration::from_millis(1500);

/// A machine, and sessions whose ends matter for that long.
async fn machine() -> World {
    let timing = Timing {
        lingers: LINGERS,
        ..Timing::default()
    };
    World::timed("vm", StreamOptions::default(), timing).await
}

fn busy() -> (u16, String) {
    let status = json!({"kind": "Status", "message": ACTIVE, "code": 500});
    (500, status.to_string())
}

fn message(status: &Value) -> &str {
    status["message"].as_str().unwrap()
}

#[tokio::test]
async fn a_display_is_bytes_both_ways_for_one_viewer_who_is_preserved() {
    let mut world = World::new("vm").await;
    let (mut viewer, chosen) = world.open("demo/vnc", &BINARY).await.unwrap();
    assert_eq!(chosen.as_deref(), Some("binary"));
    let (uri, mut upstream) = world.dialled().await;
    assert!(
        uri.ends_with("/virtualmachineinstances/demo/vnc?preserveSession=true"),
        "{uri}"
    );
    upstream
        .send(Message::binary(&b"RFB 003.008\n"[..]))
        .await
        .unwrap();
    assert_eq!(data(&mut viewer, 12).await, b"RFB 003.008\n");
    // Text is bytes, whatever it looks like: a display has no terminal size.
    let size = r#"{"type":"resize","cols":200,"rows":50}"#;
    viewer.send(Message::text(size)).await.unwrap();
    assert_eq!(data(&mut upstream, size.len()).await, size.as_bytes());

    let (code, status) = world.open("demo/vnc", &BINARY).await.unwrap_err();
    assert_eq!(code, 409);
    assert_eq!(status["details"]["causes"][2]["message"], "vnc");
    assert!(
        world.open("demo/console", &BINARY).await.is_ok(),
        "another claim"
    );
    viewer.close(None).await.unwrap();
    assert!(closed(&mut upstream).await.is_some());
    drop(upstream);
    assert!(closed(&mut viewer).await.is_some());
    assert!(!world.has_session_of("vnc").await);
}

#[tokio::test]
async fn a_viewer_outside_kubeworkspaces_is_kept_unless_it_is_taken_over() {
    let mut world = machine().await;
    *world.cluster.refuse_all.lock() = Some(busy());
    // A server that has just started does not know what ended before.
    let (code, status) = world.open("demo/vnc", &BINARY).await.unwrap_err();
    assert_eq!(code, 409);
    assert!(message(&status).contains("held outside kubeworkspaces"));
    assert!(!world.has_session_of("vnc").await);
    *world.cluster.refuse_all.lock() = None;
    world.verbs.0.lock().insert("delete");
    let _viewer = world.open("demo/vnc?takeover=true", &BINARY).await.unwrap();
    let (uri, _) = world.dialled().await;
    assert!(uri.ends_with("/vnc"), "{uri}");
}

/// A viewer that comes and goes.
async fn ended_viewer(world: &mut World) {
    let (mut viewer, _) = world.open("demo/vnc", &BINARY).await.unwrap();
    let (_, mut upstream) = world.dialled().await;
    viewer.close(None).await.unwrap();
    closed(&mut upstream).await;
    drop(upstream);
    closed(&mut viewer).await;
}

/// The next viewer, while KubeVirt refuses for half the time that it may.
async fn opened_after_refusals(world: &World) -> bool {
    *world.cluster.refuse_all.lock() = Some(busy());
    let refuse = world.cluster.refuse_all.clone();
    let freeing = async {
        tokio::time::sleep(LINGERS / 2).await;
        *refuse.lock() = None;
    };
    let (opened, ()) = tokio::join!(world.open("demo/vnc", &BINARY), freeing);
    opened.is_ok()
}

/// After this a server knows of every end that can matter.
async fn settled() {
    tokio::time::sleep(LINGERS).await;
}

#[tokio::test]
async fn a_viewer_that_we_have_just_ended_is_waited_for_at_every_replica() {
    let mut world = machine().await;
    let two = world.other_replica().await;
    settled().await;
    ended_viewer(&mut world).await;
    assert!(opened_after_refusals(&world).await, "at the same replica");
    drop(world.dialled().await);
    world.at_rest().await;
    settled().await;
    ended_viewer(&mut world).await;
    world.turn_to(two);
    assert!(opened_after_refusals(&world).await, "at the other one");
}

#[tokio::test]
async fn a_viewer_that_never_got_its_display_is_waited_for_too() {
    let world = machine().await;
    settled().await;
    // The machine turns out to be another one after the dial.
    let mut other = world.cluster.objects.lock()[MACHINE].clone();
    other["metadata"]["uid"] = json!("another-uid");
    let good = world.cluster.objects.lock()[MACHINE].clone();
    *world.cluster.swap.lock() = Some((MACHINE.to_owned(), other));
    assert!(world.open("demo/vnc", &BINARY).await.is_err());
    world
        .cluster
        .objects
        .lock()
        .insert(MACHINE.to_owned(), good);
    assert!(opened_after_refusals(&world).await);
}

#[tokio::test]
async fn a_stranger_is_named_at_once_where_no_viewer_of_ours_can_be_meant() {
    let world = machine().await;
    settled().await;
    *world.cluster.refuse.lock() = Some(busy());
    // One refusal is enough: a second try would get the display.
    let (code, status) = world.open("demo/vnc", &BINARY).await.unwrap_err();
    assert_eq!(code, 409);
    assert_eq!(status["details"]["causes"][0]["reason"], "HeldOutside");
}

#[tokio::test]
async fn a_machine_without_a_display_says_so_before_anything_is_dialled() {
    let mut world = World::new("vm").await;
    world.edit_machine(|vmi| {
        vmi["spec"] = json!({"domain": {"devices": {"autoattachGraphicsDevice": false}}});
    });
    let (code, status) = world.open("demo/vnc", &BINARY).await.unwrap_err();
    assert_eq!(code, 409);
    assert!(message(&status).contains("no display"));
    let (code, _) = world.request("GET", "demo/screenshot").await;
    assert_eq!(code, 409);
    assert!(world.nothing_dialled() && !world.has_session_of("vnc").await);
}

#[tokio::test]
async fn a_container_has_no_display_and_is_told_what_it_has() {
    let world = World::new("container").await;
    for answer in [world.open("demo/vnc", &BINARY).await.unwrap_err(), {
        let (code, body) = world.request("GET", "demo/screenshot").await;
        (code, serde_json::from_slice(&body).unwrap())
    }] {
        assert_eq!(answer.0, 400);
        let text = message(&answer.1);
        assert!(
            text.contains("kubectl exec -it -n t1 demo-0 -c main -- sh"),
            "{text}"
        );
        assert!(text.contains("kubectl workspace console demo"), "{text}");
    }
}

#[tokio::test]
async fn a_screenshot_is_a_picture_beside_whoever_looks() {
    let mut world = World::new("vm").await;
    let _viewer = world.open("demo/vnc", &BINARY).await.unwrap();
    let _upstream = world.dialled().await;
    let png = b"\x89PNG\r\n\x1a\n-pixels-".to_vec();
    *world.cluster.screenshot.lock() = (200, "image/png", png.clone());
    assert_eq!(
        world.request("GET", "demo/screenshot").await,
        (200, png.clone())
    );
    *world.cluster.screenshot.lock() = (200, "text/html", png);
    let (code, body) = world.request("GET", "demo/screenshot").await;
    assert_eq!(code, 500);
    assert!(!String::from_utf8_lossy(&body).contains("pixels"));
    let words = b"virtualmachineinstance.kubevirt.io \"demo\" not found".to_vec();
    *world.cluster.screenshot.lock() = (500, "text/plain", words);
    let (code, body) = world.request("GET", "demo/screenshot").await;
    assert_eq!(code, 503);
    assert!(String::from_utf8_lossy(&body).contains("not found"));
    assert_eq!(
        world.request("GET", "demo/screenshot?moveCursor=x").await.0,
        400
    );
}

#[tokio::test]
async fn a_display_that_ends_names_its_cause() {
    let mut world = World::new("vm").await;
    let (mut viewer, _) = world.open("demo/vnc", &BINARY).await.unwrap();
    let (_, upstream) = world.dialled().await;
    world.edit_machine(|vmi| vmi["status"]["nodeName"] = json!("n2"));
    drop(upstream);
    let close = closed(&mut viewer).await.unwrap();
    assert_eq!(u16::from(close.code), 4005);
    assert!(!world.has_session_of("vnc").await);
}
