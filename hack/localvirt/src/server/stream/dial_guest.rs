//! The way to a guest's port, as Go's `net.Dial` goes it and says how it failed.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use tokio::{
    io::DuplexStream,
    net::{TcpStream, UdpSocket},
    time::timeout,
};

use crate::{
    dial::connect_text,
    guestless::{Guestless, Script},
    server::route::Port,
};

/// KubeVirt sets no limit of its own; this is just above the kernel's.
const TIMEOUT: Duration = Duration::from_secs(135);

/// A connection to a guest.
pub enum Guest {
    /// A byte stream.
    Tcp(TcpStream),
    /// Datagrams.
    Udp(UdpSocket),
    /// A byte stream to a machine without a guest.
    Inside(DuplexStream),
}

/// Why there is none; each text is Go's.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// Neither TCP nor UDP.
    #[error("dial {0}: unknown network {0}")]
    Network(String),
    /// The port is no number.
    #[error("dial {protocol}: lookup {protocol}/{port}: unknown port")]
    Port {
        /// Of which protocol.
        protocol: String,
        /// What stands for it.
        port: String,
    },
    /// The instance has an interface without an address.
    #[error("dial {protocol}: address {address:?} of the instance is no IP address")]
    Address {
        /// Of which protocol.
        protocol: String,
        /// What stands for it.
        address: String,
    },
    /// A machine without a guest has streams only, and only while it runs.
    #[error("dial {0}: connect: connection refused")]
    Inside(String),
    /// Nobody answers.
    #[error("dial {protocol} {address}: connect: {}", connect_text(.source))]
    Connect {
        /// Of which protocol.
        protocol: String,
        /// Whom.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// Dials.
///
/// # Errors
/// As Go's dialler.
pub async fn dial(address: &str, port: &Port) -> Result<Guest, GuestError> {
    let protocol = port.protocol.clone();
    if !matches!(protocol.as_str(), "tcp" | "udp") {
        return Err(GuestError::Network(protocol));
    }
    let ip: IpAddr = match address.parse() {
        Ok(ip) => ip,
        Err(_) => {
            return Err(GuestError::Address {
                protocol,
                address: address.to_owned(),
            });
        }
    };
    let number = match port.port.parse() {
        Ok(number) => number,
        Err(_) => {
            return Err(GuestError::Port {
                protocol,
                port: port.port.clone(),
            });
        }
    };
    let address = SocketAddr::new(ip, number);
    let connected = timeout(TIMEOUT, connect(&protocol, address)).await;
    let timed_out = || Err(std::io::ErrorKind::TimedOut.into());
    let connected = connected.unwrap_or_else(|_| timed_out());
    connected.map_err(|source| GuestError::Connect {
        protocol,
        address,
        source,
    })
}

/// A port of a machine without a guest: every TCP port of it is open.
///
/// # Errors
/// For other protocols, and when the machine does not run.
pub fn inside(
    machines: &Guestless,
    instance_uid: &str,
    script: Script,
    port: &Port,
) -> Result<Guest, GuestError> {
    let refused = || GuestError::Inside(port.protocol.clone());
    if port.protocol != "tcp" {
        return Err(refused());
    }
    let stream = machines
        .port(instance_uid, script, &port.port)
        .ok_or_else(refused)?;
    Ok(Guest::Inside(stream))
}

async fn connect(protocol: &str, address: SocketAddr) -> std::io::Result<Guest> {
    if protocol == "udp" {
        let any: IpAddr = match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind(SocketAddr::new(any, 0)).await?;
        socket.connect(address).await?;
        return Ok(Guest::Udp(socket));
    }
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(Guest::Tcp(stream))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn failure(address: &str, port: &str, protocol: &str) -> String {
        let port = Port {
            port: port.into(),
            protocol: protocol.into(),
        };
        match dial(address, &port).await {
            Ok(_) => panic!("{address} was reached"),
            Err(error) => error.to_string(),
        }
    }

    #[tokio::test]
    async fn failures_read_as_gos() {
        assert_eq!(
            failure("127.0.0.1", "22", "sctp").await,
            "dial sctp: unknown network sctp"
        );
        assert_eq!(
            failure("127.0.0.1", "x", "tcp").await,
            "dial tcp: lookup tcp/x: unknown port"
        );
        // Bound and dropped: nobody listens there now.
        let free = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let text = failure("127.0.0.1", &free.to_string(), "tcp").await;
        assert_eq!(
            text,
            format!("dial tcp 127.0.0.1:{free}: connect: connection refused")
        );
    }

    #[tokio::test]
    async fn an_instance_without_an_address_is_not_ourselves() {
        assert!(failure("", "22", "tcp").await.contains("is no IP address"));
    }
}
