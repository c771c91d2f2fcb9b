//! Ports: a WebSocket that ends here, and a connection to the guest.
//!
//! As virt-api does it: a ping every second, a client that sends no pong for a minute is cut, there is no half-close
//! (the first end on either side ends both), and the end is an abrupt one.

use std::{io, time::Duration};

use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _, stream::SplitStream};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{
        TcpStream, UdpSocket,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    time::{Instant, MissedTickBehavior, interval, timeout_at},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{self, Message},
};

use super::{
    dial_guest::Guest,
    raw::{Sink, send, tell_mask},
};

/// What a ping says.
const PING: &[u8] = b"keep alive";
/// How often it is said.
const PING_INTERVAL: Duration = Duration::from_secs(1);
/// How long a client may go without a pong, whatever else it sends.
const PONG_DEADLINE: Duration = Duration::from_secs(60);
/// One read, and one datagram at most.
const READ: usize = 64 << 10;

/// Relays until either side ends.
pub async fn relay<C>(client: WebSocketStream<C>, guest: Guest)
where
    C: AsyncRead + AsyncWrite + Unpin,
{
    let (mut sink, mut source) = client.split();
    let ended = match guest {
        Guest::Tcp(stream) => tcp(&mut sink, &mut source, stream).await,
        Guest::Udp(socket) => udp(&mut sink, &mut source, socket).await,
    };
    if let Some(error) = ended {
        tell_mask(&mut sink, &error).await;
    }
}

async fn tcp<C>(
    sink: &mut Sink<C>,
    source: &mut SplitStream<WebSocketStream<C>>,
    stream: TcpStream,
) -> Option<tungstenite::Error>
where
    C: AsyncRead + AsyncWrite + Unpin,
{
    let (read, write) = stream.into_split();
    tokio::select! {
        () = to_client(sink, Reader::Tcp(read)) => None,
        ended = to_guest(source, Writer::Tcp(write)) => ended,
    }
}

async fn udp<C>(
    sink: &mut Sink<C>,
    source: &mut SplitStream<WebSocketStream<C>>,
    socket: UdpSocket,
) -> Option<tungstenite::Error>
where
    C: AsyncRead + AsyncWrite + Unpin,
{
    tokio::select! {
        () = to_client(sink, Reader::Udp(&socket)) => None,
        ended = to_guest(source, Writer::Udp(&socket)) => ended,
    }
}

enum Reader<'a> {
    Tcp(OwnedReadHalf),
    Udp(&'a UdpSocket),
}

impl Reader<'_> {
    /// `None` at the end.
    async fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self {
            Self::Tcp(half) => Ok(Some(half.read(buffer).await?).filter(|n| *n > 0)),
            Self::Udp(socket) => socket.recv(buffer).await.map(Some),
        }
    }
}

enum Writer<'a> {
    Tcp(OwnedWriteHalf),
    Udp(&'a UdpSocket),
}

impl Writer<'_> {
    async fn write(&mut self, data: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(half) => half.write_all(data).await,
            Self::Udp(socket) => socket.send(data).await.map(drop),
        }
    }
}

async fn to_client<C>(sink: &mut Sink<C>, mut guest: Reader<'_>)
where
    C: AsyncRead + AsyncWrite + Unpin,
{
    let mut buffer = vec![0; READ];
    let mut ticks = interval(PING_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick is at once, KubeVirt's first ping after a second.
    ticks.tick().await;
    loop {
        let sent = tokio::select! {
            read = guest.read(&mut buffer) => match read {
                Ok(Some(length)) => send(sink, &buffer[..length]).await,
                Ok(None) | Err(_) => return,
            },
            _ = ticks.tick() => sink.send(Message::Ping(Bytes::from_static(PING))).await,
        };
        if sent.is_err() {
            return;
        }
    }
}

async fn to_guest<C>(
    source: &mut SplitStream<WebSocketStream<C>>,
    mut guest: Writer<'_>,
) -> Option<tungstenite::Error>
where
    C: AsyncRead + AsyncWrite + Unpin,
{
    let mut deadline = Instant::now() + PONG_DEADLINE;
    loop {
        match timeout_at(deadline, source.next()).await {
            Ok(Some(Ok(Message::Binary(data)))) => {
                if !data.is_empty() && guest.write(&data).await.is_err() {
                    return None;
                }
            }
            Ok(Some(Ok(Message::Pong(_)))) => deadline = Instant::now() + PONG_DEADLINE,
            // Text is dropped; pings and closes are answered by the library.
            Ok(Some(Ok(_))) => {}
            Ok(Some(Err(error))) => return Some(error),
            Ok(None) | Err(_) => return None,
        }
    }
}
