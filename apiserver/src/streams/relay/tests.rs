//! The relay between scripted peers. The peers speak through another WebSocket implementation, or
//! by bare bytes where they have to misbehave.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, protocol::Role},
};

use super::{Activity, ClientSide, End, Limits, Pace, Relay, Terminal, Traffic, Upstream};
use crate::streams::{
    close::CloseReason,
    negotiate::Subprotocol,
    wire::{ClientWire, Exit, Stdio, UpstreamWire},
};

const PIPE: usize = 4096;

struct Bench {
    relay: Relay<DuplexStream, DuplexStream>,
    client: DuplexStream,
    upstream: DuplexStream,
    traffic: Arc<Traffic>,
}

/// Real times, a thousandth as long.
fn quick() -> Limits {
    Limits {
        pace: Pace {
            ping_every: Duration::from_millis(15),
            no_progress: Duration::from_millis(600),
            goodbye: Duration::from_secs(2),
        },
        idle: Some((Duration::from_millis(400), Activity::Both)),
        drains: false,
    }
}

fn bench(subprotocol: Subprotocol, upstream_wire: UpstreamWire) -> Bench {
    bench_with(subprotocol, upstream_wire, Limits::default())
}

fn bench_with(subprotocol: Subprotocol, upstream_wire: UpstreamWire, limits: Limits) -> Bench {
    let (client, ours) = duplex(PIPE);
    let (upstream, theirs) = duplex(PIPE);
    let traffic = Arc::new(Traffic::new(tokio::time::Instant::now().into_std()));
    let relay = Relay::new(
        ClientSide::new(ours, ClientWire::terminal(subprotocol)),
        Upstream::Frames(theirs, upstream_wire),
        Arc::clone(&traffic),
        limits,
    );
    Bench {
        relay,
        client,
        upstream,
        traffic,
    }
}

fn console() -> Bench {
    bench(Subprotocol::Plain, UpstreamWire::Serial)
}

fn quick_console() -> Bench {
    bench_with(Subprotocol::Plain, UpstreamWire::Serial, quick())
}

async fn speak(io: DuplexStream, role: Role) -> WebSocketStream<DuplexStream> {
    WebSocketStream::from_raw_socket(io, role, None).await
}

async fn bytes(peer: &mut WebSocketStream<DuplexStream>, length: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < length {
        match peer.next().await {
            Some(Ok(Message::Binary(data))) => all.extend_from_slice(&data),
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            other => panic!("{other:?} after {} bytes", all.len()),
        }
    }
    all
}

fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(byte).take(length).collect()
}

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

#[tokio::test]
async fn s_01_both_sides_are_pinged_and_a_silent_client_is_dead_at_the_third() {
    let Bench {
        mut relay,
        mut client,
        upstream,
        ..
    } = quick_console();
    let mut upstream = speak(upstream, Role::Server).await;
    let pinged = tokio::spawn(async move {
        let ping = upstream.next().await;
        let answers = tokio::spawn(async move { while upstream.next().await.is_some() {} });
        (ping, answers)
    });
    let start = tokio::time::Instant::now();
    assert_eq!(relay.run().await, End::ClientGone);
    assert!(start.elapsed() >= Duration::from_millis(45));
    assert!(matches!(
        pinged.await.unwrap().0,
        Some(Ok(Message::Ping(_)))
    ));
    let mut pings = [0; 4];
    client.read_exact(&mut pings).await.unwrap();
    assert_eq!(pings, [0x89, 0, 0x89, 0]);
}

#[tokio::test]
async fn a_quiet_stream_lives_until_it_is_idle_for_too_long() {
    let Bench {
        mut relay,
        client,
        upstream,
        ..
    } = quick_console();
    for (io, role) in [(client, Role::Client), (upstream, Role::Server)] {
        let mut peer = speak(io, role).await;
        tokio::spawn(async move { while peer.next().await.is_some() {} });
    }
    let start = tokio::time::Instant::now();
    assert_eq!(relay.run().await, End::Idle);
    assert!(start.elapsed() >= Duration::from_millis(400));
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_slow_not_dead() {
    let limits = Limits {
        idle: None,
        ..quick()
    };
    let Bench {
        mut relay,
        client,
        upstream,
        ..
    } = bench_with(Subprotocol::Plain, UpstreamWire::Serial, limits);
    let mut upstream = speak(upstream, Role::Server).await;
    tokio::spawn(async move {
        while upstream
            .send(Message::binary(vec![b'x'; 1024]))
            .await
            .is_ok()
        {}
    });
    let start = tokio::time::Instant::now();
    assert_eq!(relay.run().await, End::ClientStalled);
    assert!(start.elapsed() >= quick().pace.no_progress);
    drop(client);
}

/// A relay whose upstream is bytes.
fn tunnel(subprotocol: Subprotocol, terminal: Option<Terminal>, limits: Limits) -> Bench {
    let (client, ours) = duplex(PIPE);
    let (upstream, theirs) = duplex(PIPE);
    let traffic = Arc::new(Traffic::new(tokio::time::Instant::now().into_std()));
    let relay = Relay::new(
        ClientSide::new(ours, ClientWire::bytes(subprotocol)),
        Upstream::Bytes(theirs, terminal),
        Arc::clone(&traffic),
        limits,
    );
    Bench {
        relay,
        client,
        upstream,
        traffic,
    }
}

fn draining() -> Limits {
    Limits {
        drains: true,
        ..Limits::default()
    }
}

#[tokio::test]
async fn a_megabyte_each_way_passes_a_tunnel_with_both_ends() {
    let Bench {
        mut relay,
        client,
        upstream,
        traffic,
    } = tunnel(Subprotocol::Tunnel, None, draining());
    let (up, down) = (noise(1 << 20), noise((1 << 20) + 3));
    let (mut writer, mut reader) = speak(client, Role::Client).await.split();
    let (mut guest_reader, mut guest_writer) = tokio::io::split(upstream);
    let (typed, printed) = (up.clone(), down.clone());
    let typing = tokio::spawn(async move {
        for chunk in typed.chunks(30_000) {
            let message = [&[0], chunk].concat();
            writer.send(Message::binary(message)).await.unwrap();
        }
        writer.send(Message::binary(vec![1])).await.unwrap();
        writer
    });
    let printing = tokio::spawn(async move {
        guest_writer.write_all(&printed).await.unwrap();
        guest_writer.shutdown().await.unwrap();
    });
    let guest = tokio::spawn(async move {
        let mut all = Vec::new();
        guest_reader.read_to_end(&mut all).await.unwrap();
        all
    });
    let client = tokio::spawn(async move {
        let mut all = Vec::new();
        loop {
            match reader.next().await {
                Some(Ok(Message::Binary(data))) if data[..] == [1] => return (all, reader),
                Some(Ok(Message::Binary(data))) => all.extend_from_slice(&data[1..]),
                Some(Ok(_)) => {}
                other => panic!("{other:?}"),
            }
        }
    });
    assert_eq!(relay.run().await, End::Finished);
    assert!(guest.await.unwrap() == up && client.await.unwrap().0 == down);
    assert_eq!(traffic.received(), 1 << 20);
    assert_eq!(traffic.sent(), (1 << 20) + 3);
    drop(typing.await.unwrap());
    printing.await.unwrap();
}

#[tokio::test]
async fn a_slow_client_gets_the_last_byte_before_the_end() {
    let Bench {
        mut relay,
        client,
        mut upstream,
        ..
    } = tunnel(Subprotocol::Binary, None, draining());
    let sent = noise(40_000);
    let printed = sent.clone();
    let printing = tokio::spawn(async move {
        upstream.write_all(&printed).await.unwrap();
        drop(upstream);
    });
    let mut client = speak(client, Role::Client).await;
    let run = async {
        let end = relay.run().await;
        (relay, end)
    };
    let slow = async {
        let mut all = Vec::new();
        while all.len() < 30_000 {
            tokio::time::sleep(Duration::from_millis(2)).await;
            all.extend(bytes(&mut client, 1).await);
        }
        let rest = sent.len() - all.len();
        all.extend(bytes(&mut client, rest).await);
        all
    };
    let ((relay, end), all) = tokio::join!(run, slow);
    assert_eq!(end, End::OutputEnded);
    assert!(all == sent);
    printing.await.unwrap();
    drop(relay);
}

#[tokio::test]
async fn an_exclusive_stream_does_not_wait_for_a_client_that_reads_nothing() {
    let Bench {
        mut relay,
        client,
        mut upstream,
        ..
    } = tunnel(Subprotocol::Binary, None, Limits::default());
    upstream.write_all(&noise(PIPE)).await.unwrap();
    drop(upstream);
    assert_eq!(relay.run().await, End::OutputEnded);
    drop(client);
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

#[tokio::test]
async fn what_a_viewer_does_by_itself_keeps_no_display_open() {
    let limits = Limits {
        pace: Pace {
            ping_every: Duration::from_millis(100),
            ..Pace::default()
        },
        idle: Some((Duration::from_millis(300), Activity::display())),
        drains: false,
    };
    let Bench {
        mut relay,
        client,
        upstream,
        ..
    } = bench_with(Subprotocol::Binary, UpstreamWire::Display, limits);
    let mut client = speak(client, Role::Client).await;
    let mut upstream = speak(upstream, Role::Server).await;
    let start = tokio::time::Instant::now();
    let viewer = tokio::spawn(async move {
        let hello = Message::binary(&b"RFB 003.008\n\x01\x01"[..]);
        client.send(hello).await.unwrap();
        let update = vec![3, 1, 0, 0, 0, 0, 4, 0, 3, 0];
        let mut key = Some(Message::binary(vec![4, 1, 0, 0, 0, 0, 0, 65]));
        loop {
            let late = start.elapsed() >= Duration::from_millis(150);
            if let Some(key) = key.take_if(|_| late) {
                client.send(key).await.unwrap();
            }
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(20)) => {
                    if client.send(Message::binary(update.clone())).await.is_err() {
                        return;
                    }
                }
                message = client.next() => if message.is_none() { return },
            }
        }
    });
    let server = tokio::spawn(async move {
        while let Some(Ok(_)) = upstream.next().await {
            let _ = upstream.send(Message::binary(vec![0; 100])).await;
        }
    });
    assert_eq!(relay.run().await, End::Idle);
    assert!(
        start.elapsed() >= Duration::from_millis(450),
        "the key counted"
    );
    drop(relay);
    viewer.abort();
    server.abort();
}

#[tokio::test]
async fn kubevirts_port_gets_pongs_that_it_did_not_ask_for() {
    let limits = Limits {
        idle: None,
        ..quick()
    };
    let Bench {
        mut relay,
        client,
        mut upstream,
        ..
    } = bench_with(Subprotocol::Binary, UpstreamWire::GuestPort, limits);
    let mut client = speak(client, Role::Client).await;
    tokio::spawn(async move { while client.next().await.is_some() {} });
    let mut frames = [0; 12];
    tokio::select! {
        end = relay.run() => panic!("{end:?}"),
        read = upstream.read_exact(&mut frames) => drop(read.unwrap()),
    }
    assert_eq!((frames[0], frames[6]), (0x89, 0x8a), "a ping, and a pong");
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
async fn frames_may_be_cut_anywhere_in_every_dialect() {
    let tunnel = [
        &[0x02, 0x81, 0, 0, 0, 0, 0][..],
        &[0x80, 0x82, 1, 2, 3, 4, b'h' ^ 1, b'i' ^ 2],
        &[0x82, 0x81, 0, 0, 0, 0, 1],
    ]
    .concat();
    for cut in 1..tunnel.len() {
        let Bench {
            mut relay,
            mut client,
            mut upstream,
            ..
        } = self::tunnel(Subprotocol::Tunnel, None, draining());
        let parts = (tunnel[..cut].to_vec(), tunnel[cut..].to_vec());
        let sending = async {
            client.write_all(&parts.0).await.unwrap();
            tokio::task::yield_now().await;
            client.write_all(&parts.1).await.unwrap();
            let mut all = Vec::new();
            upstream.read_to_end(&mut all).await.unwrap();
            all
        };
        let got = tokio::select! {
            end = relay.run() => panic!("{end:?} at {cut}"),
            all = sending => all,
        };
        assert_eq!(got, b"hi", "cut at {cut}");
    }
}
