//! The pod network: plain TCP, the addresses tried as RFC 8305 has it.

use std::{fmt, io, net::SocketAddr, time::Duration};

use async_trait::async_trait;
use futures::future::select_ok;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use crate::streams::relay::Connection;

/// Between the beginnings of two attempts (RFC 8305 §5).
const STAGGER: Duration = Duration::from_millis(250);
/// How long a hop may leave data unacknowledged before it is dead.
const UNACKNOWLEDGED: Duration = Duration::from_secs(45);
/// How often a silent connection is probed; three probes without an answer end it.
const PROBE: Duration = Duration::from_secs(15);

/// Whose fault it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Somebody is there and said no.
    Refused,
    /// Nobody answered.
    Unreachable,
}

/// Why there is no connection.
#[derive(Debug)]
pub struct DialError {
    /// The address that failed last.
    pub address: SocketAddr,
    /// Whose fault it is.
    pub failure: Failure,
    words: String,
}

impl fmt::Display for DialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.address, self.words)
    }
}

impl DialError {
    /// An attempt that failed.
    pub fn new(address: SocketAddr, error: &io::Error) -> Self {
        let (failure, words) = match error.kind() {
            io::ErrorKind::ConnectionRefused => (Failure::Refused, "connection refused"),
            io::ErrorKind::ConnectionReset => (Failure::Refused, "connection reset"),
            io::ErrorKind::HostUnreachable => (Failure::Unreachable, "no route to host"),
            io::ErrorKind::NetworkUnreachable => (Failure::Unreachable, "network is unreachable"),
            _ => (Failure::Unreachable, ""),
        };
        let words = match words {
            "" => error.to_string(),
            words => words.to_owned(),
        };
        Self {
            address,
            failure,
            words,
        }
    }

    /// Nobody said anything.
    pub fn silent(address: SocketAddr, limit: Duration) -> Self {
        Self {
            address,
            failure: Failure::Unreachable,
            words: format!("no answer within {} s", limit.as_secs()),
        }
    }
}

/// Something that connects to pods.
#[async_trait]
pub trait Network: Send + Sync + 'static {
    /// Connects to one of the addresses, which are one pod's, in their order of preference.
    ///
    /// # Errors
    /// None answered within `limit`.
    async fn connect(
        &self,
        addresses: &[SocketAddr],
        limit: Duration,
    ) -> Result<Box<dyn Connection>, DialError>;
}

/// The network that this process is on.
#[derive(Clone, Copy, Debug, Default)]
pub struct PodNetwork;

#[async_trait]
impl Network for PodNetwork {
    async fn connect(
        &self,
        addresses: &[SocketAddr],
        limit: Duration,
    ) -> Result<Box<dyn Connection>, DialError> {
        let attempts = addresses.iter().zip(0u32..).map(|(address, turn)| {
            Box::pin(async move {
                tokio::time::sleep(STAGGER * turn).await;
                let connected = TcpStream::connect(*address).await;
                connected.map_err(|error| DialError::new(*address, &error))
            })
        });
        let any = tokio::time::timeout(limit, select_ok(attempts.collect::<Vec<_>>()));
        let (stream, _) = any
            .await
            .unwrap_or_else(|_| Err(DialError::silent(addresses[0], limit)))?;
        prepare(&stream);
        Ok(Box::new(stream))
    }
}

/// Nothing of it is ours: no packet leaves for a pod.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPodNetwork;

#[async_trait]
impl Network for NoPodNetwork {
    async fn connect(
        &self,
        addresses: &[SocketAddr],
        _: Duration,
    ) -> Result<Box<dyn Connection>, DialError> {
        Err(DialError {
            address: addresses[0],
            failure: Failure::Unreachable,
            words: "this server is not on the pod network (--pod-network=false)".to_owned(),
        })
    }
}

/// Small writes go out at once, and a guest that is gone without a word is noticed.
fn prepare(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    let probes = TcpKeepalive::new()
        .with_time(PROBE)
        .with_interval(PROBE)
        .with_retries(3);
    let set = stream
        .set_nodelay(true)
        .and_then(|()| socket.set_tcp_keepalive(&probes))
        .and_then(|()| socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED)));
    if let Err(error) = set {
        tracing::debug!(%error, "cannot set options of a connection to a pod");
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

    #[tokio::test]
    async fn an_address_that_answers_is_found_behind_one_that_does_not() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let dead = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let nobody = dead.local_addr().unwrap();
        drop(dead);
        let addresses = [nobody, listener.local_addr().unwrap()];
        assert!(PodNetwork.connect(&addresses, LIMIT).await.is_ok());
        let error = PodNetwork.connect(&[nobody], LIMIT).await.err().unwrap();
        assert_eq!(error.failure, Failure::Refused);
        assert_eq!(error.to_string(), format!("{nobody}: connection refused"));
    }

    #[tokio::test]
    async fn ipv6_addresses_are_bracketed_in_words() {
        let address: SocketAddr = "[2001:db8::1a:22]:22".parse().unwrap();
        let error = DialError::silent(address, LIMIT);
        assert_eq!(
            error.to_string(),
            "[2001:db8::1a:22]:22: no answer within 5 s"
        );
    }

    #[tokio::test]
    async fn a_dead_guest_is_noticed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await;
        let stream = stream.unwrap();
        prepare(&stream);
        let socket = SockRef::from(&stream);
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(UNACKNOWLEDGED));
        assert!(socket.keepalive().unwrap() && stream.nodelay().unwrap());
    }
}
