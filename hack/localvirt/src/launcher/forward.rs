//! The guest's TCP ports on the pod's IPv6 addresses.
//!
//! QEMU's user network forwards from IPv4 only, so each port also gets a listener here, whose connections go on to
//! QEMU's. UDP is IPv4 only. Entry point: [`start`].

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::Arc;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::qemu::forward_address;
use super::spec::{Interface, Protocol};

/// Connections through one port at a time.
const CONNECTIONS: usize = 256;
const BACKLOG: i32 = 128;

/// Listens on every IPv6 address of `interface`. A machine without IPv6 is served on IPv4 alone.
pub fn start(interface: &Interface) {
    let target = reachable(forward_address(&interface.listen));
    let tcp = interface
        .forwarded()
        .into_iter()
        .filter(|p| p.protocol == Protocol::Tcp);
    for (address, port) in tcp.flat_map(|p| v6(&interface.listen).map(move |a| (a, p.port))) {
        match listen(SocketAddrV6::new(address, port, 0, 0)) {
            Ok(listener) => drop(tokio::spawn(serve(listener, SocketAddr::new(target, port)))),
            Err(e) => {
                tracing::warn!(%address, port, error = %e, "the port does not answer on IPv6")
            }
        }
    }
}

fn v6(listen: &[IpAddr]) -> impl Iterator<Item = Ipv6Addr> {
    listen.iter().filter_map(|address| match address {
        IpAddr::V6(v6) => Some(*v6),
        IpAddr::V4(_) => None,
    })
}

/// Where a listener on `address` is reached from the pod itself.
fn reachable(address: Ipv4Addr) -> IpAddr {
    if address.is_unspecified() {
        Ipv4Addr::LOCALHOST.into()
    } else {
        address.into()
    }
}

/// A listener that leaves the IPv4 side of the port to QEMU.
fn listen(address: SocketAddrV6) -> io::Result<TcpListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::INET6, SocketType::STREAM, flags, None)?;
    sockopt::set_ipv6_v6only(&socket, true)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    TcpListener::from_std(socket.into())
}

async fn serve(listener: TcpListener, target: SocketAddr) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        // closed never: the semaphore lives as long as this loop
        let Ok(place) = room.clone().acquire_owned().await else {
            return;
        };
        let Ok((mut client, _)) = listener.accept().await else {
            // out of files: let some connections end first
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            continue;
        };
        tokio::spawn(async move {
            if let Ok(mut guest) = TcpStream::connect(target).await {
                // either side's failure is the other's end
                let _ = tokio::io::copy_bidirectional(&mut client, &mut guest).await;
            }
            drop(place);
        });
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn the_same_port_answers_on_both_families() {
        let v4 = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = v4.local_addr().unwrap().port();
        let v6 = match listen(SocketAddrV6::new(Ipv6Addr::LOCALHOST, port, 0, 0)) {
            Ok(v6) => v6,
            Err(e) if e.kind() == io::ErrorKind::AddrNotAvailable => return, // a machine without IPv6
            Err(e) => panic!("{e}"),
        };
        tokio::spawn(serve(v6, (Ipv4Addr::LOCALHOST, port).into()));
        let mut client = TcpStream::connect((Ipv6Addr::LOCALHOST, port))
            .await
            .unwrap();
        let (mut guest, _) = v4.accept().await.unwrap();
        guest.write_all(b"SSH-2.0").await.unwrap();
        let mut banner = [0; 7];
        client.read_exact(&mut banner).await.unwrap();
        assert_eq!(&banner, b"SSH-2.0");
    }

    #[test]
    fn the_guest_is_reached_where_qemu_listens() {
        assert_eq!(
            reachable(Ipv4Addr::UNSPECIFIED),
            IpAddr::from([127, 0, 0, 1])
        );
        assert_eq!(
            reachable(Ipv4Addr::new(10, 0, 0, 7)),
            IpAddr::from([10, 0, 0, 7])
        );
    }
}
