//! What messages mean on both sides.

use super::*;

#[tokio::test]
async fn s_18_resizes_never_reach_a_serial_line_in_any_dialect() {
    for (subprotocol, resize, typed) in [
        (
            Subprotocol::Binary,
            Message::text(r#"{"type":"resize","cols":200,"rows":50}"#),
            Message::text("x"),
        ),
        (
            Subprotocol::ChannelV5,
            Message::binary(&b"\x04{\"Width\":200,\"Height\":50}"[..]),
            Message::binary(&b"\x00x"[..]),
        ),
    ] {
        let Bench {
            mut relay,
            client,
            upstream,
            ..
        } = bench(subprotocol, UpstreamWire::Serial);
        let mut client = speak(client, Role::Client).await;
        let mut upstream = speak(upstream, Role::Server).await;
        client.send(resize.clone()).await.unwrap();
        client.send(typed).await.unwrap();
        let received = tokio::select! {
            end = relay.run() => panic!("{end:?}"),
            all = bytes(&mut upstream, 1) => all,
        };
        assert_eq!(received, b"x");
    }
}

#[tokio::test]
async fn the_end_of_input_is_typed_until_the_command_ends_and_said_once_in_a_pipe() {
    for (stdio, said) in [
        (Stdio::Terminal, Bytes::from_static(b"\x00\x04")),
        (Stdio::Pipes, Bytes::from_static(b"\xff\x00")),
    ] {
        let wire = UpstreamWire::exec(stdio);
        let Bench {
            mut relay,
            client,
            upstream,
            ..
        } = bench_with(Subprotocol::ChannelV5, wire, quick());
        let mut client = speak(client, Role::Client).await;
        let mut upstream = speak(upstream, Role::Server).await;
        let end = Message::binary(&b"\xff\x00"[..]);
        client.send(end).await.unwrap();
        let reads = tokio::spawn(async move { while client.next().await.is_some() {} });
        let mut heard: Vec<Bytes> = Vec::new();
        let mut pings = 0;
        let hearing = async {
            while pings < 4 {
                match upstream.next().await.unwrap().unwrap() {
                    Message::Binary(bytes) => heard.push(bytes),
                    Message::Ping(_) => pings += 1,
                    other => panic!("{other:?}"),
                }
            }
        };
        tokio::select! {
            end = relay.run() => panic!("{end:?}"),
            () = hearing => {}
        }
        assert!(heard.iter().all(|bytes| *bytes == said), "{heard:?}");
        let again = stdio == Stdio::Terminal;
        assert_eq!((heard.is_empty(), heard.len() > 1), (false, again));
        reads.abort();
    }
}

#[tokio::test]
async fn a_shell_gets_sizes_and_gives_its_exit_status() {
    let wire = UpstreamWire::exec(Stdio::Terminal);
    let Bench {
        mut relay,
        client,
        upstream,
        ..
    } = bench(Subprotocol::ChannelV5, wire);
    let mut client = speak(client, Role::Client).await;
    let mut upstream = speak(upstream, Role::Server).await;
    let size = Message::binary(&b"\x04{\"Width\":200,\"Height\":50}"[..]);
    client.send(size.clone()).await.unwrap();
    let first = tokio::select! {
        end = relay.run() => panic!("{end:?}"),
        message = upstream.next() => message.unwrap().unwrap(),
    };
    assert_eq!(first, size);
    let status = br#"{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"7"}]}}"#;
    upstream
        .send(Message::binary([&[1], &b"bye"[..]].concat()))
        .await
        .unwrap();
    upstream
        .send(Message::binary([&[3], &status[..]].concat()))
        .await
        .unwrap();
    assert_eq!(relay.run().await, End::Exited(Exit::Code(7)));
    let ending = tokio::spawn(async move { relay.end_client(&CloseReason::Exited(7)).await });
    assert_eq!(
        client.next().await.unwrap().unwrap(),
        Message::binary(&b"\x01bye"[..])
    );
    let Message::Binary(status) = client.next().await.unwrap().unwrap() else {
        panic!("no status");
    };
    assert_eq!(status[0], 3);
    assert!(String::from_utf8_lossy(&status).contains(r#""message":"7""#));
    let Message::Close(Some(close)) = client.next().await.unwrap().unwrap() else {
        panic!("no close");
    };
    assert_eq!(u16::from(close.code), 1000);
    drop(client);
    ending.await.unwrap();
}

#[tokio::test]
async fn a_terminal_in_this_process_has_sizes_and_an_exit_after_its_last_byte() {
    let (sizes, mut size) = tokio::sync::watch::channel(None);
    let (exit, exited) = tokio::sync::oneshot::channel();
    let terminal = Terminal {
        sizes,
        exit: exited,
    };
    let (client, ours) = duplex(PIPE);
    let (mut upstream, theirs) = duplex(PIPE);
    let traffic = Arc::new(Traffic::new(tokio::time::Instant::now().into_std()));
    let mut relay = Relay::new(
        ClientSide::new(ours, ClientWire::terminal(Subprotocol::Binary)),
        Upstream::Bytes(theirs, Some(terminal)),
        traffic,
        Limits::default(),
    );
    let mut client = speak(client, Role::Client).await;
    let resize = r#"{"type":"resize","cols":200,"rows":50}"#;
    client.send(Message::text(resize)).await.unwrap();
    client.send(Message::binary(&b"exit\r"[..])).await.unwrap();
    let session = tokio::spawn(async move {
        let mut typed = [0; 5];
        upstream.read_exact(&mut typed).await.unwrap();
        size.wait_for(Option::is_some).await.unwrap();
        upstream.write_all(b"logout").await.unwrap();
        exit.send(Exit::Code(3)).unwrap();
        (typed, *size.borrow())
    });
    assert_eq!(relay.run().await, End::Exited(Exit::Code(3)));
    let (typed, size) = session.await.unwrap();
    assert_eq!(&typed, b"exit\r");
    assert_eq!(size.map(|size| (size.cols, size.rows)), Some((200, 50)));
    let ending = tokio::spawn(async move { relay.end_client(&CloseReason::Exited(3)).await });
    assert_eq!(bytes(&mut client, 6).await, b"logout");
    drop(client);
    ending.await.unwrap();
}
