//! How a relay ends, and what both sides hear of it.

use super::*;

#[tokio::test]
async fn a_clients_close_is_echoed_after_the_upstream_is_gone() {
    let Bench {
        mut relay,
        client,
        upstream,
        ..
    } = console();
    let mut client = speak(client, Role::Client).await;
    let mut upstream = speak(upstream, Role::Server).await;
    client
        .send(Message::binary(&b"last words"[..]))
        .await
        .unwrap();
    client.close(None).await.unwrap();
    assert_eq!(relay.run().await, End::ClientClosed);
    let ending = tokio::spawn(async move {
        relay.end_upstream().await;
        relay.end_client(&CloseReason::ClientClosed).await;
    });
    assert_eq!(bytes(&mut upstream, 10).await, b"last words");
    assert!(matches!(upstream.next().await, Some(Ok(Message::Close(_)))));
    drop(upstream);
    assert!(matches!(client.next().await, Some(Ok(Message::Close(_)))));
    ending.await.unwrap();
}

#[tokio::test]
async fn an_abrupt_end_of_the_upstream_is_an_end_without_words() {
    let Bench {
        mut relay,
        client,
        upstream,
        ..
    } = console();
    drop(upstream);
    assert_eq!(relay.run().await, End::UpstreamClosed(None));
    let mut client = speak(client, Role::Client).await;
    let ending = tokio::spawn(async move { relay.end_client(&CloseReason::GuestGone).await });
    let Some(Ok(Message::Close(Some(close)))) = client.next().await else {
        panic!("no close");
    };
    assert_eq!(
        (u16::from(close.code), close.reason.as_str()),
        (4006, CloseReason::GuestGone.text().as_str())
    );
    drop(client);
    ending.await.unwrap();
}

#[tokio::test]
async fn an_abrupt_end_of_the_client_is_seen_at_once() {
    let Bench {
        mut relay, client, ..
    } = console();
    drop(client);
    assert_eq!(relay.run().await, End::ClientGone);
}

#[tokio::test]
async fn s_20_an_orphan_continuation_ends_with_1002_and_a_ping_between_fragments_is_answered() {
    let Bench {
        mut relay,
        mut client,
        mut upstream,
        ..
    } = console();
    let wire = [
        &[0x01, 0x81, 0, 0, 0, 0, b'a'][..],
        &[0x89, 0x81, 0, 0, 0, 0, b'p'],
        &[0x80, 0x81, 0, 0, 0, 0, b'b'],
        &[0x80, 0x80, 0, 0, 0, 0],
    ];
    client.write_all(&wire.concat()).await.unwrap();
    let end = relay.run().await;
    assert_eq!(
        end,
        End::ClientViolation("a continuation without a message to continue")
    );
    tokio::spawn(async move {
        relay.end_upstream().await;
        relay.end_client(&CloseReason::Protocol("orphan")).await;
    });
    let mut pong = [0; 3];
    let mut masked = [0; 14];
    upstream.read_exact(&mut masked).await.unwrap();
    assert_eq!(
        (masked[0], masked[6] ^ masked[2], masked[13] ^ masked[9]),
        (0x82, b'a', b'b')
    );
    drop(upstream);
    client.read_exact(&mut pong).await.unwrap();
    assert_eq!(pong, [0x8a, 1, b'p']);
    let mut close = [0; 4];
    client.read_exact(&mut close).await.unwrap();
    assert_eq!(
        (close[0], u16::from_be_bytes([close[2], close[3]])),
        (0x88, 1002)
    );
}
