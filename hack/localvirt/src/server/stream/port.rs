//! Ports: a WebSocket that ends here, and a connection to the guest.
//!
//! As virt-api does it: a ping every second, a client that sends no pong for a minute is cut, there is no half-close
//! (the first end on either side ends both), and the end is an abrupt one.

use std::{io, time::Duration};

use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _};
use tokio::{
    io::{
        AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadHalf,
        WriteHalf,
    },
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
    raw::{Sink, Source, send, tell_mask},
};

/// What a ping says.
const PING: &[u8] = b"keep alive";
/// One read, and one datagram at most.
const READ: usize = 64 << 10;

/// How a client is kept alive, and when it is given up.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Between two pings.
    pub ping: Duration,
    /// How long a client may go without a pong, whatever else it sends.
    pub pong: Duration,
}

impl Timing {
    /// virt-api's.
    pub const KUBEVIRT: Self = Self {
        ping: Duration::from_secs(1),
        pong: Duration::from_secs(60),
    };
}

/// Relays until either side ends.
pub async fn relay<C>(client: &mut WebSocketStream<C>, guest: Guest, timing: Timing)
where
    C: AsyncRead + AsyncWrite + Unpin,
{
    let (mut sink, mut source) = client.split();
    let ended = match guest {
        Guest::Tcp(stream) => tcp(&mut sink, &mut source, stream, timing).await,
        Guest::Udp(socket) => udp(&mut sink, &mut source, socket, timing).await,
        Guest::Inside(stream) => inside(&mut sink, &mut source, stream, timing).await,
    };
    if let Some(error) = ended {
        tell_mask(&mut sink, &error).await;
    }
}

async fn tcp<C>(
    sink: &mut Sink<'_, C>,
    source: &mut Source<'_, C>,
    stream: TcpStream,
    timing: Timing,
) -> Option<tungstenite::Error>
where
    C: AsyncRead + AsyncWrite + Unpin,
{
    let (read, write) = stream.into_split();
    tokio::select! {
        () = to_client(sink, Reader::Tcp(read), timing.ping) => None,
        ended = to_guest(source, Writer::Tcp(write), timing.pong) => ended,
    }
}

async fn udp<C>(
    sink: &mut Sink<'_, C>,
    source: &mut Source<'_, C>,
    socket: UdpSocket,
    timing: Timing,
) -> Option<tungstenite::Error>
where
    C: AsyncRead + AsyncWrite + Unpin,
{
    tokio::select! {
        () = to_client(sink, Reader::Udp(&socket), timing.ping) => None,
        ended = to_guest(source, Writer::Udp(&socket), timing.pong) => ended,
    }
}

async fn inside<C>(
    sink: &mut Sink<'_, C>,
    source: &mut Source<'_, C>,
    stream: DuplexStream,
    timing: Timing,
) -> Option<tungstenite::Error>
where
    C: AsyncRead + AsyncWrite + Unpin,
{
    let (read, write) = tokio::io::split(stream);
    tokio::select! {
        () = to_client(sink, Reader::Inside(read), timing.ping) => None,
        ended = to_guest(source, Writer::Inside(write), timing.pong) => ended,
    }
}

enum Reader<'a> {
    Tcp(OwnedReadHalf),
    Inside(ReadHalf<DuplexStream>),
    Udp(&'a UdpSocket),
}

impl Reader<'_> {
    /// `None` at the end.
    async fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self {
            Self::Tcp(half) => Ok(Some(half.read(buffer).await?).filter(|n| *n > 0)),
            Self::Inside(half) => Ok(Some(half.read(buffer).await?).filter(|n| *n > 0)),
            Self::Udp(socket) => socket.recv(buffer).await.map(Some),
        }
    }
}

enum Writer<'a> {
    Tcp(OwnedWriteHalf),
    Inside(WriteHalf<DuplexStream>),
    Udp(&'a UdpSocket),
}

impl Writer<'_> {
    async fn write(&mut self, data: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(half) => half.write_all(data).await,
            Self::Inside(half) => half.write_all(data).await,
            Self::Udp(socket) => socket.send(data).await.map(drop),
        }
    }
}

async fn to_client<C>(sink: &mut Sink<'_, C>, mut guest: Reader<'_>, ping: Duration)
where
    C: AsyncRead + AsyncWrite + Unpin,
{
    let mut buffer = vec![0; READ];
    let mut ticks = interval(ping);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick is at once, KubeVirt's first ping after one interval.
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
    source: &mut Source<'_, C>,
    mut guest: Writer<'_>,
    pong: Duration,
) -> Option<tungstenite::Error>
where
    C: AsyncRead + AsyncWrite + Unpin,
{
    let mut deadline = Instant::now() + pong;
    loop {
        match timeout_at(deadline, source.next()).await {
            Ok(Some(Ok(Message::Binary(data)))) => {
                if !data.is_empty() && guest.write(&data).await.is_err() {
                    return None;
                }
            }
            Ok(Some(Ok(Message::Pong(_)))) => deadline = Instant::now() + pong,
            // Text is dropped; pings and closes are answered by the library.
            Ok(Some(Ok(_))) => {}
            Ok(Some(Err(error))) => return Some(error),
            Ok(None) | Err(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::{io::duplex, net::TcpListener};
    use tokio_tungstenite::tungstenite::protocol::Role;

    use super::*;

    const TIMING: Timing = Timing {
        ping: Duration::from_millis(5),
        pong: Duration::from_millis(100),
    };

    /// A client that reads nothing by itself, so that no library answers pings for it.
    async fn start(
        role: Role,
    ) -> (
        WebSocketStream<tokio::io::DuplexStream>,
        TcpStream,
        tokio::task::JoinHandle<()>,
    ) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (far, _) = listener.accept().await.unwrap();
        let (client, server) = duplex(1 << 20);
        let mut server = WebSocketStream::from_raw_socket(server, Role::Server, None).await;
        let client = WebSocketStream::from_raw_socket(client, role, None).await;
        let task = tokio::spawn(async move { relay(&mut server, Guest::Tcp(near), TIMING).await });
        (client, far, task)
    }

    #[tokio::test]
    async fn a_client_that_sends_data_but_no_pong_is_cut() {
        let (mut client, mut guest, task) = start(Role::Client).await;
        let chatter = async {
            // Writing does not read, so the pings stay unanswered.
            while client
                .send(Message::Binary(Bytes::from_static(b"x")))
                .await
                .is_ok()
            {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            () = chatter => {}
            ended = task => ended.unwrap(),
        }
        let mut buffer = Vec::new();
        guest.read_to_end(&mut buffer).await.unwrap();
        assert!(!buffer.is_empty() && buffer.iter().all(|b| *b == b'x'));
    }

    #[tokio::test]
    async fn a_client_that_answers_pings_lives_beyond_the_deadline() {
        let (mut client, _guest, task) = start(Role::Client).await;
        let start = Instant::now();
        while start.elapsed() < TIMING.pong * 3 {
            // Reading answers.
            let ping = client.next().await.unwrap().unwrap();
            assert_eq!(ping, Message::Ping(Bytes::from_static(PING)));
        }
        assert!(!task.is_finished());
    }

    #[tokio::test]
    async fn the_guests_end_is_the_clients_without_a_close_frame() {
        let (mut client, guest, _task) = start(Role::Client).await;
        drop(guest);
        loop {
            match client.next().await {
                Some(Ok(Message::Ping(_))) => {}
                Some(Err(tungstenite::Error::Protocol(
                    tungstenite::error::ProtocolError::ResetWithoutClosingHandshake,
                ))) => return,
                other => panic!("{other:?}"),
            }
        }
    }

    #[tokio::test]
    async fn text_is_dropped_and_an_unmasked_frame_is_told() {
        let (mut client, mut guest, _task) = start(Role::Client).await;
        client.send(Message::Text("text".into())).await.unwrap();
        client
            .send(Message::Binary(Bytes::from_static(b"data")))
            .await
            .unwrap();
        let mut buffer = [0; 4];
        guest.read_exact(&mut buffer).await.unwrap();
        assert_eq!(&buffer, b"data");
        // A server's frames are not masked.
        let (mut client, _guest, _task) = start(Role::Server).await;
        client.get_mut().write_all(&[0x82, 1, b'x']).await.unwrap();
        let mut seen = Vec::new();
        client.get_mut().read_to_end(&mut seen).await.unwrap();
        let close = [&[0x88, 10, 0x03, 0xea][..], b"bad MASK"].concat();
        assert!(seen.ends_with(&close), "{seen:?}");
    }
}
