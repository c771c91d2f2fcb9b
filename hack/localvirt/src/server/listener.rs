//! Accepts connections: TLS without ALPN, so HTTP/1.1 only (KubeVirt turned HTTP/2 off after CVE-2023-44487).

use std::{convert::Infallible, sync::Arc, time::Duration};

use http::Request;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

use super::handler::App;

/// Connections at a time; each console, display and port is one.
const MAX_CONNECTIONS: usize = 10_000;
/// How long a handshake, and then a request's head, may take.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait after `accept` failed (out of file descriptors, most likely).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Enough for a user with a thousand groups, each a header line.
const MAX_HEADERS: usize = 5_000;
/// The same in bytes.
const MAX_HEAD: usize = 1 << 20;

/// Serves until the app shuts down. What is open then is cut, as virt-api cuts it.
pub async fn serve(app: Arc<App>, listener: TcpListener, tls: TlsAcceptor) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else {
            return;
        };
        let accepted = tokio::select! {
            () = app.shutdown.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (app, tls) = (app.clone(), tls.clone());
        app.tasks.clone().spawn(async move {
            let shutdown = app.shutdown.clone();
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = connection(app, stream, tls) => {}
            }
            drop(slot);
        });
    }
}

async fn connection(app: Arc<App>, stream: TcpStream, tls: TlsAcceptor) {
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%error, "cannot turn Nagle's algorithm off");
    }
    let stream = match timeout(HEAD_TIMEOUT, tls.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return debug!(%error, "TLS handshake failed"),
        Err(_) => return debug!("TLS handshake took too long"),
    };
    let has_certificate = stream.get_ref().1.peer_certificates().is_some();
    let service = service_fn(move |request: Request<Incoming>| {
        let app = app.clone();
        async move { Ok::<_, Infallible>(app.handle(request, has_certificate).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await;
    if let Err(error) = served {
        debug!(%error, "connection failed");
    }
}
