//! A session against a scripted WebSocket peer.

use tokio::io::{AsyncWriteExt, DuplexStream, duplex};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::*;

/// The user's side of a session under test.
struct User {
    keyboard: DuplexStream,
    screen: DuplexStream,
    sizes: mpsc::Sender<(u16, u16)>,
    session: tokio::task::JoinHandle<Outcome>,
}

type Peer = WebSocketStream<DuplexStream>;

async fn start(framing: Framing, interactive: bool) -> (User, Peer) {
    let (ours, theirs) = duplex(64 << 10);
    let (keyboard, input) = duplex(4 << 10);
    let (output, screen) = duplex(64 << 10);
    let (resized, sizes) = mpsc::channel(1);
    let stream = WebSocketStream::from_raw_socket(ours, Role::Client, None).await;
    let peer = WebSocketStream::from_raw_socket(theirs, Role::Server, None).await;
    let relay = Relay {
        input,
        output,
        errors: tokio::io::sink(),
        framing,
        interactive,
        sizes,
    };
    let session = tokio::spawn(relay.run(stream));
    (
        User {
            keyboard,
            screen,
            sizes: resized,
            session,
        },
        peer,
    )
}

async fn sees(user: &mut User, expected: &[u8]) {
    let mut bytes = vec![0; expected.len()];
    user.screen.read_exact(&mut bytes).await.unwrap();
    assert_eq!(bytes, expected);
}

async fn hears(peer: &mut Peer) -> Message {
    peer.next().await.unwrap().unwrap()
}

#[tokio::test]
async fn bytes_pass_in_both_directions_and_pings_are_answered() {
    let (mut user, mut peer) = start(Framing::Raw, true).await;
    peer.send(Message::Ping("p".into())).await.unwrap();
    assert_eq!(hears(&mut peer).await, Message::Pong("p".into()));
    peer.send(Message::Binary("login: ".into())).await.unwrap();
    sees(&mut user, b"login: ").await;
    user.keyboard.write_all(b"root\r").await.unwrap();
    assert_eq!(hears(&mut peer).await, Message::Binary("root\r".into()));
}

#[tokio::test]
async fn the_escape_ends_the_session_and_says_goodbye() {
    let (mut user, mut peer) = start(Framing::Raw, true).await;
    user.keyboard.write_all(b"\x1dnever sent").await.unwrap();
    assert_eq!(user.session.await.unwrap(), Outcome::Escaped);
    let mut heard = Vec::new();
    while let Some(Ok(message)) = peer.next().await {
        heard.push(message);
    }
    assert!(
        matches!(heard.last(), Some(Message::Close(Some(frame))) if frame.code == CloseCode::Normal),
        "{heard:?}"
    );
    assert!(
        !heard
            .iter()
            .any(|m| matches!(m, Message::Binary(b) if b.starts_with(b"never"))),
        "{heard:?}"
    );
}

#[tokio::test]
async fn the_escape_works_on_a_connection_that_takes_nothing() {
    let (mut user, _silent) = start(Framing::Raw, true).await;
    for _ in 0..64 {
        user.keyboard.write_all(&[b'x'; 4 << 10]).await.unwrap();
    }
    user.keyboard.write_all(b"\x1d").await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(1), user.session).await;
    assert_eq!(ended.unwrap().unwrap(), Outcome::Escaped);
}

#[tokio::test]
async fn in_a_pipe_the_escape_is_a_byte_and_the_end_of_input_leaves_the_reading_open() {
    let (mut user, mut peer) = start(Framing::Raw, false).await;
    user.keyboard.write_all(b"a\x1db").await.unwrap();
    assert_eq!(
        hears(&mut peer).await,
        Message::Binary(b"a\x1db".as_slice().into())
    );
    user.keyboard.shutdown().await.unwrap();
    peer.send(Message::Binary("more".into())).await.unwrap();
    sees(&mut user, b"more").await;
}

#[tokio::test]
async fn a_closed_output_ends_the_session() {
    let (user, mut peer) = start(Framing::Raw, false).await;
    drop(user.screen);
    peer.send(Message::Binary("x".into())).await.unwrap();
    assert_eq!(user.session.await.unwrap(), Outcome::OutputClosed);
}

#[tokio::test]
async fn the_close_code_and_reason_are_what_the_session_ends_with() {
    let (user, mut peer) = start(Framing::Raw, true).await;
    let frame = CloseFrame {
        code: CloseCode::Library(4003),
        reason: "stopped".into(),
    };
    peer.close(Some(frame)).await.unwrap();
    let ending = Ending::Closed {
        code: 4003,
        reason: "stopped".into(),
    };
    assert_eq!(user.session.await.unwrap(), Outcome::Ended(ending));
}

#[tokio::test]
async fn a_connection_that_breaks_is_told_from_one_that_is_closed() {
    let (user, peer) = start(Framing::Raw, true).await;
    drop(peer);
    assert!(matches!(
        user.session.await.unwrap(),
        Outcome::Ended(Ending::Cut(_))
    ));
}

#[tokio::test]
async fn a_shell_has_channels_resizes_an_end_of_input_and_an_exit_status() {
    let (mut user, mut peer) = start(Framing::Channels { half_close: true }, false).await;
    user.sizes.send((80, 24)).await.unwrap();
    assert_eq!(
        hears(&mut peer).await,
        Message::Binary(channel::resize(80, 24))
    );
    user.keyboard.write_all(b"exit 3\n").await.unwrap();
    assert_eq!(
        hears(&mut peer).await,
        Message::Binary(channel::frame(channel::STDIN, b"exit 3\n"))
    );
    user.keyboard.shutdown().await.unwrap();
    assert_eq!(
        hears(&mut peer).await,
        Message::Binary(channel::close_stdin())
    );
    peer.send(Message::Binary(channel::frame(1, b"bye")))
        .await
        .unwrap();
    sees(&mut user, b"bye").await;
    let status = br#"{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}"#;
    peer.send(Message::Binary(channel::frame(3, status)))
        .await
        .unwrap();
    peer.close(None).await.unwrap();
    assert_eq!(user.session.await.unwrap(), Outcome::Exited(Exit::Code(3)));
}
