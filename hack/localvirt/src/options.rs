//! The flags of the binary `localvirt`.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use clap::Parser;

use crate::{guestless::Policy, launcher::spec::CONTROL_PORT};

/// A stand-in for KubeVirt, for development and tests. It is not KubeVirt.
///
/// It runs VirtualMachines as QEMU in Pods and serves subresources.kubevirt.io/v1 (console, vnc, portforward, start,
/// stop, restart, migrate, pause, unpause, reset, softreboot) with KubeVirt's behaviour on the wire. Install
/// hack/localvirt/crds and hack/localvirt/deploy first, with `kubectl apply --server-side`; run one replica.
#[derive(Clone, Debug, Parser)]
#[command(name = "localvirt", version)]
pub struct Options {
    /// Namespace that localvirt runs in; its CA is kept there.
    #[arg(long, env = "POD_NAMESPACE", default_value = "localvirt")]
    pub namespace: String,

    /// Service that the APIService names; the serving certificate is for SERVICE.NAMESPACE.svc.
    #[arg(long, default_value = "localvirt")]
    pub service: String,

    /// Address to serve on.
    #[arg(long, default_value = "0.0.0.0:8443", value_name = "ADDRESS")]
    pub listen: SocketAddr,

    /// Image of launcher Pods.
    #[arg(
        long,
        value_name = "IMAGE",
        default_value = "kubeworkspaces.io/localvirt-launcher:dev"
    )]
    pub launcher_image: String,

    /// Port on which launchers are asked.
    #[arg(long, default_value_t = CONTROL_PORT, value_name = "PORT")]
    pub control_port: u16,

    /// Run no guests at all: every machine is guestless, and localvirt writes the status of its Pod. For a control plane
    /// that has no node.
    #[arg(long)]
    pub without_kubelet: bool,

    /// Addresses in the status of guestless machines' Pods: one, or one of each family. Nobody has to answer there.
    #[arg(
        long,
        value_name = "IP",
        value_delimiter = ',',
        default_values_t = [crate::guestless::ADDRESS]
    )]
    pub guestless_address: Vec<IpAddr>,

    /// Kubeconfig to use instead of the Pod's service account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}

impl Options {
    /// Which machines have no guest.
    pub fn policy(&self) -> Policy {
        if self.without_kubelet {
            Policy::All
        } else {
            Policy::Asked
        }
    }

    /// The DNS name of the server.
    pub fn server_name(&self) -> String {
        format!("{}.{}.svc", self.service, self.namespace)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_flags_are_consistent() {
        Options::command().debug_assert();
        let options =
            Options::try_parse_from(["localvirt", "--launcher-image", "i", "--namespace", "n"])
                .unwrap();
        assert_eq!(options.server_name(), "localvirt.n.svc");
        assert_eq!(options.guestless_address, [crate::guestless::ADDRESS]);
        assert!(!options.without_kubelet);
    }
}
