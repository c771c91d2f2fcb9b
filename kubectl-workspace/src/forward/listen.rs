//! Local sockets, on the addresses that kubectl would take. Entry point: [`listen`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::TcpListener;

/// Why there is nothing to listen on.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Neither an IP nor localhost.
    #[error("{0:?} is no address to listen on: give an IP, or localhost for 127.0.0.1 and ::1")]
    Address(String),
    /// The system refuses.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
}

/// An address, and whether the forward can do without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    ip: IpAddr,
    /// Of localhost's two addresses one is enough: many machines have no IPv6.
    optional: bool,
}

/// What `--address` names, each once.
pub fn addresses(typed: &[String]) -> Result<Vec<Address>, ListenError> {
    let mut addresses: Vec<Address> = Vec::new();
    for text in typed {
        let text = text.trim();
        let both = [IpAddr::V4(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()];
        let (ips, optional) = match text.trim_matches(['[', ']']).parse() {
            Ok(ip) => (vec![ip], false),
            Err(_) if text == "localhost" => (both.to_vec(), true),
            Err(_) => return Err(ListenError::Address(text.to_owned())),
        };
        for ip in ips {
            match addresses.iter_mut().find(|known| known.ip == ip) {
                Some(known) => known.optional &= optional,
                None => addresses.push(Address { ip, optional }),
            }
        }
    }
    Ok(addresses)
}

/// Listens on `port` of all addresses; port 0 is the same free port on all.
pub async fn listen(addresses: &[Address], port: u16) -> Result<Vec<TcpListener>, ListenError> {
    let (mut listeners, mut port) = (Vec::new(), port);
    let mut failure = None;
    for Address { ip, optional } in addresses {
        let address = SocketAddr::new(*ip, port);
        match TcpListener::bind(address).await {
            Ok(listener) => {
                port = listener.local_addr().map_or(port, |bound| bound.port());
                listeners.push(listener);
            }
            Err(source) => {
                let error = ListenError::Bind { address, source };
                if !optional {
                    return Err(error);
                }
                failure.get_or_insert(error);
            }
        }
    }
    match failure {
        Some(error) if listeners.is_empty() => Err(error),
        _ => Ok(listeners),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ips(typed: &[&str]) -> Vec<String> {
        let typed: Vec<_> = typed.iter().map(|t| (*t).to_owned()).collect();
        let found = addresses(&typed).unwrap();
        found.iter().map(|a| a.ip.to_string()).collect()
    }

    #[test]
    fn localhost_is_both_loopbacks_and_each_address_counts_once() {
        assert_eq!(ips(&["localhost"]), ["127.0.0.1", "::1"]);
        assert_eq!(ips(&["::1", "localhost"]), ["::1", "127.0.0.1"]);
        assert_eq!(ips(&["[::1]", "10.0.0.1"]), ["::1", "10.0.0.1"]);
        assert!(addresses(&["example.org".into()]).is_err());
    }

    #[tokio::test]
    async fn one_port_on_all_addresses() {
        let both = addresses(&["127.0.0.1".into(), "127.0.0.2".into()]).unwrap();
        let listeners = listen(&both, 0).await.unwrap();
        let ports: Vec<_> = listeners
            .iter()
            .map(|l| l.local_addr().unwrap().port())
            .collect();
        assert_eq!(ports.len(), 2);
        assert_eq!(ports[0], ports[1]);
    }

    #[tokio::test]
    async fn a_port_that_is_taken_is_named() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = taken.local_addr().unwrap();
        let one = addresses(&["127.0.0.1".into()]).unwrap();
        let error = listen(&one, address.port()).await.unwrap_err().to_string();
        assert!(error.contains(&address.to_string()), "{error}");
        // of localhost's two addresses the other one is not taken, if there is one
        let optional = addresses(&["localhost".into()]).unwrap();
        for listener in listen(&optional, address.port())
            .await
            .into_iter()
            .flatten()
        {
            assert!(listener.local_addr().unwrap().is_ipv6());
        }
    }
}
