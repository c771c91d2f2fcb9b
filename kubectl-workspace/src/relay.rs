//! A running session: what is typed goes to the workspace, what it says comes out.
//!
//! Reading what is typed never waits for the network, so that `Ctrl-]` works on a dead connection too.
//! Entry point: [`Relay::run`].

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{self, Message};

use crate::channel::{self, Exit, FromServer};
use crate::close::Ending;
use crate::escape::{Typed, scan};

/// Reads of typed input that may wait for the network.
const TYPED_AHEAD: usize = 256;
const CHUNK: usize = 8 << 10;
/// The server pings every 15 s: a connection that says nothing for this long is dead.
const SILENCE: Duration = Duration::from_secs(60);
/// The user wants out; a dead connection is not waited for.
const GOODBYE: Duration = Duration::from_millis(500);

/// How the bytes are wrapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Bytes as they are (`plain.kubevirt.io`).
    Raw,
    /// Channels; whether the end of input can be said (v5).
    Channels {
        /// v5 can, v4 cannot.
        half_close: bool,
    },
}

/// How a session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The user typed the escape.
    Escaped,
    /// Nobody reads our output any more.
    OutputClosed,
    /// The remote command ended.
    Exited(Exit),
    /// The stream ended.
    Ended(Ending),
}

/// The local side of a session.
#[derive(Debug)]
pub struct Relay<I, O, E> {
    /// What is typed.
    pub input: I,
    /// Where the workspace's output goes.
    pub output: O,
    /// Where its error output goes.
    pub errors: E,
    /// How the bytes are wrapped.
    pub framing: Framing,
    /// A person types: the escape counts, and what the network does not take is dropped.
    pub interactive: bool,
    /// Sizes of the terminal, as it changes.
    pub sizes: mpsc::Receiver<(u16, u16)>,
}

impl<I, O, E> Relay<I, O, E>
where
    I: AsyncRead + Unpin + Send + 'static,
    O: AsyncWrite + Unpin,
    E: AsyncWrite + Unpin,
{
    /// Runs until either side ends it.
    pub async fn run<S>(self, stream: WebSocketStream<S>) -> Outcome
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let Self {
            input,
            output,
            errors,
            framing,
            interactive,
            sizes,
        } = self;
        let (mut sink, source) = stream.split();
        let (typed, mut queue) = mpsc::channel(TYPED_AHEAD);
        let reading = tokio::spawn(read_typed(input, typed, interactive));
        let outcome = tokio::select! {
            outcome = hear(source, output, errors, framing) => outcome,
            ending = speak(&mut sink, &mut queue, sizes, framing) => Outcome::Ended(ending),
            escaped = escape(reading) => escaped,
        };
        if matches!(outcome, Outcome::Escaped | Outcome::OutputClosed) {
            let close = CloseFrame {
                code: CloseCode::Normal,
                reason: "".into(),
            };
            // what is typed before the escape is sent first, when the connection takes it
            let goodbye = async {
                while let Ok(bytes) = queue.try_recv() {
                    sink.feed(wrap(framing, &bytes)).await?;
                }
                sink.send(Message::Close(Some(close))).await
            };
            let _ = tokio::time::timeout(GOODBYE, goodbye).await;
        }
        outcome
    }
}

/// Ends when the user wants out; the end of input alone ends nothing.
async fn escape(reading: tokio::task::JoinHandle<bool>) -> Outcome {
    match reading.await {
        Ok(true) => Outcome::Escaped,
        _ => std::future::pending().await,
    }
}

/// Reads what is typed; `None` in the queue is its end. Answers whether the escape was typed.
async fn read_typed<I: AsyncRead + Unpin>(
    mut input: I,
    queue: mpsc::Sender<Option<Bytes>>,
    interactive: bool,
) -> bool {
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(CHUNK);
        let chunk = match input.read_buf(&mut buffer).await {
            Ok(0) | Err(_) => {
                // the session may be over already
                let _ = queue.send(None).await;
                return false;
            }
            Ok(_) => buffer.split().freeze(),
        };
        if !interactive {
            if queue.send(Some(chunk)).await.is_err() {
                return false;
            }
            continue;
        }
        let (bytes, escaped) = match scan(&chunk) {
            Typed::Input(bytes) => (bytes, false),
            Typed::Escape(bytes) => (bytes, true),
        };
        // a full queue is a dead connection: keys are dropped, the escape still works
        let _ = queue.try_send(Some(chunk.slice_ref(bytes)));
        if escaped {
            return true;
        }
    }
}

fn wrap(framing: Framing, typed: &Option<Bytes>) -> Message {
    match (framing, typed) {
        (Framing::Raw, Some(bytes)) => Message::Binary(bytes.clone()),
        (Framing::Channels { .. }, Some(bytes)) => {
            Message::Binary(channel::frame(channel::STDIN, bytes))
        }
        (Framing::Channels { half_close: true }, None) => Message::Binary(channel::close_stdin()),
        // an empty message is nothing in either protocol
        (Framing::Raw | Framing::Channels { half_close: false }, None) => {
            Message::Binary(Bytes::new())
        }
    }
}

async fn speak<S>(
    sink: &mut SplitSink<WebSocketStream<S>, Message>,
    typed: &mut mpsc::Receiver<Option<Bytes>>,
    mut sizes: mpsc::Receiver<(u16, u16)>,
    framing: Framing,
) -> Ending
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        let message = tokio::select! {
            Some(bytes) = typed.recv() => wrap(framing, &bytes),
            Some((columns, rows)) = sizes.recv() => match framing {
                Framing::Raw => continue,
                Framing::Channels { .. } => Message::Binary(channel::resize(columns, rows)),
            },
            else => return std::future::pending().await,
        };
        if let Err(e) = sink.send(message).await {
            return cut(&e);
        }
    }
}

/// Takes what the workspace says, and answers pings on the way (the library does).
async fn hear<S, O, E>(
    mut source: SplitStream<WebSocketStream<S>>,
    mut output: O,
    mut errors: E,
    framing: Framing,
) -> Outcome
where
    S: AsyncRead + AsyncWrite + Unpin,
    O: AsyncWrite + Unpin,
    E: AsyncWrite + Unpin,
{
    let mut exit = None;
    loop {
        let message = match tokio::time::timeout(SILENCE, source.next()).await {
            Err(_) => {
                return Outcome::Ended(Ending::Cut(format!(
                    "nothing came for {} s",
                    SILENCE.as_secs()
                )));
            }
            Ok(None) => return ended(exit, Ending::Cut("end of file".into())),
            Ok(Some(Err(e))) => return ended(exit, cut(&e)),
            Ok(Some(Ok(message))) => message,
        };
        let bytes = match message {
            Message::Binary(bytes) => bytes,
            Message::Text(text) => text.into(),
            Message::Close(frame) => return ended(exit, closed(frame)),
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => continue,
        };
        let from_server = match framing {
            Framing::Raw => FromServer::Output(bytes),
            Framing::Channels { .. } => channel::read(&bytes),
        };
        let written = match from_server {
            FromServer::Output(bytes) => write(&mut output, &bytes).await,
            FromServer::Error(bytes) => write(&mut errors, &bytes).await,
            FromServer::Exit(status) => {
                exit = Some(status);
                Ok(())
            }
            FromServer::Nothing => Ok(()),
        };
        if written.is_err() {
            return Outcome::OutputClosed;
        }
    }
}

async fn write<W: AsyncWrite + Unpin>(to: &mut W, bytes: &[u8]) -> std::io::Result<()> {
    to.write_all(bytes).await?;
    to.flush().await
}

/// An exit status that was told is the end, whatever the connection did after it.
fn ended(exit: Option<Exit>, ending: Ending) -> Outcome {
    exit.map_or(Outcome::Ended(ending), Outcome::Exited)
}

/// A close frame without a code (1005) is an ordinary end.
fn closed(frame: Option<CloseFrame>) -> Ending {
    match frame {
        Some(frame) => Ending::Closed {
            code: frame.code.into(),
            reason: frame.reason.to_string(),
        },
        None => Ending::Closed {
            code: 1000,
            reason: String::new(),
        },
    }
}

fn cut(error: &tungstenite::Error) -> Ending {
    Ending::Cut(error.to_string())
}

#[cfg(test)]
mod tests;
