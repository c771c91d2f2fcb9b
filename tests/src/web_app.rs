//! An app as workspaces have them, for tests of the proxy: HTTP/1.1 with everything that a proxy may get wrong.
//!
//! | path | answer |
//! |---|---|
//! | `/echo…` | what arrived, as JSON: method, target, headers, length and checksum of the body |
//! | `/bytes/N` | N bytes, whose checksum is [`checksum`]'s of [`pattern`] |
//! | `/events/N` | an event stream of N events; each waits until [`App::tick`] allows it |
//! | `/page`, `/text` | [`PAGE`], as `text/html` and as `text/plain` |
//! | `/redirect?to=URL` | 302 |
//! | `/ws` | a WebSocket that sends back each message; its first message is what the handshake was |

use std::{convert::Infallible, net::SocketAddr, sync::Arc};

use anyhow::Result;
use apiserver_generic::request::first;
use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _};
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::Semaphore};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, handshake::derive_accept_key, protocol::Role},
};

/// A page with links of all kinds.
pub const PAGE: &str = "<!doctype html><html><head><link href=\"/a.css\"></head>\
    <body><a href=\"/login?x=1\">a</a><a href=\"b/c\">b</a><img src='//cdn.example/x.png'>\
    <script>fetch('/api')</script></body></html>";
/// One piece of a long answer.
const PIECE: usize = 64 << 10;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A running app.
pub struct App {
    address: SocketAddr,
    ticks: Arc<Semaphore>,
}

impl App {
    /// On a port of this machine; it ends with the test's runtime.
    ///
    /// # Errors
    /// When nothing can be listened on.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, ticks) = (listener.local_addr()?, Arc::new(Semaphore::new(0)));
        let shared = ticks.clone();
        tokio::spawn(async move {
            while let Ok((io, _)) = listener.accept().await {
                let ticks = shared.clone();
                let service = service_fn(move |request| {
                    let ticks = ticks.clone();
                    async move { Ok::<_, Infallible>(answer(request, ticks).await) }
                });
                let connection = http1::Builder::new().serve_connection(TokioIo::new(io), service);
                tokio::spawn(connection.with_upgrades());
            }
        });
        Ok(Self { address, ticks })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Lets one more event go.
    pub fn tick(&self) {
        self.ticks.add_permits(1);
    }
}

/// So many bytes, none of which repeats the one before.
pub fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n % 251) as u8).collect()
}

/// FNV-1a, 64 bits: enough to see a byte that is not the right one.
pub fn checksum<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> String {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let bytes = pieces.into_iter().flatten();
    format!("{:016x}", bytes.fold(0xcbf2_9ce4_8422_2325, step))
}

async fn answer(request: Request<Incoming>, ticks: Arc<Semaphore>) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let number = || {
        path.rsplit('/')
            .next()
            .and_then(|n| n.parse().ok())
            .unwrap_or(0)
    };
    match path.as_str() {
        "/ws" => websocket(request),
        "/page" => with_type("text/html; charset=utf-8", PAGE.to_owned()),
        "/text" => with_type("text/plain", PAGE.to_owned()),
        "/redirect" => redirect(request.uri().query().unwrap_or_default()),
        path if path.starts_with("/bytes/") => Response::new(long(number())),
        path if path.starts_with("/events/") => events(number(), ticks),
        _ => echo(request).await,
    }
}

fn with_type(kind: &str, body: String) -> Response<Body> {
    let response = Response::builder().header(header::CONTENT_TYPE, kind);
    response.body(full(body)).unwrap_or_default()
}

fn full(body: impl Into<Bytes>) -> Body {
    Full::new(body.into()).boxed_unsync()
}

fn redirect(query: &str) -> Response<Body> {
    let to = first(query, "to").unwrap_or_default();
    let response = Response::builder().status(StatusCode::FOUND);
    let response = response
        .header(header::LOCATION, to)
        .header(header::SET_COOKIE, "sid=1; Path=/; HttpOnly");
    response.body(full("")).unwrap_or_default()
}

fn long(length: usize) -> Body {
    let pieces = (0..length).step_by(PIECE).map(move |at| {
        let end = (at + PIECE).min(length);
        let piece: Vec<u8> = (at..end).map(|n| (n % 251) as u8).collect();
        Ok(Frame::data(piece.into()))
    });
    StreamBody::new(futures::stream::iter(pieces)).boxed_unsync()
}

fn events(count: usize, ticks: Arc<Semaphore>) -> Response<Body> {
    let events = futures::stream::iter(0..count).then(move |n| {
        let ticks = ticks.clone();
        async move {
            if let Ok(permit) = ticks.acquire().await {
                permit.forget();
            }
            Ok(Frame::data(Bytes::from(format!("data: {n}\n\n"))))
        }
    });
    let response = Response::builder().header(header::CONTENT_TYPE, "text/event-stream");
    let body = StreamBody::new(events).boxed_unsync();
    response.body(body).unwrap_or_default()
}

async fn echo(request: Request<Incoming>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let bytes = body.collect().await;
    let bytes = bytes
        .map(http_body_util::Collected::to_bytes)
        .unwrap_or_default();
    let said = json!({
        "method": head.method.as_str(),
        "target": head.uri.path_and_query().map(ToString::to_string),
        "headers": headers(&head.headers),
        "length": bytes.len(),
        "checksum": checksum([bytes.as_ref()]),
    });
    with_type("application/json", said.to_string())
}

fn headers(headers: &HeaderMap) -> Value {
    let line = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        (name.to_string(), Value::from(value))
    };
    Value::Object(headers.iter().map(line).collect())
}

fn websocket(mut request: Request<Incoming>) -> Response<Body> {
    let greeting = json!({ "headers": headers(request.headers()) }).to_string();
    let key = request.headers().get(header::SEC_WEBSOCKET_KEY);
    let accept = key
        .map(|key| derive_accept_key(key.as_bytes()))
        .unwrap_or_default();
    let offered = request.headers().get(header::SEC_WEBSOCKET_PROTOCOL);
    let chosen = offered
        .and_then(|offered| offered.to_str().ok()?.split(',').next())
        .map(|first| first.trim().to_owned());
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let Ok(io) = upgrade.await else { return };
        let mut socket =
            WebSocketStream::from_raw_socket(TokioIo::new(io), Role::Server, None).await;
        let _ = socket.send(Message::text(greeting)).await;
        while let Some(Ok(message @ (Message::Text(_) | Message::Binary(_)))) = socket.next().await
        {
            if socket.send(message).await.is_err() {
                return;
            }
        }
    });
    let mut response = Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "websocket")
        .header(header::SEC_WEBSOCKET_ACCEPT, accept);
    if let Some(chosen) = chosen {
        response = response.header(header::SEC_WEBSOCKET_PROTOCOL, chosen);
    }
    response.body(full("")).unwrap_or_default()
}
