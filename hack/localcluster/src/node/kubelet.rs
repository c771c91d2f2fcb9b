//! The kubelet: its configuration and command line. Source: `k8s.io/kubelet/config/v1beta1`.

use std::path::Path;

use serde_json::json;

use super::containerd::SOCKET;
use super::network::Link;
use crate::proc::CommandLine;

/// Where it keeps pods, inside the node. Short: sockets in volumes of pods live below it, and have 107 bytes.
pub const ROOT: &str = "/var/lib/kubelet";
/// Where containers' logs are, inside the node.
pub const POD_LOGS: &str = "/var/log/pods";
/// Open files that are not more than any limit a machine has.
const OPEN_FILES: u32 = 20_000;

/// What the kubelet is told beside constants.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    /// The authority for clients.
    pub client_ca: &'a Path,
    /// Its serving certificate.
    pub cert: &'a Path,
    /// The key of that.
    pub key: &'a Path,
    /// The file that pods' `/etc/resolv.conf` starts from.
    pub resolv_conf: &'a Path,
    /// Its cgroup in every hierarchy.
    pub cgroup: &'a str,
    /// The link, for its address.
    pub link: &'a Link,
}

/// The configuration, as JSON. It works under cgroup v1 and with swap, never evicts pods for the machine's sake (a
/// developer's disk is often full) and leaves the machine's OOM scores alone.
pub fn config(settings: Settings<'_>) -> String {
    let Settings {
        client_ca,
        cert,
        key,
        resolv_conf,
        cgroup,
        link,
    } = settings;
    let config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": link.node,
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true },
            "x509": { "clientCAFile": client_ca },
        },
        "authorization": { "mode": "Webhook" },
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{cgroup}"),
        "containerRuntimeEndpoint": format!("unix://{SOCKET}"),
        "evictionHard": {
            "imagefs.available": "0%",
            "imagefs.inodesFree": "0%",
            "memory.available": "0%",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
        },
        "failCgroupV1": false,
        "failSwapOn": false,
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "maxOpenFiles": OPEN_FILES,
        "nodeStatusUpdateFrequency": "2s",
        "oomScoreAdj": 0,
        "podLogsDir": POD_LOGS,
        "resolvConf": resolv_conf,
        "syncFrequency": "10s",
        "tlsCertFile": cert,
        "tlsPrivateKeyFile": key,
        "volumePluginDir": format!("{ROOT}/volumeplugins"),
    });
    format!("{config:#}\n")
}

/// The kubelet itself.
pub fn daemon(
    program: &Path,
    config: &Path,
    kubeconfig: &Path,
    name: &str,
    link: &Link,
) -> CommandLine {
    CommandLine::new("kubelet", program)
        .flag("config", config)
        .flag("kubeconfig", kubeconfig)
        .flag("root-dir", ROOT)
        .flag("hostname-override", name)
        .flag("node-ip", format!("{},{}", link.node, link.node6))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link() -> Link {
        Link {
            name: "l".into(),
            host: [172, 30, 99, 1].into(),
            node: [172, 30, 99, 2].into(),
            host6: "fd00::1".parse().unwrap(),
            node6: "fd00::2".parse().unwrap(),
        }
    }

    #[test]
    fn only_authenticated_and_authorized_callers_get_in_and_only_by_the_link() {
        let path = Path::new;
        let text = config(Settings {
            client_ca: path("/p/ca.crt"),
            cert: path("/p/k.crt"),
            key: path("/p/k.key"),
            resolv_conf: path("/c/resolv.conf"),
            cgroup: "kw-1",
            link: &link(),
        });
        let config: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(config["address"], "172.30.99.2");
        assert_eq!(config["authentication"]["anonymous"]["enabled"], false);
        assert_eq!(
            config["authentication"]["x509"]["clientCAFile"],
            "/p/ca.crt"
        );
        assert_eq!(config["authorization"]["mode"], "Webhook");
        assert_eq!(config["cgroupRoot"], "/kw-1");
        assert_eq!(config["failCgroupV1"], false);
    }

    #[test]
    fn the_node_has_an_address_of_each_family() {
        let daemon = daemon(
            Path::new("/b/kubelet"),
            Path::new("/c"),
            Path::new("/k"),
            "node",
            &link(),
        );
        assert!(
            daemon
                .words()
                .contains(&"--node-ip=172.30.99.2,fd00::2".to_owned()),
            "{:?}",
            daemon.words()
        );
    }
}
