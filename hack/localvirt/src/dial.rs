//! The way to a launcher: who dials, and how it fails.
//!
//! [`Launchers`] is the seam at which tests script a launcher and at which faults can be put in.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use crate::{
    guestless::{Guestless, Script},
    launcher::protocol::{self, LineError, Reply, Request},
};

/// How long a launcher may take to be reached and to answer one line.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Which launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// How it is reached.
    pub way: Way,
    /// The UID of its instance, which its certificate must name.
    pub vmi_uid: String,
}

/// How a launcher is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// At its Pod's address.
    Pod(IpAddr),
    /// Inside this process: the machine is guestless.
    Inside(Script),
}

/// Both directions of a stream.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// A launcher's answer, with the connection behind it.
pub struct Answer {
    /// What it said.
    pub reply: Reply,
    /// What follows, if the reply says that something does.
    pub stream: Box<dyn Duplex>,
}

/// Why a launcher gave no answer. The texts are those of Go's dialler, which KubeVirt hands to its callers.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// Nobody listens.
    #[error("dial tcp {address}: connect: {}", connect_text(.source))]
    Connect {
        /// Whom.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// Somebody listens who is not this launcher.
    #[error("dial tcp {address}: tls: {source}")]
    Tls {
        /// Whom.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// It took too long.
    #[error("dial tcp {address}: i/o timeout")]
    Timeout {
        /// Whom.
        address: SocketAddr,
    },
    /// The answer is none.
    #[error(transparent)]
    Line(#[from] LineError),
    /// The UID makes no name for a certificate.
    #[error("{0:?} is no name of a launcher")]
    Name(String),
    /// There is no such machine inside.
    #[error("no guestless machine {0:?} runs here")]
    Guestless(String),
}

/// What Go says for the common failures of `connect`.
pub fn connect_text(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        std::io::ErrorKind::HostUnreachable => "no route to host".to_owned(),
        std::io::ErrorKind::NetworkUnreachable => "network is unreachable".to_owned(),
        std::io::ErrorKind::TimedOut => "connection timed out".to_owned(),
        _ => error.to_string(),
    }
}

/// Asks launchers.
#[async_trait]
pub trait Launchers: Send + Sync + 'static {
    /// Sends one request and reads the reply.
    ///
    /// # Errors
    /// When the launcher cannot be reached, is not the one it should be, or does not answer in time.
    async fn ask(&self, target: &Target, request: &Request) -> Result<Answer, DialError>;
}

/// Dials launcher Pods over mutual TLS, and asks guestless machines.
pub struct AllLaunchers {
    tls: TlsConnector,
    port: u16,
    guestless: Guestless,
}

impl AllLaunchers {
    /// With localvirt's client certificate, the port that launchers listen on, and the machines inside.
    pub fn new(config: Arc<ClientConfig>, port: u16, guestless: Guestless) -> Self {
        Self {
            tls: TlsConnector::from(config),
            port,
            guestless,
        }
    }

    async fn connect(
        &self,
        address: SocketAddr,
        target: &Target,
        request: &Request,
    ) -> Result<Answer, DialError> {
        let name = protocol::server_name(&target.vmi_uid);
        let name = ServerName::try_from(name.clone()).map_err(|_| DialError::Name(name))?;
        let tcp = TcpStream::connect(address)
            .await
            .map_err(|source| DialError::Connect { address, source })?;
        // A keystroke is one small segment; it must not wait for the last one's acknowledgement.
        tcp.set_nodelay(true)
            .map_err(|source| DialError::Connect { address, source })?;
        let mut stream = self
            .tls
            .connect(name, tcp)
            .await
            .map_err(|source| DialError::Tls { address, source })?;
        protocol::write_line(&mut stream, request).await?;
        let reply = protocol::read_line(&mut stream).await?;
        Ok(Answer {
            reply,
            stream: Box::new(stream),
        })
    }
}

#[async_trait]
impl Launchers for AllLaunchers {
    async fn ask(&self, target: &Target, request: &Request) -> Result<Answer, DialError> {
        let address = match target.way {
            Way::Pod(address) => SocketAddr::new(address, self.port),
            Way::Inside(script) => {
                let answer = self.guestless.ask(&target.vmi_uid, script, request).await;
                return answer.ok_or_else(|| DialError::Guestless(target.vmi_uid.clone()));
            }
        };
        timeout(DIAL_TIMEOUT, self.connect(address, target, request))
            .await
            .unwrap_or(Err(DialError::Timeout { address }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_connection_reads_as_gos_dialler_says_it() {
        let error = DialError::Connect {
            address: "10.1.0.9:49186".parse().unwrap(),
            source: std::io::ErrorKind::ConnectionRefused.into(),
        };
        assert_eq!(
            error.to_string(),
            "dial tcp 10.1.0.9:49186: connect: connection refused"
        );
    }
}
