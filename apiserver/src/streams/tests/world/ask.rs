//! What clients do: open streams, and ask without an upgrade.

use apiserver_generic::call::full;
use http::Request;
use http_body_util::BodyExt as _;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{self, client::IntoClientRequest as _},
};

use super::{SOON, World};

pub(in crate::streams::tests) type Client = WebSocketStream<TcpStream>;

const WORKSPACES: &str = "/apis/kubeworkspaces.io/v1alpha1/namespaces/t1/workspaces";

impl World {
    /// Connects to the console.
    pub(in crate::streams::tests) async fn connect(
        &self,
        headers: &[(&'static str, &str)],
        query: &str,
    ) -> Result<(Client, Option<String>), (u16, Value)> {
        self.open(&format!("demo/console{query}"), headers).await
    }

    /// Connects to what follows `workspaces/`; gives the response's status and body when it is no
    /// upgrade.
    pub(in crate::streams::tests) async fn open(
        &self,
        path: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<(Client, Option<String>), (u16, Value)> {
        let mut request = format!("ws://{}{WORKSPACES}/{path}", self.address)
            .into_client_request()
            .unwrap();
        for (name, value) in headers {
            let value = value.parse().unwrap();
            match *name {
                "upgrade" | "sec-websocket-version" => {
                    request.headers_mut().insert(*name, value);
                }
                _ => drop(request.headers_mut().append(*name, value)),
            }
        }
        let io = TcpStream::connect(self.address).await.unwrap();
        let connecting = tokio::time::timeout(SOON, client_async(request, io));
        match connecting.await.unwrap() {
            Ok((client, response)) => {
                let chosen = response.headers().get("sec-websocket-protocol");
                let chosen = chosen.map(|value| value.to_str().unwrap().to_owned());
                Ok((client, chosen))
            }
            Err(tungstenite::Error::Http(response)) => {
                let body = response.body().clone().unwrap_or_default();
                let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
                Err((response.status().as_u16(), body))
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// An opening handshake by its bare headers: the code, and the subprotocol that was chosen. The
    /// connection is cut at once.
    pub(in crate::streams::tests) async fn handshake(
        &self,
        path: &str,
        headers: &[(&'static str, &str)],
    ) -> (u16, Option<String>) {
        let io = TokioIo::new(TcpStream::connect(self.address).await.unwrap());
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(connection.with_upgrades());
        let mut request = Request::get(format!("{WORKSPACES}/{path}"))
            .header("host", "x")
            .header("connection", "keep-alive, Upgrade")
            .header("upgrade", "WebSocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = sender.send_request(request.body(full("")).unwrap()).await;
        let response = response.unwrap();
        let chosen = response.headers().get("sec-websocket-protocol");
        let chosen = chosen.map(|value| value.to_str().unwrap().to_owned());
        (response.status().as_u16(), chosen)
    }

    /// Asks for what follows `workspaces/` without waiting for the answer.
    pub(in crate::streams::tests) async fn ask_blindly(
        &self,
        path: &str,
        headers: &str,
    ) -> TcpStream {
        use tokio::io::AsyncWriteExt as _;
        let mut io = TcpStream::connect(self.address).await.unwrap();
        let head = format!("GET {WORKSPACES}/{path} HTTP/1.1\r\nhost: x\r\n{headers}\r\n");
        io.write_all(head.as_bytes()).await.unwrap();
        io
    }

    /// A connection on which nothing was said yet.
    pub(in crate::streams::tests) async fn connection(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// A plain request for the console.
    pub(in crate::streams::tests) async fn ask(&self, method: &str) -> (u16, Value) {
        let (code, body) = self.request(method, "demo/console").await;
        (code, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    /// A plain request for what follows `workspaces/`.
    pub(in crate::streams::tests) async fn request(
        &self,
        method: &str,
        path: &str,
    ) -> (u16, Vec<u8>) {
        self.request_with(method, path, &[]).await
    }

    /// The same with more headers.
    pub(in crate::streams::tests) async fn request_with(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> (u16, Vec<u8>) {
        let io = TokioIo::new(TcpStream::connect(self.address).await.unwrap());
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        let uri = format!("{WORKSPACES}/{path}");
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.header("host", "x").body(full("")).unwrap();
        let response = sender.send_request(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, body.to_vec())
    }
}
