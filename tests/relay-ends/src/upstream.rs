//! The process at the far end: a double of KubeVirt's streaming subresources, which says so.
//!
//! The server under test has it for its kube-apiserver. Consoles and ports of machines end here, where each byte is
//! compared; every other request goes on to the real kube-apiserver as it is. The peer dials it too, by the same paths.

use std::{io::Write as _, path::Path, sync::Arc};

use anyhow::{Context as _, Result, ensure};
use http::{Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use kube::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsStream, server};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::{
    job::{Job, RECEIPT, REQUEST},
    link::Link,
    noise::{LONGEST, Noise},
    tls,
};

const SUBPROTOCOL: &str = "plain.kubevirt.io";

/// Serves until it is killed; its first line says where.
///
/// # Errors
/// When it cannot.
pub async fn run(cert: &Path, key: &Path, kubeconfig: &Path) -> Result<()> {
    crate::raise_files();
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let shared = Arc::new(Shared {
        apiserver: Client::try_from(config)?,
        noise: Noise::default(),
    });
    let acceptor = TlsAcceptor::from(Arc::new(tls::server(cert, key)?));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?.port());
    std::io::stdout().flush()?;
    loop {
        let (tcp, _) = listener.accept().await?;
        let (acceptor, shared) = (acceptor.clone(), shared.clone());
        tokio::spawn(async move {
            if let Err(error) = shared.serve(acceptor, tcp).await {
                eprintln!("upstream: {error:#}");
            }
        });
    }
}

struct Shared {
    apiserver: Client,
    noise: Noise,
}

impl Shared {
    async fn serve(self: Arc<Self>, acceptor: TlsAcceptor, tcp: TcpStream) -> Result<()> {
        tcp.set_nodelay(true)?;
        let io = TokioIo::new(acceptor.accept(tcp).await?);
        let service = service_fn(|request| self.clone().answer(request));
        let connection = http1::Builder::new().serve_connection(io, service);
        // A client that goes away is none of our troubles.
        let _ = connection.with_upgrades().await;
        Ok(())
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Body>> {
        match is_stream(request.uri().path()) {
            true => self.stream(request),
            false => self.forward(request).await,
        }
    }

    /// To the real kube-apiserver; its answer, which may be a watch, is passed on as it comes.
    async fn forward(&self, request: Request<Incoming>) -> Result<Response<Body>> {
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes().to_vec();
        let request = Request::from_parts(head, Body::from(body));
        Ok(self.apiserver.send(request).await?)
    }

    fn stream(self: Arc<Self>, mut request: Request<Incoming>) -> Result<Response<Body>> {
        let key = request.headers().get(header::SEC_WEBSOCKET_KEY);
        let key = key.context("streams begin with a WebSocket's handshake")?;
        let accept = derive_accept_key(key.as_bytes());
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let job = async {
                let parts = upgrade
                    .await?
                    .downcast::<TokioIo<server::TlsStream<TcpStream>>>();
                let parts = parts.ok().context("a connection of another kind")?;
                let io = TlsStream::Server(parts.io.into_inner());
                self.work(Link::new(io, &parts.read_buf)).await
            };
            if let Err(error) = job.await {
                eprintln!("upstream: {error:#}");
            }
        });
        Ok(Response::builder()
            .status(StatusCode::SWITCHING_PROTOCOLS)
            .header(header::CONNECTION, "Upgrade")
            .header(header::UPGRADE, "websocket")
            .header(header::SEC_WEBSOCKET_ACCEPT, accept)
            .header(header::SEC_WEBSOCKET_PROTOCOL, SUBPROTOCOL)
            .body(Body::empty())?)
    }

    async fn work(&self, mut link: Link) -> Result<()> {
        let mut request = [0; REQUEST];
        request.copy_from_slice(&link.read(REQUEST).await?);
        match Job::read(request)? {
            Job::Take { bytes } => {
                compare(&mut link, &self.noise, bytes).await?;
                link.send(RECEIPT).await?;
                link.flush().await?;
            }
            Job::Pour { size, bytes } => pour(&mut link, &self.noise, size, bytes).await?,
            Job::Echo | Job::Quiet => {}
        }
        // After its job an end answers with what it gets, pings too, until it is told goodbye.
        link.rest();
        while let Some(range) = link.receive().await? {
            let bytes = link.bytes(range).to_vec();
            link.send(&bytes).await?;
            link.flush().await?;
        }
        Ok(())
    }
}

/// KubeVirt's `console`, `vnc` and `portforward` of an instance (`pkg/virt-api/api.go`).
fn is_stream(path: &str) -> bool {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    matches!(
        parts.as_slice(),
        ["apis", "subresources.kubevirt.io", _, "namespaces", _, "virtualmachineinstances", _, stream, ..]
            if ["console", "vnc", "portforward"].contains(stream)
    )
}

/// Takes so many bytes, each of which must be the right one.
///
/// # Errors
/// When one is not, or they do not all come.
pub async fn compare(link: &mut Link, noise: &Noise, bytes: u64) -> Result<()> {
    let mut position = 0;
    while position < bytes {
        let range = link.receive().await?;
        let range = range.with_context(|| format!("the stream ended after {position} bytes"))?;
        for piece in link.bytes(range).chunks(LONGEST) {
            ensure!(
                piece == noise.at(position, piece.len()),
                "other bytes came than were sent, within {} after {position}",
                piece.len()
            );
            position += piece.len() as u64;
        }
    }
    ensure!(position == bytes, "more bytes came than were sent");
    Ok(())
}

/// Sends so many bytes in messages of this size.
///
/// # Errors
/// When the stream ends before, or the messages would be too long.
pub async fn pour(link: &mut Link, noise: &Noise, size: u32, bytes: u64) -> Result<()> {
    let fits = (1..=LONGEST).contains(&(size as usize));
    ensure!(fits, "messages have 1 to {LONGEST} bytes, not {size}");
    let mut position = 0;
    while position < bytes {
        let length = u64::from(size).min(bytes - position);
        link.send(noise.at(position, length as usize)).await?;
        position += length;
    }
    link.flush().await
}
