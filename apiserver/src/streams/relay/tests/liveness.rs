//! Who is alive, who is slow, and what is idle.

use super::*;

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
