//! A port of a pod, over `pods/portforward`.
//!
//! Of the protocols there, `v4.channel.k8s.io` is the one that kubelets speak themselves; the newer
//! one tunnels SPDY.

use super::Address;

pub(super) fn port(namespace: &str, pod: &str, port: u16) -> Address {
    Address {
        uri: format!("/api/v1/namespaces/{namespace}/pods/{pod}/portforward?ports={port}"),
        subprotocols: "v4.channel.k8s.io",
        what: "port of the container",
    }
}
