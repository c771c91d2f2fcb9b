//! A streaming subresource through kube-apiserver, as a WebSocket client sees it.

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use futures::{
    SinkExt as _, StreamExt as _,
    stream::{SplitSink, SplitStream},
};
use http::{Request, Response, StatusCode};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use kube::Client;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        protocol::{CloseFrame, Role},
    },
};

/// What a caller meets at a streaming subresource.
#[derive(Debug)]
pub enum Opened {
    /// 101: the stream and the subprotocol that was chosen.
    Stream(Box<Stream>, Option<String>),
    /// Anything else: the code and the body.
    Refused(StatusCode, Value),
}

impl Opened {
    /// The stream.
    ///
    /// # Errors
    /// With what was answered instead.
    pub fn stream(self) -> Result<Stream> {
        match self {
            Self::Stream(stream, _) => Ok(*stream),
            Self::Refused(code, body) => bail!("refused with {code}: {body}"),
        }
    }
}

/// How a stream ended; also the cause of an error where more of it was wanted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum End {
    /// With a close frame.
    #[error("closed with {0} {1:?}")]
    Closed(u16, String),
    /// Without one.
    #[error("cut without a close frame")]
    Cut,
}

impl From<Option<CloseFrame>> for End {
    fn from(frame: Option<CloseFrame>) -> Self {
        match frame {
            Some(frame) => Self::Closed(frame.code.into(), frame.reason.to_string()),
            None => Self::Closed(1005, String::new()),
        }
    }
}

/// A WebSocket over whatever was upgraded.
pub type Socket = WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>;

/// An open stream.
#[derive(Debug)]
pub struct Stream {
    socket: Socket,
    /// What has arrived and was not looked at.
    pub seen: Vec<u8>,
    channels: bool,
    /// What arrived on channel 3 (v4 and v5).
    pub status: Option<Value>,
}

/// Opens a path with subprotocols, in the client's order.
///
/// # Errors
/// When no answer comes.
pub async fn open(client: &Client, path: &str, protocols: &[&str]) -> Result<Opened> {
    let request = handshake(path, protocols);
    let response = client
        .send(request.body(kube::client::Body::empty())?)
        .await?;
    opened(response).await
}

/// The same over a connection of the caller's own, straight to a server, with headers that say who asks.
///
/// # Errors
/// When no answer comes.
pub async fn open_over(
    io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    path: &str,
    protocols: &[&str],
    headers: &[(&str, &str)],
) -> Result<Opened> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(io)).await?;
    tokio::spawn(connection.with_upgrades());
    let mut request = handshake(path, protocols).header("Host", "workspaces");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = http_body_util::Empty::<Bytes>::new();
    opened(sender.send_request(request.body(body)?).await?).await
}

fn handshake(path: &str, protocols: &[&str]) -> http::request::Builder {
    let request = Request::get(path)
        .header("Connection", "Upgrade")
        .header("Upgrade", "websocket")
        .header("Sec-WebSocket-Version", "13")
        .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==");
    if protocols.is_empty() {
        return request;
    }
    request.header("Sec-WebSocket-Protocol", protocols.join(", "))
}

async fn opened<B>(response: Response<B>) -> Result<Opened>
where
    B: hyper::body::Body + Send + 'static,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    let code = response.status();
    if code != StatusCode::SWITCHING_PROTOCOLS {
        let body = http_body_util::BodyExt::collect(response.into_body())
            .await?
            .to_bytes();
        return Ok(Opened::Refused(
            code,
            serde_json::from_slice(&body).unwrap_or(Value::Null),
        ));
    }
    let chosen = response
        .headers()
        .get("Sec-WebSocket-Protocol")
        .map(|v| v.to_str().map(str::to_owned));
    let chosen = chosen.transpose()?;
    let upgraded = hyper::upgrade::on(response).await?;
    let socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, None).await;
    let channels = chosen
        .as_deref()
        .is_some_and(|p| p.ends_with("channel.k8s.io"));
    Ok(Opened::Stream(
        Box::new(Stream {
            socket,
            seen: Vec::new(),
            channels,
            status: None,
        }),
        chosen,
    ))
}

impl Stream {
    /// Types text (stdin).
    ///
    /// # Errors
    /// When the stream has ended.
    pub async fn write(&mut self, text: &str) -> Result<()> {
        self.write_channel(0, text.as_bytes()).await
    }

    /// Sends a text message, as terminals over SSH are told what is no data.
    ///
    /// # Errors
    /// When the stream has ended.
    pub async fn say(&mut self, message: &Value) -> Result<()> {
        let text = Message::text(message.to_string());
        Ok(self.socket.send(text).await?)
    }

    /// The two directions, for who uses both at once.
    pub fn split(self) -> (SplitSink<Socket, Message>, SplitStream<Socket>) {
        self.socket.split()
    }

    /// Writes to a channel; raw streams have one, without a number.
    ///
    /// # Errors
    /// When the stream has ended.
    pub async fn write_channel(&mut self, channel: u8, bytes: &[u8]) -> Result<()> {
        let mut data = if self.channels {
            vec![channel]
        } else {
            Vec::new()
        };
        data.extend_from_slice(bytes);
        Ok(self.socket.send(Message::Binary(Bytes::from(data))).await?)
    }

    /// Sends a text frame.
    ///
    /// # Errors
    /// When the stream has ended.
    pub async fn write_text(&mut self, text: String) -> Result<()> {
        Ok(self.socket.send(Message::Text(text.into())).await?)
    }

    /// Reads until the text has been seen since the last call; gives all that came with it.
    ///
    /// # Errors
    /// After `seconds`, or when the stream ends first; with what was seen.
    pub async fn expect(&mut self, text: &str, seconds: u64) -> Result<String> {
        let limit = tokio::time::Instant::now() + std::time::Duration::from_secs(seconds);
        loop {
            if let Some(at) = find(&self.seen, text.as_bytes()) {
                let rest = self.seen.split_off(at + text.len());
                let came = std::mem::replace(&mut self.seen, rest);
                return Ok(String::from_utf8_lossy(&came).into_owned());
            }
            let seen = || String::from_utf8_lossy(&self.seen).into_owned();
            match tokio::time::timeout_at(limit, self.socket.next()).await {
                Err(_) => bail!("{text:?} did not come in {seconds} s; seen: {:?}", seen()),
                Ok(None) => bail!("the stream ended before {text:?}; seen: {:?}", seen()),
                Ok(Some(Err(error))) => bail!("{error} before {text:?}; seen: {:?}", seen()),
                Ok(Some(Ok(Message::Close(frame)))) => {
                    let before = format!("before {text:?}; seen: {:?}", seen());
                    return Err(anyhow::Error::new(End::from(frame)).context(before));
                }
                Ok(Some(Ok(message))) => self.take(&message),
            }
        }
    }

    fn take(&mut self, message: &Message) {
        let (Message::Binary(_) | Message::Text(_)) = message else {
            return;
        };
        let data = message.clone().into_data();
        match (self.channels, data.first()) {
            (true, Some(1 | 2)) => self.seen.extend_from_slice(&data[1..]),
            (true, Some(3)) => self.status = serde_json::from_slice(&data[1..]).ok(),
            (true, _) => {}
            (false, _) => self.seen.extend_from_slice(&data),
        }
    }

    /// Reads until the stream ends.
    ///
    /// # Errors
    /// When it does not end within `seconds`.
    pub async fn end(&mut self, seconds: u64) -> Result<End> {
        let read = async {
            loop {
                match self.socket.next().await {
                    None | Some(Err(_)) => return End::Cut,
                    Some(Ok(Message::Close(frame))) => return frame.into(),
                    Some(Ok(message)) => self.take(&message),
                }
            }
        };
        let limit = std::time::Duration::from_secs(seconds);
        tokio::time::timeout(limit, read)
            .await
            .with_context(|| format!("the stream is still open after {seconds} s"))
    }

    /// Closes the stream and waits for the other side.
    ///
    /// # Errors
    /// When the other side does not end within 10 s.
    pub async fn close(&mut self) -> Result<()> {
        self.socket.close(None).await.ok();
        self.end(10).await.map(drop)
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}
