//! kube-proxy: Services by nftables, inside the node's network namespace. Source: `k8s.io/kube-proxy/config/v1alpha1`.

use std::path::Path;

use serde_json::json;

use super::network::{Link, POD_RANGES};
use crate::proc::CommandLine;

/// The configuration, as JSON. Settings of connection tracking are the machine's, so none is changed.
pub fn config(kubeconfig: &Path, name: &str, link: &Link) -> String {
    let config = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "bindAddress": link.node,
        "clientConnection": { "kubeconfig": kubeconfig },
        "clusterCIDR": POD_RANGES.join(","),
        "conntrack": { "maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s" },
        "healthzBindAddress": "127.0.0.1:10256",
        "hostnameOverride": name,
        "metricsBindAddress": "127.0.0.1:10249",
    });
    format!("{config:#}\n")
}

/// kube-proxy itself.
pub fn daemon(program: &Path, config: &Path) -> CommandLine {
    CommandLine::new("kube-proxy", program).flag("config", config)
}
