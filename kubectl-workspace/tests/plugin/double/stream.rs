//! Streams of the double: a handshake as RFC 6455 has it, and then what the script says.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _};
use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, UPGRADE,
};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::Full;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role};

use super::answer::Answer;
use super::{Script, World};

const TUNNEL: &str = "v1.tunnel.kubeworkspaces.io";

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// Counts an open stream for as long as it lives.
struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

pub fn accept(
    headers: &HeaderMap,
    on_upgrade: OnUpgrade,
    script: Script,
    world: Arc<Mutex<World>>,
    open: Arc<AtomicUsize>,
) -> Answer {
    let text = |name| {
        headers
            .get(name)
            .and_then(|v| v.to_str().ok())
            .unwrap_or_default()
    };
    let offered: Vec<_> = text(SEC_WEBSOCKET_PROTOCOL).split(", ").collect();
    let wanted = match &script {
        Script::Tunnel(_, false) => "binary",
        _ => offered[0],
    };
    assert!(offered.contains(&wanted), "{offered:?}");
    let tunnel = wanted == TUNNEL;
    open.fetch_add(1, Ordering::SeqCst);
    let open = Open(open);
    tokio::spawn(async move {
        let upgraded = TokioIo::new(on_upgrade.await.unwrap());
        let socket = WebSocketStream::from_raw_socket(upgraded, Role::Server, None).await;
        play(socket, script, tunnel, world).await;
        drop(open);
    });
    Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "websocket")
        .header(
            SEC_WEBSOCKET_ACCEPT,
            derive_accept_key(text(SEC_WEBSOCKET_KEY).as_bytes()),
        )
        .header(SEC_WEBSOCKET_PROTOCOL, wanted)
        .body(Full::default())
        .unwrap()
}

async fn play(mut socket: Socket, script: Script, tunnel: bool, world: Arc<Mutex<World>>) {
    match script {
        Script::Tunnel(address, _) => carry(socket, address, tunnel).await,
        Script::OneEnd(reason) => {
            while let Some(Ok(message)) = socket.next().await {
                match message {
                    Message::Binary(bytes) if bytes.first() == Some(&1) => {
                        return close(&mut socket, 1000, &reason).await;
                    }
                    Message::Binary(bytes) => {
                        let _ = socket.send(Message::Binary(bytes)).await;
                    }
                    _ => {}
                }
            }
        }
        Script::Echo(first) => {
            let _ = socket.send(Message::Binary(first.into())).await;
            while let Some(Ok(message)) = socket.next().await {
                if let Message::Binary(bytes) = message {
                    world.lock().unwrap().heard.push(bytes.to_vec());
                    let _ = socket.send(Message::Binary(bytes)).await;
                }
            }
        }
        Script::Say(words, code, reason) => {
            let _ = socket.send(Message::Binary(words.into())).await;
            close(&mut socket, code, &reason).await;
        }
        Script::Hold(words) => {
            let _ = socket.send(Message::Binary(words.into())).await;
            while let Some(Ok(message)) = socket.next().await {
                if let Message::Binary(bytes) = message {
                    world.lock().unwrap().heard.push(bytes.to_vec());
                }
            }
        }
        Script::Shell(status) => shell(socket, status, world).await,
    }
}

async fn close(socket: &mut Socket, code: u16, reason: &str) {
    let frame = CloseFrame {
        code: code.into(),
        reason: reason.to_owned().into(),
    };
    let _ = socket.close(Some(frame)).await;
    while let Some(Ok(_)) = socket.next().await {}
}

async fn shell(mut socket: Socket, status: u8, world: Arc<Mutex<World>>) {
    while let Some(Ok(message)) = socket.next().await {
        let Message::Binary(bytes) = message else {
            continue;
        };
        world.lock().unwrap().heard.push(bytes.to_vec());
        match bytes.first() {
            Some(0) => {
                let answer = [&[1][..], &bytes[1..]].concat();
                let _ = socket.send(Message::Binary(answer.into())).await;
            }
            Some(255) => break,
            _ => {}
        }
    }
    let json = format!(
        r#"{{"status":"Failure","reason":"NonZeroExitCode","details":{{"causes":[{{"reason":"ExitCode","message":"{status}"}}]}}}}"#
    );
    let last = [&[3][..], json.as_bytes()].concat();
    let _ = socket.send(Message::Binary(last.into())).await;
    close(&mut socket, 1000, "").await;
}

/// What the server does in a tunnel: each direction ends by itself, if the wire can say so.
async fn carry(mut socket: Socket, address: SocketAddr, tunnel: bool) {
    let Ok(target) = TcpStream::connect(address).await else {
        close(&mut socket, 1011, "connection refused").await;
        return;
    };
    let (mut reader, mut writer) = target.into_split();
    let (mut sink, mut source) = socket.split();
    let client_ended = Notify::new();
    let down = async {
        let mut buffer = vec![0; 16 << 10];
        loop {
            let read = reader.read(&mut buffer).await.unwrap_or(0);
            let message = match (read, tunnel) {
                (0, true) => vec![1],
                (0, false) => return,
                (read, true) => [&[0][..], &buffer[..read]].concat(),
                (read, false) => buffer[..read].to_vec(),
            };
            if sink.send(Message::Binary(message.into())).await.is_err() {
                return;
            }
            if read == 0 {
                return client_ended.notified().await;
            }
        }
    };
    let up = async {
        while let Some(Ok(message)) = source.next().await {
            let bytes: Bytes = match message {
                Message::Binary(bytes) => bytes,
                Message::Close(_) => return,
                _ => continue,
            };
            let written = match (tunnel, bytes.first()) {
                (true, Some(1)) => {
                    client_ended.notify_one();
                    writer.shutdown().await
                }
                (true, _) => writer.write_all(&bytes[1..]).await,
                (false, _) => writer.write_all(&bytes).await,
            };
            if written.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = up => {}
        () = down => {}
    }
    if let Ok(mut socket) = sink.reunite(source) {
        close(&mut socket, 1000, "ended").await;
    }
}
