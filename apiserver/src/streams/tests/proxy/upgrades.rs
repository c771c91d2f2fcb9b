//! WebSockets: bytes both ways, until somebody ends them.

use serde_json::json;

use super::*;
use crate::streams::{opening::StreamOptions, recheck::Times, tests::world::MACHINE};

const UPGRADE: &str = "connection: keep-alive, Upgrade\r\nupgrade: WebSocket\r\n\
    sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
    sec-websocket-extensions: permessage-deflate\r\n\
    sec-websocket-protocol: base64url.bearer.authorization.k8s.io.c2VjcmV0, chat\r\n";
const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
    sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nsec-websocket-extensions: permessage-deflate\r\n\
    sec-websocket-protocol: chat\r\n\r\n";

/// A tunnel that is open.
async fn open(proxied: &Proxied) -> (Side, Side) {
    let (mut client, mut guest, _) = proxied.exchange("GET /ws?x=1", UPGRADE).await;
    guest.send(SWITCH).await;
    assert_eq!(code(&client.head().await), 101);
    (client, guest)
}

#[tokio::test]
async fn a_tunnel_carries_every_byte_from_the_first() {
    let proxied = Proxied::new().await;
    // What a client sends with its handshake, and a guest with its answer, is not lost.
    let mut client = proxied
        .ask("GET /ws?x=1", &format!("{UPGRADE}\r\nearly"))
        .await;
    let mut guest = proxied.guest().await;
    let head = guest.head().await;
    assert!(head.starts_with("GET /ws?x=1 HTTP/1.1\r\n"), "{head}");
    assert_eq!(header(&head, "upgrade"), ["websocket"]);
    assert_eq!(header(&head, "sec-websocket-protocol"), ["chat"]);
    assert!(!head.contains("c2VjcmV0"), "{head}");
    assert_eq!(
        header(&head, "sec-websocket-extensions"),
        ["permessage-deflate"]
    );
    guest.send(format!("{SWITCH}hello")).await;
    let head = client.head().await;
    assert_eq!(header(&head, "connection"), ["Upgrade"]);
    assert_eq!(header(&head, "sec-websocket-protocol"), ["chat"]);
    assert_eq!(header(&head, "sec-websocket-accept").len(), 1);
    client.expect("hello").await;
    guest.expect("early").await;
    client.send([0x81, 0xff, 0x00]).await;
    guest.expect([0x81, 0xff, 0x00]).await;
    drop(guest);
    client.left().await;
}

#[tokio::test]
async fn what_is_no_websocket_does_not_pass() {
    let proxied = Proxied::new().await;
    for (line, headers, expected) in [
        ("GET /", "connection: upgrade\r\nupgrade: h2c\r\n", 400),
        ("GET /", "upgrade: websocket\r\n", 400),
        ("POST /", UPGRADE, 400),
    ] {
        let answer = proxied.refused(line, headers).await;
        assert_eq!(code(&answer), expected, "{line} {headers}: {answer}");
    }
    let foreign = format!("{UPGRADE}origin: https://evil.example\r\n");
    let answer = proxied.refused("GET /", &foreign).await;
    assert_eq!(code(&answer), 403, "{answer}");
    for body in ["content-length: 5\r\n", "transfer-encoding: chunked\r\n"] {
        let answer = proxied.refused("GET /", &format!("{UPGRADE}{body}")).await;
        assert_eq!(code(&answer), 400, "{body}: {answer}");
        assert!(answer.contains("has no body"), "{answer}");
    }
    for (answer, expected) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", 502),
        (
            "HTTP/1.1 101 X\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n",
            502,
        ),
        (
            "HTTP/1.1 426 X\r\nsec-websocket-version: 8\r\ncontent-length: 0\r\n\r\n",
            426,
        ),
        ("HTTP/1.1 404 X\r\ncontent-length: 0\r\n\r\n", 404),
    ] {
        let got = proxied.answered("GET /", UPGRADE, answer).await;
        assert_eq!(code(&got), expected, "{got}");
    }
}

#[tokio::test]
async fn an_allowed_page_opens_one() {
    let options = StreamOptions {
        allowed_origins: vec!["https://desk.example.org".into()],
        ..StreamOptions::default()
    };
    let proxied = Proxied::of(World::with("vm", options).await).await;
    let own = format!("{UPGRADE}origin: https://desk.example.org\r\n");
    let (_client, _guest, head) = proxied.exchange("GET /", &own).await;
    assert_eq!(header(&head, "origin"), ["https://desk.example.org"]);
}

#[tokio::test]
async fn a_right_that_is_gone_ends_tunnels_and_answers() {
    let options = StreamOptions {
        recheck: Times {
            every: Duration::from_millis(100),
            ..Times::default()
        },
        ..StreamOptions::default()
    };
    let mut proxied = Proxied::of(World::with("vm", options).await).await;
    let (client, guest) = open(&proxied).await;
    let (mut events, mut source, _) = proxied.exchange("GET /events", "").await;
    source.send("HTTP/1.1 200 OK\r\n\r\n1").await;
    events.head().await;
    events.expect("1\r\n1\r\n").await;
    let silent = proxied
        .exchange("GET /silent", "connection: close\r\n")
        .await;
    proxied.world.verbs.0.lock().clear();
    client.left().await;
    guest.left().await;
    let rest = events.rest().await;
    assert!(!rest.contains("0\r\n"), "it does not look whole: {rest}");
    source.left().await;
    let answer = silent.0.rest().await;
    assert_eq!(code(&answer), 403, "{answer}");
    proxied.world.at_rest().await;
}

#[tokio::test]
async fn a_machine_that_is_over_ends_what_its_silence_would_not() {
    let mut proxied = Proxied::new().await;
    let (client, guest) = open(&proxied).await;
    let (mut events, mut source, _) = proxied.exchange("GET /events", "").await;
    source.send("HTTP/1.1 200 OK\r\n\r\n1").await;
    events.head().await;
    events.expect("1\r\n1\r\n").await;
    proxied.world.cluster.objects.lock().remove(MACHINE);
    client.left().await;
    guest.left().await;
    let rest = events.rest().await;
    assert!(!rest.contains("0\r\n"), "{rest}");
    proxied.world.at_rest().await;
}

#[tokio::test]
async fn a_server_that_ends_cuts_tunnels_and_lets_answers_finish() {
    let proxied = Proxied::new().await;
    let (client, _guest) = open(&proxied).await;
    let (mut answer, mut source, _) = proxied.exchange("GET /", "").await;
    proxied.world.draining.cancel();
    client.left().await;
    source
        .send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        .await;
    assert_eq!(code(&answer.head().await), 200);
    answer.expect("ok").await;
    let refused = proxied.ask("GET /", "connection: close\r\n\r\n").await;
    assert_eq!(code(&refused.rest().await), 503);
}

#[tokio::test]
async fn a_workspace_that_was_replaced_is_not_reached() {
    let proxied = Proxied::new().await;
    *proxied.world.pods.refuse.lock() = None;
    proxied.world.edit_machine(|vmi| {
        vmi["metadata"]["ownerReferences"][0]["uid"] = json!("another");
    });
    let answer = proxied.refused("GET /", UPGRADE).await;
    assert_eq!(code(&answer), 409, "{answer}");
}
