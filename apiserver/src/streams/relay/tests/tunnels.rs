//! Upstreams that are bytes, whose directions end one by one.

use super::*;

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
        } = super::tunnel(Subprotocol::Tunnel, None, draining());
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
