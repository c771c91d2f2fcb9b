//! A relay against a scripted peer.

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex, split};
use tokio_tungstenite::tungstenite::protocol::Role;

use super::*;

type Peer = WebSocketStream<DuplexStream>;

/// The local side, the remote side, and the relay between them.
async fn start(wire: Wire) -> (DuplexStream, Peer, tokio::task::JoinHandle<End>) {
    let (local, ours) = duplex(64 << 10);
    let (near, far) = duplex(64 << 10);
    let stream = WebSocketStream::from_raw_socket(near, Role::Client, None).await;
    let peer = WebSocketStream::from_raw_socket(far, Role::Server, None).await;
    let (reader, writer) = split(ours);
    (
        local,
        peer,
        tokio::spawn(relay(reader, writer, stream, wire)),
    )
}

async fn hears(peer: &mut Peer) -> Vec<u8> {
    loop {
        match peer.next().await.unwrap().unwrap() {
            Message::Binary(bytes) => return bytes.to_vec(),
            Message::Close(frame) => panic!("closed: {frame:?}"),
            _ => {}
        }
    }
}

async fn says(peer: &mut Peer, bytes: &[u8]) {
    peer.send(Message::Binary(bytes.to_vec().into()))
        .await
        .unwrap();
}

/// Answers the close frame that must come.
async fn is_closed(peer: &mut Peer) {
    let frame = loop {
        match peer.next().await.unwrap().unwrap() {
            Message::Close(frame) => break frame.unwrap(),
            Message::Binary(bytes) => panic!("{bytes:?} after the end"),
            _ => {}
        }
    };
    assert_eq!(frame.code, CloseCode::Normal);
    while peer.next().await.is_some() {}
}

#[tokio::test]
async fn each_direction_ends_by_itself() {
    let (mut local, mut peer, relay) = start(Wire::Tunnel).await;
    local.write_all(b"question").await.unwrap();
    local.shutdown().await.unwrap();
    assert_eq!(hears(&mut peer).await, b"\0question");
    assert_eq!(hears(&mut peer).await, [END]);
    // the answer comes after the question has ended
    says(&mut peer, b"\0answer").await;
    says(&mut peer, &[END]).await;
    let mut answer = Vec::new();
    local.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer, b"answer");
    is_closed(&mut peer).await;
    assert_eq!(relay.await.unwrap(), End::Finished);
}

#[tokio::test]
async fn the_other_side_may_end_first() {
    let (mut local, mut peer, relay) = start(Wire::Tunnel).await;
    says(&mut peer, b"\0hello").await;
    says(&mut peer, &[END]).await;
    let mut heard = Vec::new();
    local.read_to_end(&mut heard).await.unwrap();
    assert_eq!(heard, b"hello");
    local.write_all(b"still").await.unwrap();
    assert_eq!(hears(&mut peer).await, b"\0still");
    local.shutdown().await.unwrap();
    assert_eq!(hears(&mut peer).await, [END]);
    is_closed(&mut peer).await;
    assert_eq!(relay.await.unwrap(), End::Finished);
}

#[tokio::test]
async fn without_half_close_our_end_ends_both() {
    let (mut local, mut peer, relay) = start(Wire::Binary).await;
    says(&mut peer, b"\x01hello").await;
    let mut heard = [0; 6];
    local.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"\x01hello");
    local.write_all(b"\x01bye").await.unwrap();
    local.shutdown().await.unwrap();
    assert_eq!(hears(&mut peer).await, b"\x01bye");
    is_closed(&mut peer).await;
    assert_eq!(relay.await.unwrap(), End::FinishedForBoth);
}

#[tokio::test]
async fn a_close_frame_ends_the_local_side_and_is_the_reason() {
    let (mut local, mut peer, relay) = start(Wire::Tunnel).await;
    says(&mut peer, b"\0last").await;
    let frame = CloseFrame {
        code: CloseCode::Library(4003),
        reason: "the workspace was stopped".into(),
    };
    peer.close(Some(frame)).await.unwrap();
    let mut heard = Vec::new();
    local.read_to_end(&mut heard).await.unwrap();
    assert_eq!(heard, b"last");
    let ending = Ending::Closed {
        code: 4003,
        reason: "the workspace was stopped".into(),
    };
    assert_eq!(relay.await.unwrap(), End::Stream(ending));
}

#[tokio::test]
async fn a_local_side_that_is_gone_ends_the_stream() {
    let (local, mut peer, relay) = start(Wire::Tunnel).await;
    drop(local);
    // its end is read first; writing to it fails
    assert_eq!(hears(&mut peer).await, [END]);
    says(&mut peer, b"\0nobody reads this").await;
    is_closed(&mut peer).await;
    assert_eq!(relay.await.unwrap(), End::LocalGone);
}

#[tokio::test]
async fn what_is_in_no_protocol_ends_the_stream_in_words() {
    let (_local, mut peer, relay) = start(Wire::Tunnel).await;
    says(&mut peer, b"\x07").await;
    let end = relay.await.unwrap();
    assert!(
        matches!(&end, End::Stream(Ending::Cut(why)) if why.contains('7')),
        "{end:?}"
    );
}

/// The remote side says more than any buffer holds, and nobody reads it here: what is said here passes all the same.
#[tokio::test]
async fn a_direction_that_is_stuck_does_not_hold_up_the_other() {
    const SIZE: usize = 4 << 20;
    let (local, peer, relay) = start(Wire::Tunnel).await;
    let (mut reader, mut writer) = split(local);
    let sending = tokio::spawn(async move {
        writer.write_all(&vec![7; SIZE]).await.unwrap();
        writer.shutdown().await.unwrap();
    });
    let (mut sink, mut source) = peer.split();
    let answering = tokio::spawn(async move {
        let message = Bytes::from([&[DATA][..], &[9; CHUNK]].concat());
        for _ in 0..SIZE / CHUNK {
            sink.send(Message::Binary(message.clone())).await.unwrap();
        }
        sink.send(Message::Binary(vec![END].into())).await.unwrap();
        sink
    });
    let mut received = 0;
    loop {
        match source.next().await.unwrap().unwrap() {
            Message::Binary(bytes) if bytes[0] == DATA => received += bytes.len() - 1,
            Message::Binary(_) => break,
            _ => {}
        }
    }
    sending.await.unwrap();
    assert!(!answering.is_finished(), "nobody has read the answer");
    let mut heard = Vec::new();
    reader.read_to_end(&mut heard).await.unwrap();
    assert_eq!((received, heard.len()), (SIZE, SIZE));
    let mut peer = answering.await.unwrap().reunite(source).unwrap();
    is_closed(&mut peer).await;
    assert_eq!(relay.await.unwrap(), End::Finished);
}
