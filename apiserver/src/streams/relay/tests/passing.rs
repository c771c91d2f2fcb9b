//! Bytes arrive whole, in order and within the bound.

use super::*;

#[tokio::test]
async fn s_19_a_long_paste_reaches_a_slow_guest_whole_as_one_message_of_any_length() {
    let Bench {
        mut relay,
        client,
        upstream,
        traffic,
    } = console();
    let paste = noise(1024 * 1024);
    let expected = paste.clone();
    let mut client = speak(client, Role::Client).await;
    let mut upstream = speak(upstream, Role::Server).await;
    let typing = tokio::spawn(async move {
        client.send(Message::Binary(paste.into())).await.unwrap();
        client
    });
    let reading = tokio::spawn(async move {
        let mut all = Vec::new();
        while all.len() < 1024 * 1024 {
            tokio::task::yield_now().await;
            let more = bytes(&mut upstream, 1).await;
            all.extend(more);
        }
        (all, upstream)
    });
    let ((received, _upstream), _client) = tokio::select! {
        end = relay.run() => panic!("{end:?}"),
        both = async { (reading.await.unwrap(), typing.await.unwrap()) } => both,
    };
    assert!(received == expected, "no loss, no merge");
    assert_eq!(traffic.received(), 1024 * 1024);
}

#[tokio::test]
async fn s_20_output_that_is_not_utf8_arrives_as_binary_and_identical() {
    let Bench {
        mut relay,
        client,
        upstream,
        traffic,
    } = console();
    let mut client = speak(client, Role::Client).await;
    let mut upstream = speak(upstream, Role::Server).await;
    let printed = noise(65_536);
    let sent = printed.clone();
    let printing = tokio::spawn(async move {
        for chunk in sent.chunks(10_240) {
            upstream
                .send(Message::binary(chunk.to_vec()))
                .await
                .unwrap();
        }
        upstream
    });
    let received = tokio::select! {
        end = relay.run() => panic!("{end:?}"),
        all = bytes(&mut client, printed.len()) => all,
    };
    assert!(received == printed);
    assert_eq!(traffic.sent(), 65_536);
    printing.await.unwrap();
}

#[tokio::test]
async fn backpressure_stops_the_writer_within_the_bound() {
    let Bench {
        mut relay,
        mut client,
        upstream,
        ..
    } = console();
    let mut written = 0usize;
    // 125 bytes of payload, masked with zeros.
    let frame = [&[0x82, 0x80 | 125, 0, 0, 0, 0][..], &[b'x'; 125]].concat();
    let flood = async {
        loop {
            client.write_all(&frame).await.unwrap();
            written += frame.len();
        }
    };
    let stuck = tokio::time::timeout(Duration::from_millis(300), async {
        tokio::select! { _ = relay.run() => {}, () = flood => {} }
    });
    assert!(stuck.await.is_err(), "nobody reads: both sides wait");
    assert!(
        written < 64 * 1024 + 2 * PIPE + 1024,
        "{written} bytes were taken"
    );
    drop(upstream);
}

#[tokio::test]
async fn s_19_five_hundred_keys_at_once_arrive_in_their_order_and_the_last_is_a_release() {
    let Bench {
        mut relay,
        client,
        upstream,
        ..
    } = bench(Subprotocol::Binary, UpstreamWire::Display);
    let mut client = speak(client, Role::Client).await;
    let mut upstream = speak(upstream, Role::Server).await;
    let key = |turn: usize, down: u8| [4, down, 0, 0, 0, 0, 0, b'A' + (turn % 26) as u8];
    let events: Vec<[u8; 8]> = (0..500).flat_map(|i| [key(i, 1), key(i, 0)]).collect();
    let sent = events.clone();
    let typing = tokio::spawn(async move {
        for event in sent {
            client.send(Message::binary(event.to_vec())).await.unwrap();
        }
        client
    });
    let received = tokio::select! {
        end = relay.run() => panic!("{end:?}"),
        all = bytes(&mut upstream, events.len() * 8) => all,
    };
    assert!(received == events.concat());
    assert_eq!(received[received.len() - 7], 0);
    drop(typing.await.unwrap());
}

#[tokio::test]
async fn s_20_pings_and_closes_fit_where_a_frame_stopped_half_way() {
    let Bench {
        mut relay,
        mut client,
        upstream,
        traffic,
    } = quick_console();
    let mut upstream = speak(upstream, Role::Server).await;
    // A frame of a megabyte, of which six bytes come in two parts.
    let head = [0x82, 0xff, 0, 0, 0, 0, 0, 0x10, 0, 0, 1, 2, 3, 4];
    let parts = [
        &[b'a' ^ 1][..],
        &[b'b' ^ 2, b'c' ^ 3, b'd' ^ 4, b'e' ^ 1, b'f' ^ 2],
    ];
    let heard = async {
        client.write_all(&[&head, parts[0]].concat()).await.unwrap();
        let mut all = bytes(&mut upstream, 1).await;
        client.write_all(parts[1]).await.unwrap();
        all.extend(bytes(&mut upstream, 5).await);
        let ping = upstream.next().await.unwrap().unwrap();
        (all, ping)
    };
    let (all, ping) = tokio::select! {
        end = relay.run() => panic!("{end:?}"),
        heard = heard => heard,
    };
    assert_eq!(all, b"abcdef");
    assert!(matches!(ping, Message::Ping(_)), "{ping:?}");
    assert_eq!(traffic.received(), 6);
    let ending = tokio::spawn(async move { relay.end_upstream().await });
    let close = upstream.next().await;
    assert!(matches!(close, Some(Ok(Message::Close(_)))), "{close:?}");
    drop(upstream);
    ending.await.unwrap();
    drop(client);
}

#[tokio::test]
async fn messages_of_all_sizes_pass_both_ways_at_once_and_text_is_bytes() {
    let Bench {
        mut relay,
        client,
        upstream,
        traffic,
    } = console();
    let mut client = speak(client, Role::Client).await;
    let mut upstream = speak(upstream, Role::Server).await;
    let sizes = [
        1usize, 125, 126, 300, 4_000, 16_384, 65_535, 65_536, 100_000, 2,
    ];
    let all = noise(sizes.iter().sum());
    let messages = |text: &'static str| {
        let mut rest = &all[..];
        let mut messages = vec![Message::text(text)];
        for size in sizes {
            let (now, later) = rest.split_at(size);
            messages.push(Message::binary(now.to_vec()));
            rest = later;
        }
        messages
    };
    let expected = |text: &str| [text.as_bytes(), &all].concat();
    let (typed, printed) = (messages("ls\r"), messages("$ "));
    let (typing, printing) = (expected("ls\r"), expected("$ "));
    let lengths = (typing.len(), printing.len());
    let near = tokio::spawn(async move {
        for message in typed {
            client.send(message).await.unwrap();
        }
        (bytes(&mut client, lengths.1).await, client)
    });
    let far = tokio::spawn(async move {
        let got = bytes(&mut upstream, lengths.0).await;
        for message in printed {
            upstream.send(message).await.unwrap();
        }
        (got, upstream)
    });
    let (near, far) = tokio::select! {
        end = relay.run() => panic!("{end:?}"),
        both = async { (near.await.unwrap(), far.await.unwrap()) } => both,
    };
    assert!(far.0 == typing && near.0 == printing);
    assert_eq!(
        (traffic.received(), traffic.sent()),
        (lengths.0 as u64, lengths.1 as u64)
    );
}
