//! The guest's side of an open stream, whatever it is.

use std::{
    net::{Shutdown, TcpStream as Handle},
    time::Duration,
};

use futures::SinkExt as _;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinHandle,
};
use tokio_tungstenite::tungstenite::Message;

use super::Mode;
use crate::streams::tests::{
    sshd,
    world::{Client, Upstream, World, closed, data},
};

const BLOCK: usize = 64 * 1024;
/// How long the guest's SSH server may take to notice an end.
const NOTICED: Duration = Duration::from_secs(20);
/// What a kubelet says first on each of a port's two channels (`portforward/websocket.go`).
const PORT_8080: [&[u8]; 2] = [b"\x00\x90\x1f", b"\x01\x90\x1f"];
const EXIT_7: &str = r#"{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"7"}]}}"#;
const NO_SHELL: &str = r#"{"status":"Failure","reason":"InternalError","code":500,"message":"exec: \"sh\": executable file not found"}"#;

/// What the server is connected to.
pub(super) enum Guest {
    /// A WebSocket of KubeVirt's or a kubelet's, with the channel of what is typed and of what is printed.
    Frames(Box<Upstream>, Option<[u8; 2]>),
    /// A guest's port.
    Tcp(TcpStream),
    /// A guest's SSH server, and a second handle of its connection.
    Ssh(JoinHandle<()>, Handle),
}

/// Opens a stream; refused, it is the code and the Status.
pub(super) async fn open(
    world: &mut World,
    mode: Mode,
    path: &str,
    user: &'static str,
) -> Result<(Client, Guest), (u16, Value)> {
    let headers = [("sec-websocket-protocol", "binary"), ("x-user", user)];
    let listener = world.pods.listen().await;
    let accepting = async move { listener.accept().await.unwrap().0 };
    if mode == Mode::Terminal {
        let serving = tokio::spawn(async move { sshd::serve(accepting.await) });
        let opened = world.open(path, &headers).await;
        let (mut client, _) = opened.inspect_err(|_| serving.abort())?;
        let (session, handle) = serving.await.unwrap();
        client.send(sshd::hello("debian", 2)).await.unwrap();
        data(&mut client, 22).await;
        return Ok((client, Guest::Ssh(session, handle)));
    }
    let (client, _) = world.open(path, &headers).await?;
    let guest = match mode {
        Mode::Tunnel | Mode::Port => Guest::Tcp(accepting.await),
        _ => Guest::dialled(world, mode).await,
    };
    Ok((client, guest))
}

impl Guest {
    async fn dialled(world: &mut World, mode: Mode) -> Self {
        let (_, mut upstream) = world.dialled().await;
        let channels = match mode {
            Mode::Shell | Mode::Scratch => Some([0, 1]),
            Mode::PodPort => {
                for number in PORT_8080 {
                    upstream.send(Message::binary(number)).await.unwrap();
                }
                Some([0, 0])
            }
            _ => None,
        };
        Self::Frames(Box::new(upstream), channels)
    }

    /// Waits until the server has ended it.
    pub(super) async fn ended(&mut self) {
        match self {
            Self::Frames(upstream, _) => drop(closed(&mut **upstream).await),
            Self::Tcp(tcp) => {
                let mut rest = Vec::new();
                let _ = tcp.read_to_end(&mut rest).await;
            }
            Self::Ssh(session, _) => {
                let ended = tokio::time::timeout(NOTICED, session).await;
                ended.expect("the guest still serves").unwrap();
            }
        }
    }

    /// Goes on for so long, saying nothing and answering pings.
    pub(super) async fn lives(&mut self, time: Duration) {
        match self {
            Self::Frames(upstream, _) => {
                let closing = tokio::time::timeout(time, closed(&mut **upstream));
                assert!(closing.await.is_err(), "it was ended");
            }
            Self::Tcp(_) | Self::Ssh(..) => tokio::time::sleep(time).await,
        }
    }

    /// Its connection breaks.
    pub(super) fn breaks(self) {
        match self {
            Self::Frames(..) => {}
            Self::Tcp(tcp) => socket2::SockRef::from(&tcp)
                .set_linger(Some(Duration::ZERO))
                .unwrap(),
            Self::Ssh(_, handle) => handle.shutdown(Shutdown::Both).unwrap(),
        }
    }

    /// It ends in order: a shell with status 7.
    pub(super) async fn ends(self, client: &mut Client) {
        match self {
            Self::Frames(mut upstream, Some([0, 1])) => {
                let status = [b"\x03", EXIT_7.as_bytes()].concat();
                upstream.send(Message::binary(status)).await.unwrap();
            }
            Self::Frames(mut upstream, _) => {
                upstream.as_mut().close(None).await.unwrap();
                closed(&mut *upstream).await;
            }
            Self::Tcp(tcp) => drop(tcp),
            Self::Ssh(..) => client.send(Message::binary(&b"exit"[..])).await.unwrap(),
        }
    }

    /// The kubelet finds no shell in the image.
    pub(super) async fn without_a_shell(self, mut client: Client, code: u16, words: &str) {
        let Self::Frames(mut upstream, _) = self else {
            panic!("a shell is a WebSocket")
        };
        let status = [b"\x03", NO_SHELL.as_bytes()].concat();
        upstream.send(Message::binary(status)).await.unwrap();
        let close = closed(&mut client).await.unwrap();
        assert_eq!(u16::from(close.code), code, "{}", close.reason);
        assert!(close.reason.contains(words), "{}", close.reason);
    }

    /// What the client sends arrives here.
    pub(super) async fn hears(&mut self, client: &mut Client) {
        client.send(Message::binary(&b"x"[..])).await.unwrap();
        match self {
            Self::Frames(upstream, None) => assert_eq!(data(&mut **upstream, 1).await, b"x"),
            Self::Frames(upstream, Some([input, _])) => {
                assert_eq!(data(&mut **upstream, 2).await, [*input, b'x']);
            }
            Self::Tcp(tcp) => assert_eq!(tcp.read_u8().await.unwrap(), b'x'),
            Self::Ssh(..) => assert_eq!(data(client, 1).await, b"x"),
        }
    }

    /// Writes until it is stopped.
    pub(super) async fn floods(self, client: &mut Client) {
        let block = vec![b'x'; BLOCK];
        match self {
            Self::Frames(mut upstream, channels) => {
                let head = channels.map(|[_, output]| output);
                let block: Vec<u8> = head.into_iter().chain(block).collect();
                while upstream.send(Message::binary(block.clone())).await.is_ok() {}
            }
            Self::Tcp(mut tcp) => while tcp.write_all(&block).await.is_ok() {},
            Self::Ssh(session, _) => {
                client.send(Message::binary(&b"flood"[..])).await.unwrap();
                session.await.unwrap();
            }
        }
    }

    /// Reads nothing from now on.
    pub(super) async fn stalls(&mut self, client: &mut Client) {
        if let Self::Ssh(..) = self {
            client.send(Message::binary(&b"stall"[..])).await.unwrap();
        }
    }
}
