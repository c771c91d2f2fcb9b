//! Dials upstreams through kube-apiserver with our own credentials; the token is read fresh for each.
//!
//! What the upstream says before it upgrades is translated by [`errors`]; KubeVirt and kubelets
//! have shapes of their own.

pub mod errors;
mod exec;
pub mod kubevirt;
mod pod_port;

use std::time::Duration;

use super::wire::Stdio;
use apiserver_generic::{ApiError, Reason};
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use kube::{Client, client::Body};
use tokio_tungstenite::tungstenite::handshake::{client::generate_key, derive_accept_key};

/// How long a dial may take, over all hops.
const DIAL_LIMIT: Duration = Duration::from_secs(10);
/// How much of a refusal is read.
const REFUSAL: usize = 64 * 1024;

/// A connection whose upgrade is done.
pub struct Dialled {
    /// The connection.
    pub io: TokioIo<Upgraded>,
    /// The subprotocol that the upstream chose.
    pub subprotocol: Option<String>,
}

/// Where to dial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Path and query.
    pub uri: String,
    /// Subprotocols in order of preference.
    pub subprotocols: &'static str,
    /// What it is, for messages: `console of the machine`.
    pub what: &'static str,
}

impl Address {
    /// The serial console of a VirtualMachineInstance.
    pub fn console(namespace: &str, instance: &str) -> Self {
        kubevirt::console(namespace, instance)
    }

    /// The display of a VirtualMachineInstance; `preserve` refuses rather than drop who has it.
    pub fn display(namespace: &str, instance: &str, preserve: bool) -> Self {
        kubevirt::display(namespace, instance, preserve)
    }

    /// A TCP port of a VirtualMachineInstance.
    pub fn guest_port(namespace: &str, instance: &str, port: u16) -> Self {
        kubevirt::port(namespace, instance, port)
    }

    /// A TCP port of a pod.
    pub fn pod_port(namespace: &str, pod: &str, port: u16) -> Self {
        pod_port::port(namespace, pod, port)
    }

    /// A shell in a container.
    pub fn shell(
        namespace: &str,
        container: &super::resolve::Container,
        shell: Option<&str>,
        stdio: Stdio,
    ) -> Self {
        exec::shell(namespace, container, shell, stdio)
    }
}

/// Dials.
///
/// # Errors
/// The upstream's refusal in our words, or that it could not be reached in time.
pub async fn dial(client: &Client, address: &Address) -> Result<Dialled, ApiError> {
    let dialling = tokio::time::timeout(DIAL_LIMIT, upgrade(client, address));
    dialling.await.unwrap_or_else(|_| {
        Err(ApiError::new(
            Reason::ServiceUnavailable,
            format!("the {} did not answer within 10 s; try again", address.what),
        )
        .retry_after(1))
    })
}

async fn upgrade(client: &Client, address: &Address) -> Result<Dialled, ApiError> {
    let key = generate_key();
    let request = request(address, &key).map_err(ApiError::internal)?;
    let response = client.send(request).await.map_err(|error| {
        ApiError::new(
            Reason::ServiceUnavailable,
            format!("the {} could not be reached; try again", address.what),
        )
        .retry_after(1)
        .because(error)
    })?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(refusal(response, address).await);
    }
    let expected = derive_accept_key(key.as_bytes());
    let accept = response.headers().get(header::SEC_WEBSOCKET_ACCEPT);
    if accept.is_none_or(|accept| accept.as_bytes() != expected.as_bytes()) {
        return Err(ApiError::internal(format!(
            "{}: the upstream's Sec-WebSocket-Accept is wrong",
            address.what
        )));
    }
    let subprotocol = response
        .headers()
        .get(header::SEC_WEBSOCKET_PROTOCOL)
        .and_then(|value| value.to_str().ok())
        .map(str::to_owned);
    let upgraded = hyper::upgrade::on(response)
        .await
        .map_err(ApiError::internal)?;
    Ok(Dialled {
        io: TokioIo::new(upgraded),
        subprotocol,
    })
}

fn request(address: &Address, key: &str) -> Result<Request<Body>, http::Error> {
    Request::get(&address.uri)
        .header(header::CONNECTION, HeaderValue::from_static("Upgrade"))
        .header(header::UPGRADE, HeaderValue::from_static("websocket"))
        .header(
            header::SEC_WEBSOCKET_VERSION,
            HeaderValue::from_static("13"),
        )
        .header(header::SEC_WEBSOCKET_KEY, key)
        .header(header::SEC_WEBSOCKET_PROTOCOL, address.subprotocols)
        .body(Body::empty())
}

async fn refusal(response: Response<Body>, address: &Address) -> ApiError {
    let status = response.status();
    let body = Limited::new(response.into_body(), REFUSAL).collect().await;
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    errors::translate(status.as_u16(), &body, address.what)
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    /// Answers one upgrade with these bytes in the same packet as its 101.
    async fn eager(listener: TcpListener, early: &'static [u8]) {
        let (mut io, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(io.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        let key = |line: &str| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("sec-websocket-key")
                .then(|| value.to_owned())
        };
        let accept = derive_accept_key(head.lines().find_map(key).unwrap().as_bytes());
        let answer = format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
        );
        let answer = [answer.as_bytes(), early].concat();
        io.write_all(&answer).await.unwrap();
        io.read_u8().await.unwrap_err();
    }

    #[tokio::test]
    async fn bytes_that_come_with_the_101_are_not_lost() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(eager(listener, b"\x82\x05hello"));
        let client = Client::try_from(kube::Config::new(url.parse().unwrap())).unwrap();
        let dialled = dial(&client, &Address::console("t1", "demo"))
            .await
            .unwrap();
        assert_eq!(dialled.subprotocol, None);
        let mut io = dialled.io;
        let mut frame = [0; 7];
        io.read_exact(&mut frame).await.unwrap();
        assert_eq!(&frame, b"\x82\x05hello");
        drop(io);
        server.await.unwrap();
    }
}
