//! An address on loopback that nobody else uses, with free ports on it.
//!
//! A port that was probed free on 127.0.0.1 may be somebody else's a moment later. All of 127.0.0.0/8 is loopback on
//! Linux, so each run takes a random address of it: ports that are free there stay free.

use std::io;
use std::net::{IpAddr, Ipv4Addr, TcpListener};

use ring::rand::{SecureRandom as _, SystemRandom};

use crate::controlplane::Ports;

/// A random address of 127.0.0.0/8 outside of 127.0.0.0/16, where people put things by hand.
pub(super) fn address() -> io::Result<IpAddr> {
    let mut bytes = [0; 3];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| io::Error::other("the kernel gives no random numbers"))?;
    Ok(from_random(bytes).into())
}

fn from_random([a, b, c]: [u8; 3]) -> Ipv4Addr {
    // No part is 0 or 255, so that nothing takes it for a network or a broadcast address.
    let part = |byte: u8| 1 + byte % 254;
    Ipv4Addr::new(127, part(a), part(b), part(c))
}

/// Ports that are free on `address`, all different.
pub(super) fn ports(address: IpAddr) -> io::Result<Ports> {
    let held: Vec<TcpListener> = (0..3)
        .map(|_| TcpListener::bind((address, 0)))
        .collect::<Result<_, _>>()?;
    let port = |n: usize| held[n].local_addr().map(|a| a.port());
    Ok(Ports {
        etcd: port(0)?,
        etcd_peer: port(1)?,
        apiserver: port(2)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_unicast_loopback() {
        for bytes in [[0; 3], [253; 3], [254; 3], [255; 3], [1, 2, 3]] {
            let address = from_random(bytes);
            assert!(address.is_loopback());
            assert!(
                address.octets()[1..].iter().all(|o| (1..=254).contains(o)),
                "{address}"
            );
        }
    }

    #[test]
    fn ports_can_be_bound_and_differ() {
        let address = address().unwrap();
        let Ports {
            etcd,
            etcd_peer,
            apiserver,
        } = ports(address).unwrap();
        let all = [etcd, etcd_peer, apiserver];
        let bound: Vec<_> = all
            .iter()
            .map(|port| TcpListener::bind((address, *port)).unwrap())
            .collect();
        assert_eq!(bound.len(), 3, "{all:?}");
    }
}
