//! etcd's command line: one member, on loopback, without TLS: its port is reachable only on this machine's loopback or
//! inside the node's namespaces.

use super::Config;
use super::config::{Durability, url};
use crate::assets::{AssetsError, Binary};
use crate::proc::CommandLine;

/// etcd for `config`.
pub fn etcd(config: &Config) -> Result<CommandLine, AssetsError> {
    let (clients, peers) = (
        config.etcd_url(),
        url(config.private_address, config.ports.etcd_peer),
    );
    let line = config
        .program(Binary::Etcd)?
        .flag("data-dir", &config.etcd_data)
        .flag("listen-client-urls", &clients)
        .flag("advertise-client-urls", &clients)
        .flag("listen-peer-urls", &peers)
        .flag("initial-advertise-peer-urls", &peers)
        .flag("initial-cluster", format!("default={peers}"))
        .flag("log-level", "warn");
    Ok(match config.durability {
        Durability::Synced => line,
        Durability::Volatile => line.arg("--unsafe-no-fsync"),
    })
}

#[cfg(test)]
mod tests {
    use super::super::config::tests::config;
    use super::*;

    #[test]
    fn only_volatile_data_is_not_synced() {
        let temp = tempfile::tempdir().unwrap();
        let mut config = config(temp.path());
        for (durability, want) in [(Durability::Synced, false), (Durability::Volatile, true)] {
            config.durability = durability;
            let words = etcd(&config).unwrap().words();
            assert_eq!(
                words.iter().any(|w| w == "--unsafe-no-fsync"),
                want,
                "{durability:?}"
            );
            assert!(words.contains(&"--listen-client-urls=http://127.0.0.1:2379".to_owned()));
        }
    }
}
