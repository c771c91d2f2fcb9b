//! A client that writes HTTP and WebSocket bytes itself, so that nothing between hides what is on the wire.

#![allow(dead_code, reason = "each test file uses what it needs")]

use std::sync::Arc;

use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// A connection.
pub(crate) struct Wire {
    stream: TlsStream<TcpStream>,
}

/// A response's head and, unless it is a 101, its body.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) code: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Response {
    /// The value of a header, in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let lower = self.head.to_lowercase();
        let lines = lower.lines().skip(1).filter_map(|l| l.split_once(": "));
        lines
            .filter(|(n, _)| *n == name)
            .map(|(_, v)| v.to_owned())
            .next()
    }
}

/// A frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) fin: bool,
    pub(crate) opcode: u8,
    pub(crate) payload: Vec<u8>,
}

impl Wire {
    pub(crate) async fn connect(address: &str, name: &str, tls: Arc<ClientConfig>) -> Self {
        let tcp = TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let stream = TlsConnector::from(tls).connect(name, tcp).await.unwrap();
        Self { stream }
    }

    /// Sends a head and body, reads the response.
    pub(crate) async fn request(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Response {
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: test\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() {
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");
        head.push_str(body);
        self.stream.write_all(head.as_bytes()).await.unwrap();
        self.response().await
    }

    async fn response(&mut self) -> Response {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.stream.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        let code = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut response = Response {
            code,
            head,
            body: String::new(),
        };
        if let Some(length) = response.header("content-length") {
            let mut body = vec![0; length.parse().unwrap()];
            self.stream.read_exact(&mut body).await.unwrap();
            response.body = String::from_utf8_lossy(&body).into_owned();
        }
        response
    }

    /// Asks for an upgrade.
    pub(crate) async fn upgrade(&mut self, path: &str, headers: &[(&str, &str)]) -> Response {
        let mut all = vec![
            ("Connection", "Upgrade"),
            ("Upgrade", "websocket"),
            ("Sec-WebSocket-Version", "13"),
            ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        all.extend_from_slice(headers);
        self.request("GET", path, &all, "").await
    }

    /// Sends a masked frame of at most 125 bytes.
    pub(crate) async fn send(&mut self, opcode: u8, payload: &[u8]) {
        let length = u8::try_from(payload.len()).unwrap();
        assert!(length < 126);
        let key = [1, 2, 3, 4];
        let mut frame = vec![0x80 | opcode, 0x80 | length];
        frame.extend(key);
        frame.extend(payload.iter().zip(key.iter().cycle()).map(|(b, k)| b ^ k));
        self.stream.write_all(&frame).await.unwrap();
    }

    /// The next frame; `None` at the end of the connection.
    pub(crate) async fn frame(&mut self) -> Option<Frame> {
        let first = self.stream.read_u8().await.ok()?;
        let length = match self.stream.read_u8().await.ok()? {
            126 => usize::from(self.stream.read_u16().await.ok()?),
            127 => usize::try_from(self.stream.read_u64().await.ok()?).unwrap(),
            short => usize::from(short),
        };
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload).await.ok()?;
        Some(Frame {
            fin: first & 0x80 != 0,
            opcode: first & 0x0f,
            payload,
        })
    }

    /// Reads to the end; how it came: `UnexpectedEof` is a connection that was closed.
    pub(crate) async fn end(&mut self) -> std::io::ErrorKind {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest).await {
            Ok(_) => std::io::ErrorKind::UnexpectedEof,
            Err(error) => error.kind(),
        }
    }

    /// Bytes of data frames, until there are as many.
    pub(crate) async fn read(&mut self, length: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while all.len() < length {
            let frame = self.frame().await.expect("the stream ended");
            if frame.opcode < 8 {
                all.extend(frame.payload);
            }
        }
        all
    }
}
