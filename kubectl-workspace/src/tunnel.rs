//! Bytes between something local and a tunnel to a port of the guest.
//!
//! `v1.tunnel.kubeworkspaces.io`: the first byte of each binary message is 0 before data and 1 for "I have said all", so
//! that each direction ends by itself as in TCP. `binary` cannot express that: there the end of one direction is the end
//! of both. Entry point: [`relay`].

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::{Sink, SinkExt, Stream, StreamExt};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{self, Message};

use crate::close::Ending;

/// Subprotocol with half-close.
pub const TUNNEL: &str = "v1.tunnel.kubeworkspaces.io";
/// Subprotocol without.
pub const BINARY: &str = "binary";
/// In the order of preference.
pub const PROTOCOLS: [&str; 2] = [TUNNEL, BINARY];

const DATA: u8 = 0;
const END: u8 = 1;
/// Bytes read at once from the local side, and so the longest message.
const CHUNK: usize = 32 << 10;
/// The server pings every 15 s: a connection that says nothing for this long is dead.
const SILENCE: Duration = Duration::from_secs(60);
/// How long the server may take to answer our close frame.
const GOODBYE: Duration = Duration::from_secs(2);

/// How long the reason of an end may come after the end itself.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How bytes are wrapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// A byte says whether the rest is data.
    Tunnel,
    /// Bytes as they are.
    Binary,
}

impl Wire {
    /// That of a subprotocol.
    pub fn of(protocol: &str) -> Self {
        if protocol == TUNNEL {
            Self::Tunnel
        } else {
            Self::Binary
        }
    }
}

/// How a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Both sides have said all.
    Finished,
    /// We have said all, and the wire can only end both directions.
    FinishedForBoth,
    /// The local side went away.
    LocalGone,
    /// The stream ended.
    Stream(Ending),
}

/// What the server says where our end was the end of both.
const FOR_BOTH: &str = "no half-close";

impl End {
    /// Whether the other side could say no more once we had said all, for lack of a half-close.
    pub fn is_for_both(&self) -> bool {
        match self {
            Self::FinishedForBoth => true,
            Self::Stream(Ending::Closed { code: 1000, reason }) => reason.contains(FOR_BOTH),
            Self::Finished | Self::LocalGone | Self::Stream(_) => false,
        }
    }
}

/// Carries bytes until both directions have ended, and then the stream.
pub async fn relay<R, W, S>(reader: R, writer: W, mut stream: WebSocketStream<S>, wire: Wire) -> End
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
    S: AsyncRead + AsyncWrite + Unpin,
{
    let end = {
        let (mut sink, mut source) = (&mut stream).split();
        let (told, theirs) = oneshot::channel();
        let both = async {
            match speak(reader, &mut sink, wire).await {
                Ok(()) => {}
                Err(End::Stream(cut)) => {
                    // hearing may know better why
                    tokio::time::sleep(LAST_WORDS).await;
                    return End::Stream(cut);
                }
                Err(end) => return end,
            }
            if wire == Wire::Binary {
                return End::FinishedForBoth;
            }
            match theirs.await {
                Ok(()) => End::Finished,
                // hearing has ended and says how
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            end = hear(&mut source, writer, wire, told) => end,
            end = both => end,
        }
    };
    if !matches!(end, End::Stream(_)) {
        // a server that is gone needs no goodbye
        let _ = tokio::time::timeout(GOODBYE, goodbye(&mut stream)).await;
    }
    end
}

/// Local to remote, until the local side has said all.
async fn speak<R, K>(mut reader: R, sink: &mut K, wire: Wire) -> Result<(), End>
where
    R: AsyncRead + Unpin,
    K: Sink<Message, Error = tungstenite::Error> + Unpin,
{
    let mut buffer = BytesMut::with_capacity(CHUNK + 1);
    loop {
        buffer.reserve(CHUNK + 1);
        if wire == Wire::Tunnel {
            buffer.extend_from_slice(&[DATA]);
        }
        let read = (&mut reader).take(CHUNK as u64).read_buf(&mut buffer).await;
        let message = match read {
            Err(_) => return Err(End::LocalGone),
            Ok(0) if wire == Wire::Binary => return Ok(()),
            Ok(0) => Bytes::from_static(&[END]),
            Ok(_) => buffer.split().freeze(),
        };
        let last = message.as_ref() == [END] && wire == Wire::Tunnel;
        sink.send(Message::Binary(message))
            .await
            .map_err(|e| End::Stream(cut(&e)))?;
        if last {
            return Ok(());
        }
    }
}

/// Remote to local, until the stream ends. Pings are answered on the way (the library does).
async fn hear<W, K>(source: &mut K, mut writer: W, wire: Wire, told: oneshot::Sender<()>) -> End
where
    W: AsyncWrite + Unpin,
    K: Stream<Item = Result<Message, tungstenite::Error>> + Unpin,
{
    let mut told = Some(told);
    loop {
        let message = match tokio::time::timeout(SILENCE, source.next()).await {
            Err(_) => return silent(),
            Ok(None) => return End::Stream(Ending::Cut("end of file".into())),
            Ok(Some(Err(e))) => return End::Stream(cut(&e)),
            Ok(Some(Ok(message))) => message,
        };
        let bytes = match message {
            Message::Binary(bytes) => bytes,
            Message::Text(text) => text.into(),
            Message::Close(frame) => return closed(frame, &mut writer).await,
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => continue,
        };
        let written = match (wire, bytes.first()) {
            (_, None) => Ok(()),
            (Wire::Binary, _) => write(&mut writer, &bytes).await,
            (Wire::Tunnel, Some(&DATA)) => write(&mut writer, &bytes[1..]).await,
            (Wire::Tunnel, Some(&END)) => {
                let shut = writer.shutdown().await;
                // the other direction may be over and waited for
                let _ = told.take().map(|told| told.send(()));
                shut
            }
            (Wire::Tunnel, Some(other)) => {
                let what =
                    format!("a message begins with {other}, which this plugin does not know");
                return End::Stream(Ending::Cut(what));
            }
        };
        if written.is_err() {
            return End::LocalGone;
        }
    }
}

async fn write<W: AsyncWrite + Unpin>(to: &mut W, bytes: &[u8]) -> std::io::Result<()> {
    to.write_all(bytes).await?;
    to.flush().await
}

fn silent() -> End {
    let seconds = SILENCE.as_secs();
    End::Stream(Ending::Cut(format!("nothing came for {seconds} s")))
}

/// A close frame ends what the local side hears, too.
async fn closed<W: AsyncWrite + Unpin>(frame: Option<CloseFrame>, writer: &mut W) -> End {
    // the local side may be gone
    let _ = writer.shutdown().await;
    let (code, reason) = frame.map_or((1000, String::new()), |frame| {
        (frame.code.into(), frame.reason.to_string())
    });
    End::Stream(Ending::Closed { code, reason })
}

fn cut(error: &tungstenite::Error) -> Ending {
    Ending::Cut(error.to_string())
}

/// The close handshake: the server has released the session when its half comes.
pub async fn goodbye<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut WebSocketStream<S>) {
    let close = CloseFrame {
        code: CloseCode::Normal,
        reason: "".into(),
    };
    if stream.close(Some(close)).await.is_ok() {
        while let Some(Ok(_)) = stream.next().await {}
    }
}

#[cfg(test)]
#[path = "tunnel_tests.rs"]
mod tests;
