//! One connection: handshake, then requests by HTTP/1.1 or HTTP/2 until either side ends it.

use std::{net::SocketAddr, pin::pin, sync::Arc};

use async_trait::async_trait;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use rustls::pki_types::CertificateDer;
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::sync::CancellationToken;

use super::{CurrentCertificate, contain, limits};
use crate::Body;

/// Who is at the other end of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    /// The certificates that it sent, its own first. It has proved that it holds that one's key;
    /// nothing else is known about them.
    pub certificates: Arc<[CertificateDer<'static>]>,
}

/// Answers requests.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Answers one request of `peer`.
    async fn answer(&self, request: Request<Body>, peer: &Peer) -> Response<Body>;
}

/// What all connections of a listener share.
pub(super) struct Shared {
    pub(super) acceptor: TlsAcceptor,
    pub(super) certificate: CurrentCertificate,
    pub(super) handler: Arc<dyn Handler>,
    /// Cancelled when connections are to end once they are idle.
    pub(super) closing: CancellationToken,
}

impl Shared {
    /// Serves a connection to its end.
    pub(super) async fn serve(self: Arc<Self>, tcp: TcpStream, address: SocketAddr) {
        let Some(tls) = self.handshake(tcp).await else {
            return;
        };
        let certificates = tls.get_ref().1.peer_certificates();
        let certificates = certificates
            .unwrap_or_default()
            .iter()
            .map(|c| c.clone().into_owned())
            .collect();
        let peer = Peer {
            address,
            certificates,
        };
        if let Err(error) = self.requests(tls, peer).await {
            tracing::debug!(error, "the connection broke");
        }
    }

    async fn handshake(&self, tcp: TcpStream) -> Option<TlsStream<TcpStream>> {
        prepare(&tcp);
        match tokio::time::timeout(limits::HANDSHAKE, self.acceptor.accept(tcp)).await {
            Ok(Ok(tls)) => Some(tls),
            Ok(Err(error)) => {
                tracing::debug!(%error, "TLS handshake failed");
                None
            }
            Err(_) => {
                tracing::debug!("no TLS handshake within {:?}", limits::HANDSHAKE);
                None
            }
        }
    }

    async fn requests(&self, tls: TlsStream<TcpStream>, peer: Peer) -> Result<(), String> {
        let service = service_fn(|request: Request<Incoming>| {
            let (handler, peer) = (self.handler.clone(), peer.clone());
            async move { Ok::<_, std::convert::Infallible>(answer(&*handler, request, &peer).await) }
        });
        let builder = builder();
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(tls), service);
        let mut connection = pin!(connection);
        let mut certificate = self.certificate.clone();
        certificate.mark_unchanged();
        let end = async {
            // Without a sender no further certificate comes, and only shutdown ends connections.
            let renewed = async {
                if certificate.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                () = self.closing.cancelled() => {}
                () = renewed => tracing::debug!("closing once idle: the certificate was renewed"),
            }
        };
        tokio::select! {
            result = connection.as_mut() => return result.map_err(|e| e.to_string()),
            () = end => connection.as_mut().graceful_shutdown(),
        }
        connection.await.map_err(|e| e.to_string())
    }
}

/// Small writes go out at once, and a hop that died without a word is noticed: HTTP/1.1 watches and
/// streams have nothing else that would.
fn prepare(tcp: &TcpStream) {
    let socket = SockRef::from(tcp);
    let unacknowledged = Some(limits::UNACKNOWLEDGED);
    let set = tcp
        .set_nodelay(true)
        .and_then(|()| socket.set_tcp_user_timeout(unacknowledged));
    if let Err(error) = set {
        tracing::debug!(%error, "cannot set options of a connection");
    }
}

async fn answer(handler: &dyn Handler, request: Request<Incoming>, peer: &Peer) -> Response<Body> {
    if let Err(error) = limits::check_headers(request.headers()) {
        return error.to_response();
    }
    let request = request.map(|body| body.map_err(Into::into).boxed_unsync());
    contain(handler.answer(request, peer)).await
}

fn builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits::REQUEST_HEAD)
        .max_headers(limits::PARSER_HEADERS)
        .max_buf_size(limits::PARSER_HEADER_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits::MAX_STREAMS)
        .max_header_list_size(limits::PARSER_HEADER_BYTES as u32)
        .initial_stream_window_size(256 << 10)
        .initial_connection_window_size(4 << 20)
        .keep_alive_interval(limits::PING_EVERY)
        .keep_alive_timeout(limits::PING_ANSWER);
    builder
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_dead_hop_is_noticed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (client, server) = tokio::join!(client, listener.accept());
        let (_client, (server, _)) = (client.unwrap(), server.unwrap());
        prepare(&server);
        let timeout = SockRef::from(&server).tcp_user_timeout().unwrap();
        assert_eq!(timeout, Some(limits::UNACKNOWLEDGED));
        assert!(server.nodelay().unwrap());
    }
}
