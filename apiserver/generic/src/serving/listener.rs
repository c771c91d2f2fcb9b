//! Accepts connections until it is told to stop, then ends them in order.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Instrument as _;

use super::{CertificateSource, Handler, TlsError, connection::Shared, limits, server_config};

/// A pause after `accept` failed (no file descriptors left), so that it does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How serving ends.
#[derive(Clone, Debug)]
pub struct Shutdown {
    /// Cancelled: no new connection is accepted, and those that exist end once they are idle.
    pub stop: CancellationToken,
    /// Then this long at most is waited for requests and streams; what is left is cut.
    pub grace: Duration,
    /// Streams that outlive their requests.
    pub streams: TaskTracker,
}

/// Binds to an address. The unspecified address means all addresses of both families, as it does
/// in Go, where there is IPv6; else those of IPv4.
///
/// # Errors
/// When the address cannot be bound.
pub async fn bind(address: IpAddr, port: u16) -> io::Result<TcpListener> {
    if !address.is_unspecified() {
        return TcpListener::bind((address, port)).await;
    }
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
        Err(error) if error.kind() != io::ErrorKind::AddrInUse && address.is_ipv4() => {
            tracing::info!(%error, "no IPv6 here; listening on IPv4 only");
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await
        }
        bound => bound,
    }
}

/// A bound socket and what answers on it.
pub struct Listener {
    tcp: TcpListener,
    shared: Arc<Shared>,
}

impl Listener {
    /// Serves `handler` on `tcp` with the certificates of `source`.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub fn new(
        tcp: TcpListener,
        source: &dyn CertificateSource,
        handler: Arc<dyn Handler>,
    ) -> Result<Self, TlsError> {
        let certificate = source.subscribe();
        let config = server_config(certificate.clone())?;
        let shared = Shared {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            certificate,
            handler,
            closing: CancellationToken::new(),
        };
        Ok(Self {
            tcp,
            shared: Arc::new(shared),
        })
    }

    /// Serves until `shutdown.stop`, and returns when everything has ended or was cut.
    pub async fn run(self, shutdown: Shutdown) {
        let connections = TaskTracker::new();
        let cut = CancellationToken::new();
        self.accept_until(&shutdown.stop, &connections, &cut).await;
        let shared = self.shared.clone();
        drop(self);
        shared.closing.cancel();
        connections.close();
        shutdown.streams.close();
        let all = async {
            connections.wait().await;
            shutdown.streams.wait().await;
        };
        if tokio::time::timeout(shutdown.grace, all).await.is_err() {
            let left = connections.len() + shutdown.streams.len();
            tracing::warn!(left, "cutting what did not end within {:?}", shutdown.grace);
        }
        cut.cancel();
        connections.wait().await;
    }

    async fn accept_until(
        &self,
        stop: &CancellationToken,
        connections: &TaskTracker,
        cut: &CancellationToken,
    ) {
        let room = Arc::new(Semaphore::new(limits::MAX_CONNECTIONS));
        let next = || async {
            let permit = room.clone().acquire_owned().await.ok()?;
            Some((permit, self.accept().await))
        };
        while let Some(Some((permit, (tcp, address)))) = stop.run_until_cancelled(next()).await {
            let (shared, cut) = (self.shared.clone(), cut.clone());
            let span = tracing::debug_span!("connection", peer = %address);
            let serve = async move {
                let _permit = permit;
                cut.run_until_cancelled(shared.serve(tcp, address)).await;
            };
            connections.spawn(serve.instrument(span));
        }
    }

    async fn accept(&self) -> (TcpStream, SocketAddr) {
        loop {
            match self.tcp.accept().await {
                Ok((tcp, address)) => {
                    let ip = address.ip().to_canonical();
                    return (tcp, SocketAddr::new(ip, address.port()));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}
