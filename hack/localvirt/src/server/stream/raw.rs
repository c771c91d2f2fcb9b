//! Consoles and displays: bytes from the launcher become binary messages, binary messages become bytes.
//!
//! Nothing keeps such a stream alive (KubeVirt pings nobody here), and it ends without a Close frame unless the client
//! sent one. The far side is authoritative for take-over: it cuts the older stream.

use bytes::Bytes;
use futures::{
    SinkExt as _, StreamExt as _,
    stream::{SplitSink, SplitStream},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    time::{Duration, timeout},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        self, Message,
        error::ProtocolError,
        protocol::{
            CloseFrame,
            frame::{
                Frame,
                coding::{CloseCode, Data, OpCode},
            },
        },
    },
};

use super::frames;

/// virt-handler's read size; one read is one message.
const READ: usize = 32 << 10;
/// How long a last Close frame may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The half that writes to a client.
pub type Sink<'a, C> = SplitSink<&'a mut WebSocketStream<C>, Message>;
/// The half that reads from a client.
pub type Source<'a, C> = SplitStream<&'a mut WebSocketStream<C>>;

/// Relays until either side ends; the client's connection then just closes. The upstream has ended before a client's
/// Close frame is answered, so that whoever waits for the answer may open the next stream.
pub async fn relay<C, U>(client: &mut WebSocketStream<C>, upstream: U)
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
{
    let (mut sink, mut source) = client.split();
    match pump(&mut sink, &mut source, upstream).await {
        End::Upstream => {}
        // The library answers when it is asked for more.
        End::Close => drop(timeout(CLOSE_TIMEOUT, source.next()).await),
        End::Client(error) => tell_mask(&mut sink, &error).await,
    }
}

/// Why a relay ended.
#[derive(Debug)]
pub enum End {
    /// The far side is gone, or takes nothing.
    Upstream,
    /// The client sent a Close frame, which is not answered yet.
    Close,
    /// The client is gone, or breaks the protocol.
    Client(tungstenite::Error),
}

async fn pump<C, U>(sink: &mut Sink<'_, C>, source: &mut Source<'_, C>, upstream: U) -> End
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
{
    let (mut read, mut write) = tokio::io::split(upstream);
    let to_client = async {
        let mut buffer = vec![0; READ];
        while let Ok(length @ 1..) = read.read(&mut buffer).await {
            if send(sink, &buffer[..length]).await.is_err() {
                break;
            }
        }
        End::Upstream
    };
    let to_upstream = async {
        loop {
            match source.next().await {
                Some(Ok(Message::Binary(data))) => {
                    if write.write_all(&data).await.is_err() || write.flush().await.is_err() {
                        return End::Upstream;
                    }
                }
                Some(Ok(Message::Close(_))) => return End::Close,
                // Text is ignored; pings are answered by the library.
                Some(Ok(_)) => {}
                Some(Err(error)) => return End::Client(error),
                None => return End::Upstream,
            }
        }
    };
    tokio::select! {
        ended = to_client => ended,
        ended = to_upstream => ended,
    }
}

/// Sends one message, in gorilla's frames.
///
/// # Errors
/// When the client is gone.
pub async fn send<C>(sink: &mut Sink<'_, C>, data: &[u8]) -> Result<(), tungstenite::Error>
where
    C: AsyncRead + AsyncWrite + Unpin,
{
    for piece in frames::pieces(data.len()) {
        let code = OpCode::Data(if piece.first {
            Data::Binary
        } else {
            Data::Continue
        });
        let payload = Bytes::copy_from_slice(&data[piece.range]);
        sink.feed(Message::Frame(Frame::message(payload, code, piece.last)))
            .await?;
    }
    sink.flush().await
}

/// The one fault that a client is told: it did not mask its frames.
pub async fn tell_mask<C>(sink: &mut Sink<'_, C>, error: &tungstenite::Error)
where
    C: AsyncRead + AsyncWrite + Unpin,
{
    if matches!(
        error,
        tungstenite::Error::Protocol(ProtocolError::UnmaskedFrameFromClient)
    ) {
        let close = CloseFrame {
            code: CloseCode::Protocol,
            reason: "bad MASK".into(),
        };
        // The connection ends either way.
        let _ = timeout(CLOSE_TIMEOUT, sink.send(Message::Close(Some(close)))).await;
    }
}
