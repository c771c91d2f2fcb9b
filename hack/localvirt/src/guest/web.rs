//! A web server in the guest, for tests of what lies between: it says what it got, and sends what proxies get wrong.
//!
//! Entry point: [`serve`] (the binary `guest-web`).

use std::convert::Infallible;

use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _, stream};
use http::{
    HeaderMap, HeaderValue, Request, Response, StatusCode,
    header::{
        CONNECTION, CONTENT_TYPE, LOCATION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SET_COOKIE,
        UPGRADE,
    },
};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::{
    net::TcpListener,
    time::{Duration, sleep},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{handshake::derive_accept_key, protocol::Role},
};

/// Most bytes of one answer.
const MAX_BYTES: usize = 1 << 30;
const CHUNK: usize = 32 << 10;

type Body = BoxBody<Bytes, hyper::Error>;

/// Serves until the process ends.
pub async fn serve(listener: TcpListener) {
    loop {
        let Ok((connection, _)) = listener.accept().await else {
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        tokio::spawn(async move {
            let service =
                service_fn(|request| async { Ok::<_, Infallible>(answer(request).await) });
            // A client that goes away is no news.
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(connection), service)
                .with_upgrades()
                .await;
        });
    }
}

async fn answer(request: Request<Incoming>) -> Response<Body> {
    let query = request.uri().query().unwrap_or_default().to_owned();
    match request.uri().path() {
        "/" => whole("text/plain", "guest-web\n"),
        "/echo" => echo(request),
        "/request" => said(&request),
        "/ws" => websocket(request),
        "/html" => whole(
            "text/html",
            "<html><a href=\"/request\">request</a></html>\n",
        ),
        "/redirect" => with(
            StatusCode::FOUND,
            &[(LOCATION.as_str(), word(&query, "to").unwrap_or("/"))],
        ),
        "/cookie" => with(
            StatusCode::OK,
            &[(SET_COOKIE.as_str(), "guest=1; Path=/; Domain=guest.example")],
        ),
        "/policy" => with(
            StatusCode::OK,
            &[
                ("service-worker-allowed", "/"),
                ("clear-site-data", "\"*\""),
                ("strict-transport-security", "max-age=31536000"),
                ("content-security-policy", "default-src *"),
            ],
        ),
        "/status" => with(
            number(&query, "code")
                .and_then(status)
                .unwrap_or(StatusCode::OK),
            &[],
        ),
        "/bytes" => bytes(number(&query, "n").unwrap_or(CHUNK).min(MAX_BYTES)),
        "/slow" => slow(
            number(&query, "lines").unwrap_or(3),
            number(&query, "ms").unwrap_or(100),
        ),
        _ => with(StatusCode::NOT_FOUND, &[]),
    }
}

/// What came, as JSON: method, target, headers in their order.
fn said(request: &Request<Incoming>) -> Response<Body> {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let headers: Vec<_> = request
        .headers()
        .iter()
        .map(|(k, v)| json!([k.as_str(), text(v)]))
        .collect();
    let said = json!({ "method": request.method().as_str(), "target": request.uri().to_string(), "headers": headers });
    whole("application/json", said.to_string())
}

fn echo(request: Request<Incoming>) -> Response<Body> {
    let kind = request.headers().get(CONTENT_TYPE).cloned();
    let mut response = Response::new(request.into_body().boxed());
    if let Some(kind) = kind {
        response.headers_mut().insert(CONTENT_TYPE, kind);
    }
    response
}

/// The bytes 0 to 250, again and again.
fn bytes(length: usize) -> Response<Body> {
    let chunks = (0..length.div_ceil(CHUNK)).map(move |n| {
        let range = n * CHUNK..((n + 1) * CHUNK).min(length);
        let data: Vec<u8> = range.map(|at| (at % 251).to_le_bytes()[0]).collect();
        Ok(Frame::data(Bytes::from(data)))
    });
    Response::new(BodyExt::boxed(StreamBody::new(stream::iter(chunks))))
}

fn slow(lines: usize, millis: usize) -> Response<Body> {
    let pause = Duration::from_millis(u64::try_from(millis).unwrap_or_default());
    let chunks = stream::iter(0..lines).then(move |n| async move {
        sleep(pause).await;
        Ok(Frame::data(Bytes::from(format!("{n}\n"))))
    });
    Response::new(BodyExt::boxed(StreamBody::new(chunks)))
}

/// Sends back every message; the first subprotocol that is offered is chosen.
fn websocket(request: Request<Incoming>) -> Response<Body> {
    let Some(key) = request.headers().get(SEC_WEBSOCKET_KEY).cloned() else {
        return with(
            StatusCode::UPGRADE_REQUIRED,
            &[(UPGRADE.as_str(), "websocket")],
        );
    };
    let accept = derive_accept_key(key.as_bytes());
    let chosen = protocol(request.headers());
    let mut headers = vec![
        (UPGRADE.as_str(), "websocket"),
        (CONNECTION.as_str(), "Upgrade"),
        (SEC_WEBSOCKET_ACCEPT.as_str(), accept.as_str()),
    ];
    if let Some(chosen) = &chosen {
        headers.push(("sec-websocket-protocol", chosen));
    }
    let response = with(StatusCode::SWITCHING_PROTOCOLS, &headers);
    tokio::spawn(async move {
        let Ok(upgraded) = hyper::upgrade::on(request).await else {
            return;
        };
        let socket =
            WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await;
        let (mut sink, mut source) = socket.split();
        while let Some(Ok(message)) = source.next().await {
            if (message.is_text() || message.is_binary()) && sink.send(message).await.is_err() {
                return;
            }
        }
    });
    response
}

fn protocol(headers: &HeaderMap) -> Option<String> {
    let offered = headers.get("sec-websocket-protocol")?.to_str().ok()?;
    offered.split(',').next().map(|p| p.trim().to_owned())
}

fn whole(kind: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(full(body));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn with(code: StatusCode, headers: &[(&str, &str)]) -> Response<Body> {
    let mut response = Response::new(full(Bytes::new()));
    *response.status_mut() = code;
    for (name, value) in headers {
        // What a query put in may be no header.
        if let (Ok(name), Ok(value)) = (
            http::HeaderName::try_from(*name),
            HeaderValue::try_from(*value),
        ) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

fn full(body: impl Into<Bytes>) -> Body {
    Full::new(body.into())
        .map_err(|never| match never {})
        .boxed()
}

fn word<'a>(query: &'a str, key: &str) -> Option<&'a str> {
    query
        .split('&')
        .find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='))
}

fn number(query: &str, key: &str) -> Option<usize> {
    word(query, key)?.parse().ok()
}

fn status(code: usize) -> Option<StatusCode> {
    let code = StatusCode::from_u16(u16::try_from(code).ok()?).ok()?;
    (!code.is_informational()).then_some(code)
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpStream,
    };
    use tokio_tungstenite::tungstenite::Message;

    use super::*;

    async fn start() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(serve(listener));
        address
    }

    async fn ask(request: &str) -> String {
        let mut stream = TcpStream::connect(start().await).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    fn get(path: &str) -> String {
        format!(
            "GET {path} HTTP/1.1\r\nHost: guest\r\nX-Twice: a\r\nX-Twice: b\r\nConnection: close\r\n\r\n"
        )
    }

    #[tokio::test]
    async fn it_says_what_it_got() {
        let answer = ask(&get("/request?a=b%2Fc")).await;
        assert!(
            answer.contains(r#""target":"/request?a=b%2Fc""#),
            "{answer}"
        );
        assert!(
            answer.contains(r#"["x-twice","a"],["x-twice","b"]"#),
            "{answer}"
        );
        let post = "POST /echo HTTP/1.1\r\nHost: guest\r\nContent-Length: 4\r\nConnection: close\r\n\r\nback";
        assert!(ask(post).await.ends_with("back"));
    }

    #[tokio::test]
    async fn it_sends_what_proxies_get_wrong() {
        let cases = [
            ("/redirect?to=/request", "302 Found"),
            ("/redirect?to=/request", "location: /request"),
            (
                "/cookie",
                "set-cookie: guest=1; Path=/; Domain=guest.example",
            ),
            ("/policy", "service-worker-allowed: /"),
            ("/status?code=418", "418"),
            ("/status?code=101", "200 OK"),
            ("/nothing", "404 Not Found"),
            ("/ws", "426 Upgrade Required"),
            ("/slow?lines=2&ms=1", "2\r\n1\n\r\n0\r\n"),
        ];
        for (path, want) in cases {
            let answer = ask(&get(path)).await;
            assert!(answer.contains(want), "{path}: {answer}");
        }
    }

    #[tokio::test]
    async fn bytes_are_a_pattern_of_the_length_that_is_asked_for() {
        let mut stream = TcpStream::connect(start().await).await.unwrap();
        let request = "GET /bytes?n=70000 HTTP/1.0\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        let body = answer.len() - 70_000;
        assert!(answer[..body].ends_with(b"\r\n\r\n"));
        assert!(
            answer[body..]
                .iter()
                .enumerate()
                .all(|(at, byte)| usize::from(*byte) == at % 251)
        );
    }

    #[tokio::test]
    async fn a_websocket_sends_back_and_chooses_what_is_offered() {
        let mut stream = TcpStream::connect(start().await).await.unwrap();
        let request = "GET /ws HTTP/1.1\r\nHost: guest\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: chat, more\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        assert!(
            head.contains("101") && head.contains("sec-websocket-protocol: chat\r\n"),
            "{head}"
        );
        let mut socket = WebSocketStream::from_raw_socket(stream, Role::Client, None).await;
        for message in [Message::text("text"), Message::binary(vec![1, 2])] {
            socket.send(message.clone()).await.unwrap();
            assert_eq!(socket.next().await.unwrap().unwrap(), message);
        }
    }
}
