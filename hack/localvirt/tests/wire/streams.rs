//! Consoles, displays and ports, byte by byte.

use std::collections::HashMap;

use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use crate::doubles::{BASE, JANE, Objects, Server, instance, with_demo};

#[tokio::test]
async fn a_console_carries_bytes_in_binary_frames() {
    let server = with_demo().await;
    let (mut wire, mut guest) = server
        .open(&format!("{BASE}/virtualmachineinstances/demo/console"))
        .await;
    guest.write_all(b"login: ").await.unwrap();
    let frame = wire.frame().await.unwrap();
    assert_eq!(
        (frame.fin, frame.opcode, frame.payload.as_slice()),
        (true, 2, b"login: ".as_slice())
    );
    wire.send(1, b"text is ignored").await;
    wire.send(2, b"root\r").await;
    let mut typed = [0; 5];
    guest.read_exact(&mut typed).await.unwrap();
    assert_eq!(&typed, b"root\r");
    wire.send(9, b"are you there").await;
    let pong = wire.frame().await.unwrap();
    assert_eq!(
        (pong.opcode, pong.payload.as_slice()),
        (10, b"are you there".as_slice())
    );
}

#[tokio::test]
async fn a_subprotocol_is_answered_only_if_it_is_kubevirts() {
    let server = with_demo().await;
    let path = format!("{BASE}/virtualmachineinstances/demo/vnc");
    for (offered, chosen) in [
        ("binary, plain.kubevirt.io", Some("plain.kubevirt.io")),
        ("binary", None),
    ] {
        let mut wire = server.wire(true).await;
        let headers = [
            JANE[0],
            JANE[1],
            ("Sec-WebSocket-Protocol", offered),
            ("Origin", "https://evil.example"),
        ];
        let response = wire.upgrade(&path, &headers).await;
        assert_eq!(response.code, 101);
        assert_eq!(
            response.header("sec-websocket-protocol").as_deref(),
            chosen,
            "{offered}"
        );
    }
}

#[tokio::test]
async fn the_guests_end_cuts_the_client_without_a_close_frame() {
    let server = with_demo().await;
    let (mut wire, mut guest) = server
        .open(&format!("{BASE}/virtualmachineinstances/demo/console"))
        .await;
    guest.write_all(b"bye").await.unwrap();
    assert_eq!(wire.read(3).await, b"bye");
    drop(guest);
    assert_eq!(wire.frame().await, None);
}

#[tokio::test]
async fn a_close_frame_of_the_client_is_echoed() {
    let server = with_demo().await;
    let (mut wire, mut guest) = server
        .open(&format!("{BASE}/virtualmachineinstances/demo/console"))
        .await;
    wire.send(8, &[0x03, 0xe8]).await;
    let echo = wire.frame().await.unwrap();
    assert_eq!(
        (echo.opcode, echo.payload.as_slice()),
        (8, [0x03, 0xe8].as_slice())
    );
    assert_eq!(wire.frame().await, None);
    assert_eq!(
        guest.read(&mut [0; 1]).await.unwrap(),
        0,
        "the guest's side ended"
    );
}

#[tokio::test]
async fn the_last_console_wins_and_the_one_before_is_cut() {
    let server = with_demo().await;
    let path = format!("{BASE}/virtualmachineinstances/demo/console");
    let (mut first, _first_guest) = server.open(&path).await;
    let (mut second, mut guest) = server.open(&path).await;
    assert_eq!(first.frame().await, None, "no close frame");
    guest.write_all(b"yours").await.unwrap();
    assert_eq!(second.read(5).await, b"yours");
}

#[tokio::test]
async fn a_plain_get_cuts_the_session_and_is_refused_afterwards() {
    let server = with_demo().await;
    let path = format!("{BASE}/virtualmachineinstances/demo/console");
    let (mut first, _guest) = server.open(&path).await;
    let plain = server.get(&path).await;
    assert_eq!(plain.code, 400);
    assert!(
        plain
            .header("content-type")
            .unwrap()
            .starts_with("text/plain")
    );
    assert!(
        plain.body.starts_with("Bad Request\n{\n \""),
        "{}",
        plain.body
    );
    assert!(
        plain
            .body
            .contains("'upgrade' token not found in 'Connection' header")
    );
    assert_eq!(first.frame().await, None);
}

#[tokio::test]
async fn a_display_that_is_to_be_preserved_is_not_taken() {
    let server = with_demo().await;
    let path = format!("{BASE}/virtualmachineinstances/demo/vnc");
    let (mut first, mut guest) = server.open(&path).await;
    let mut wire = server.wire(true).await;
    let second = wire
        .upgrade(&format!("{path}?preserveSession=true"), &JANE)
        .await;
    assert_eq!(second.code, 500);
    assert!(
        second
            .body
            .contains("Active VNC connection. Request denied."),
        "{}",
        second.body
    );
    guest.write_all(b"RFB 003.008\n").await.unwrap();
    assert_eq!(first.read(12).await, b"RFB 003.008\n");
    server.open(&path).await;
    assert_eq!(first.frame().await, None);
}

#[tokio::test]
async fn long_reads_are_cut_into_frames_as_gorilla_cuts_them() {
    let server = with_demo().await;
    let (mut wire, mut guest) = server
        .open(&format!("{BASE}/virtualmachineinstances/demo/vnc"))
        .await;
    let picture: Vec<u8> = (0..100_000_u32)
        .map(|n| u8::try_from(n % 251).unwrap())
        .collect();
    guest.write_all(&picture).await.unwrap();
    let (mut seen, mut open) = (Vec::new(), false);
    while seen.len() < picture.len() || open {
        let frame = wire.frame().await.unwrap();
        assert_eq!(
            frame.opcode,
            if open { 0 } else { 2 },
            "continuations continue"
        );
        assert!(frame.payload.len() <= 32 << 10);
        open = !frame.fin;
        seen.extend(frame.payload);
    }
    assert_eq!(seen, picture);
}

#[tokio::test]
async fn a_port_is_dialled_first_and_pinged_every_second() {
    let echo = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = echo.local_addr().unwrap().port();
    let address = json!({"phase": "Running", "interfaces": [{"ipAddress": "127.0.0.1"}]});
    let server = Server::start(Objects {
        instances: HashMap::from([
            instance("demo", address),
            instance("none", json!({"phase": "Running"})),
        ]),
        ..Objects::default()
    })
    .await;
    let none = server
        .get(&format!(
            "{BASE}/virtualmachineinstances/none/portforward/22"
        ))
        .await;
    assert_eq!(none.code, 400);
    assert!(none.body.contains("no network interfaces are present"));
    let sctp = server
        .get(&format!(
            "{BASE}/virtualmachineinstances/demo/portforward/{port}/sctp"
        ))
        .await;
    assert_eq!(sctp.code, 500);
    assert!(
        sctp.body
            .contains("dialing VM: dial sctp: unknown network sctp")
    );
    let mut wire = server.wire(true).await;
    let path = format!("{BASE}/virtualmachineinstances/demo/portforward/{port}/tcp");
    assert_eq!(wire.upgrade(&path, &JANE).await.code, 101);
    let (mut guest, _) = echo.accept().await.unwrap();
    wire.send(2, b"SSH-2.0-").await;
    let mut hello = [0; 8];
    guest.read_exact(&mut hello).await.unwrap();
    assert_eq!(&hello, b"SSH-2.0-");
    let ping = wire.frame().await.unwrap();
    assert_eq!(
        (ping.opcode, ping.payload.as_slice()),
        (9, b"keep alive".as_slice())
    );
    drop(guest);
    loop {
        match wire.frame().await {
            Some(frame) => assert_eq!(frame.opcode, 9, "no close frame: {frame:?}"),
            None => return,
        }
    }
}
