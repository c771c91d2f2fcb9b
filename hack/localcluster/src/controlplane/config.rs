//! What the control plane is told, as one value.

use std::net::IpAddr;
use std::path::PathBuf;

use crate::assets::{Assets, AssetsError, Binary};
use crate::pki::Pki;
use crate::proc::CommandLine;

/// One control plane.
#[derive(Debug)]
pub struct Config {
    /// Where the programs are.
    pub assets: Assets,
    /// Its certificates.
    pub pki: Pki,
    /// Where kube-apiserver listens and what it tells its clients.
    pub address: IpAddr,
    /// Where everything listens that only kube-apiserver and probes call: a loopback address.
    pub private_address: IpAddr,
    /// The ports.
    pub ports: Ports,
    /// The addresses of Services.
    pub services: ServiceRanges,
    /// etcd's data.
    pub etcd_data: PathBuf,
    /// The file that holds [`super::AUDIT_POLICY`].
    pub audit_policy: PathBuf,
    /// Where kube-apiserver writes its audit log.
    pub audit_log: PathBuf,
    /// Whether etcd waits for the disk.
    pub durability: Durability,
    /// Which controllers run, and whether there are nodes for them.
    pub controllers: Controllers,
}

/// The ports of one control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// etcd's clients.
    pub etcd: u16,
    /// etcd's peers: there are none, but it listens.
    pub etcd_peer: u16,
    /// kube-apiserver.
    pub apiserver: u16,
}

impl Ports {
    /// Those of a cluster that has its network to itself.
    pub const USUAL: Self = Self {
        etcd: 2379,
        etcd_peer: 2380,
        apiserver: 6443,
    };
}

/// The ranges of ClusterIPs, IPv4 first: a Service gets an IPv4 address unless it asks for more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceRanges {
    /// The IPv4 range.
    pub v4: String,
    /// The IPv6 range; at most 20 bits of it can be used.
    pub v6: String,
}

impl Default for ServiceRanges {
    fn default() -> Self {
        Self {
            v4: "10.43.0.0/16".to_owned(),
            v6: "fd43::/112".to_owned(),
        }
    }
}

impl ServiceRanges {
    /// The addresses of the Service `kubernetes`, under which pods reach kube-apiserver.
    pub const KUBERNETES: [&'static str; 2] = ["10.43.0.1", "fd43::1"];

    /// As flags have it.
    pub fn flag(&self) -> String {
        format!("{},{}", self.v4, self.v6)
    }
}

/// Whether etcd waits for the disk before it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// It does: figures taken here mean something.
    Synced,
    /// It does not: the data ends with the test.
    Volatile,
}

/// Which controllers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controllers {
    /// All: there is a node.
    All,
    /// Those that act on API objects alone: there is none.
    ObjectsOnly,
}

impl Config {
    /// Where etcd is for kube-apiserver.
    pub fn etcd_url(&self) -> String {
        url(self.private_address, self.ports.etcd)
    }

    /// A command line for `binary`, called by its file name.
    pub(super) fn program(&self, binary: Binary) -> Result<CommandLine, AssetsError> {
        Ok(CommandLine::new(
            binary.file_name(),
            self.assets.path(binary)?,
        ))
    }
}

/// `http://address:port`, with brackets where the address needs them.
pub(super) fn url(address: IpAddr, port: u16) -> String {
    format!("http://{}", std::net::SocketAddr::new(address, port))
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::Path;

    use super::*;
    use crate::assets::Places;
    use crate::pki::{NodeNames, Plan};

    /// A control plane with a node in `dir`, with empty files for programs.
    pub(in crate::controlplane) fn config(dir: &Path) -> Config {
        use std::os::unix::fs::PermissionsExt;
        let bin = dir.join("bin");
        std::fs::create_dir_all(&bin).unwrap();
        for binary in Binary::CLUSTER {
            let path = bin.join(binary.file_name());
            std::fs::write(&path, "").unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        }
        let places = Places::new(Some(bin.into()), Some(dir.into()), None).unwrap();
        let node = NodeNames {
            name: "node".into(),
            addresses: vec![],
        };
        let plan = Plan {
            server: "172.30.99.2:6443".into(),
            server_names: vec![],
            node: Some(node),
        };
        Config {
            assets: Assets::find(&Binary::CLUSTER, &places).unwrap(),
            pki: Pki::ensure(&dir.join("pki"), &plan).unwrap(),
            address: "172.30.99.2".parse().unwrap(),
            private_address: "127.0.0.1".parse().unwrap(),
            ports: Ports::USUAL,
            services: ServiceRanges::default(),
            etcd_data: dir.join("etcd"),
            audit_policy: dir.join("policy.yaml"),
            audit_log: dir.join("audit.log"),
            durability: Durability::Synced,
            controllers: Controllers::All,
        }
    }

    #[test]
    fn urls_hold_addresses_of_both_families() {
        assert_eq!(url("127.0.0.1".parse().unwrap(), 1), "http://127.0.0.1:1");
        assert_eq!(url("::1".parse().unwrap(), 1), "http://[::1]:1");
    }
}
