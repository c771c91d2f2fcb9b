//! `workspaces/ssh?mode=terminal`, from a client's socket to a scripted guest's SSH server. Real ones
//! are met in `tests/tests/ssh.rs`; the scripted one is in [`sshd`].

use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use super::{
    sshd::{self, hello},
    world::{Client, MACHINE, World, closed, data},
};

const PATH: &str = "demo/ssh?cols=100&rows=30";
const BINARY: [(&str, &str); 1] = [("sec-websocket-protocol", "binary")];

/// A world whose guest answers on port 22.
async fn world() -> World {
    let world = World::new("vm").await;
    let listener = world.pods.listen().await;
    tokio::spawn(async move {
        while let Ok((io, _)) = listener.accept().await {
            sshd::serve(io);
        }
    });
    world
}

async fn open(world: &World) -> Client {
    let (mut client, _) = world.open(PATH, &BINARY).await.unwrap();
    client.send(hello("debian", 2)).await.unwrap();
    client
}

/// The next text message, then the close.
async fn told(client: &mut Client) -> (Value, u16) {
    loop {
        match client.next().await.unwrap().unwrap() {
            Message::Text(text) => {
                let close = closed(client).await.unwrap();
                return (serde_json::from_str(&text).unwrap(), close.code.into());
            }
            Message::Binary(_) | Message::Ping(_) | Message::Pong(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_terminal_has_a_size_an_echo_and_an_exit_status() {
    let world = world().await;
    let mut client = open(&world).await;
    assert_eq!(data(&mut client, 22).await, b"xterm-256color 100x30;");
    client
        .send(Message::binary(&b"\xff\xfe"[..]))
        .await
        .unwrap();
    assert_eq!(data(&mut client, 2).await, b"\xff\xfe");
    let resize = r#"{"type":"resize","cols":132,"rows":43}"#;
    client.send(Message::text(resize)).await.unwrap();
    assert_eq!(data(&mut client, 12).await, b"size 132x43;");
    client.send(Message::binary(&b"exit"[..])).await.unwrap();
    assert_eq!(
        told(&mut client).await,
        (json!({"type": "exit", "code": 7}), 1000)
    );
    assert!(
        !world.has_session_of("ssh").await,
        "gone before the client knows"
    );

    let mut client = open(&world).await;
    data(&mut client, 22).await;
    client.send(Message::binary(&b"kill"[..])).await.unwrap();
    let (message, code) = told(&mut client).await;
    assert_eq!((&message["signal"], code), (&json!("TERM"), 1000));
}

#[tokio::test]
async fn a_terminal_has_one_holder_and_can_be_taken_over() {
    let world = world().await;
    let mut first = open(&world).await;
    data(&mut first, 22).await;
    assert!(world.has_session_of("ssh").await);
    let joe = [("x-user", "joe"), BINARY[0]];
    let (code, status) = world.open("demo/ssh", &joe).await.unwrap_err();
    assert_eq!(
        (code, &status["details"]["causes"][0]["reason"]),
        (409, &json!("SessionHeld"))
    );
    world.verbs.0.lock().insert("delete");
    let (second, (message, code)) =
        tokio::join!(world.open("demo/ssh?takeover=true", &joe), told(&mut first));
    assert_eq!(
        (message["reason"].as_str(), code),
        (Some("taken-over"), 1000)
    );
    let (mut second, _) = second.unwrap();
    second.send(hello("debian", 2)).await.unwrap();
    data(&mut second, 21).await;
    second.close(None).await.unwrap();
}

#[tokio::test]
async fn a_first_message_that_cannot_be_used_ends_the_stream_with_the_reason() {
    let world = world().await;
    let long = format!("{{\"type\":\"ssh\",\"x\":\"{}\"}}", "x".repeat(20_000));
    for (sent, reason, code) in [
        (Message::text("ls"), "BadMessage", 1002),
        (Message::binary(&b"ls"[..]), "BadMessage", 1002),
        (Message::text(long), "BadMessage", 1009),
        (
            Message::text(r#"{"type":"ssh","user":"u","privateKey":"k"}"#),
            "BadKey",
            1002,
        ),
        (hello("root", 2), "AuthenticationFailed", 1011),
        (hello("debian", 3), "AuthenticationFailed", 1011),
    ] {
        let (mut client, _) = world.open(PATH, &BINARY).await.unwrap();
        client.send(sent.clone()).await.unwrap();
        let (message, closed) = told(&mut client).await;
        assert_eq!(
            (message["reason"].as_str(), closed),
            (Some(reason), code),
            "{message}"
        );
        assert!(!world.has_session_of("ssh").await, "{reason}");
    }
    // A client that leaves instead frees the name, too.
    let (mut client, _) = world.open(PATH, &BINARY).await.unwrap();
    client.close(None).await.unwrap();
    assert!(closed(&mut client).await.is_some());
    assert!(!world.has_session_of("ssh").await);
}

#[tokio::test]
async fn s_10_the_end_of_the_guest_ends_its_terminal_with_the_cause() {
    let world = world().await;
    let mut client = open(&world).await;
    data(&mut client, 22).await;
    world.cluster.objects.lock().remove(MACHINE);
    let (message, code) = told(&mut client).await;
    assert_eq!(
        (message["reason"].as_str(), code),
        (Some("guest-gone"), 4006)
    );
}

#[tokio::test]
async fn what_has_no_terminal_is_refused_before_the_upgrade() {
    let world = World::new("container").await;
    let (code, status) = world.open("demo/ssh", &BINARY).await.unwrap_err();
    let message = status["message"].as_str().unwrap();
    assert!(
        code == 400 && message.contains("kubectl workspace console demo"),
        "{message}"
    );
    let world = world_without_sshd().await;
    let (code, status) = world.open("demo/ssh", &BINARY).await.unwrap_err();
    let message = status["message"].as_str().unwrap();
    assert!(
        code == 503 && message.contains("closed the connection"),
        "{message}"
    );
    assert!(!world.has_session_of("ssh").await);
    let (code, _) = world
        .open("demo/ssh?cols=0&rows=1", &BINARY)
        .await
        .unwrap_err();
    assert_eq!(code, 400);
}

/// A guest that hangs up.
async fn world_without_sshd() -> World {
    let world = World::new("vm").await;
    let listener = world.pods.listen().await;
    tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    world
}

#[tokio::test]
async fn accepting_host_keys_takes_the_right_to_update_the_workspace() {
    let world = world().await;
    for path in [
        "demo/ssh?acceptNewHostKey=true",
        "demo/ssh?mode=tunnel&acceptNewHostKey=true",
    ] {
        let (code, status) = world.open(path, &BINARY).await.unwrap_err();
        let message = status["message"].as_str().unwrap();
        assert!(
            code == 403 && message.contains("cannot update resource \"workspaces\""),
            "{message}"
        );
    }
    world.verbs.0.lock().insert("update");
    assert!(
        world
            .open("demo/ssh?acceptNewHostKey=true", &BINARY)
            .await
            .is_ok()
    );
}
