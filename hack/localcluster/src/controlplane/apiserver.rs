//! kube-apiserver's command line.
//!
//! `--enable-aggregator-routing` is left off, as kubeadm leaves it. With a node, kube-apiserver runs beside kube-proxy,
//! so that the ClusterIP of an aggregated server's Service works and what is tested is what most clusters have. Without
//! a node, a Service of type ExternalName leads to a server on this machine, and that works only without the flag
//! (`k8s.io/kube-aggregator/pkg/apiserver/resolvers.go`: routing resolves endpoints, of which ExternalName has none).

use super::Config;
use super::config::Controllers;
use crate::assets::{AssetsError, Binary};
use crate::pki::FRONT_PROXY_NAME;
use crate::proc::CommandLine;

/// kube-apiserver for `config`.
pub fn apiserver(config: &Config) -> Result<CommandLine, AssetsError> {
    let line = config
        .program(Binary::KubeApiserver)?
        .flag("etcd-servers", config.etcd_url())
        .flag("bind-address", config.address.to_string())
        .flag("advertise-address", config.address.to_string())
        .flag("secure-port", config.ports.apiserver.to_string())
        .flag("service-cluster-ip-range", config.services.flag())
        .flag("authorization-mode", "Node,RBAC")
        .flag("allow-privileged", "true");
    Ok(node(audit(identity(line, config), config), config))
}

/// Who it is, whom it believes, and with what it signs.
fn identity(line: CommandLine, config: &Config) -> CommandLine {
    let pki = &config.pki;
    line.flag("tls-cert-file", pki.cert("apiserver"))
        .flag("tls-private-key-file", pki.key("apiserver"))
        .flag("client-ca-file", pki.cert("ca"))
        .flag("service-account-issuer", "https://kubernetes.default.svc")
        .flag("service-account-key-file", pki.service_account_public_key())
        .flag(
            "service-account-signing-key-file",
            pki.service_account_key(),
        )
        .flag("requestheader-client-ca-file", pki.cert("front-proxy-ca"))
        .flag("requestheader-allowed-names", FRONT_PROXY_NAME)
        .flag("requestheader-username-headers", "X-Remote-User")
        .flag("requestheader-group-headers", "X-Remote-Group")
        .flag("requestheader-extra-headers-prefix", "X-Remote-Extra-")
        .flag("proxy-client-cert-file", pki.cert(FRONT_PROXY_NAME))
        .flag("proxy-client-key-file", pki.key(FRONT_PROXY_NAME))
}

/// The audit log, bounded to three files of 100 MB.
fn audit(line: CommandLine, config: &Config) -> CommandLine {
    line.flag("audit-policy-file", &config.audit_policy)
        .flag("audit-log-path", &config.audit_log)
        .flag("audit-log-maxsize", "100")
        .flag("audit-log-maxbackup", "2")
}

/// With a node: how it is reached, and that it may not speak for others. Without: the Service `kubernetes` gets no
/// endpoint, for an address on loopback cannot be one.
fn node(line: CommandLine, config: &Config) -> CommandLine {
    match config.controllers {
        Controllers::ObjectsOnly => line.flag("endpoint-reconciler-type", "none"),
        Controllers::All => line
            .flag("enable-admission-plugins", "NodeRestriction")
            .flag(
                "kubelet-client-certificate",
                config.pki.cert("apiserver-kubelet-client"),
            )
            .flag(
                "kubelet-client-key",
                config.pki.key("apiserver-kubelet-client"),
            )
            .flag("kubelet-certificate-authority", config.pki.cert("ca"))
            .flag("kubelet-preferred-address-types", "InternalIP"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::tests::config;
    use super::*;

    #[test]
    fn services_have_both_families_and_requests_are_audited() {
        let temp = tempfile::tempdir().unwrap();
        let words = apiserver(&config(temp.path())).unwrap().words();
        for want in [
            "--service-cluster-ip-range=10.43.0.0/16,fd43::/112",
            "--bind-address=172.30.99.2",
            "--secure-port=6443",
        ] {
            assert!(words.iter().any(|w| w == want), "{want}");
        }
        assert!(words.iter().any(|w| w.starts_with("--audit-log-path=")));
        assert!(!words.iter().any(|w| w.contains("aggregator-routing")));
    }

    #[test]
    fn a_node_is_restricted_and_without_one_there_is_no_endpoint() {
        let temp = tempfile::tempdir().unwrap();
        let mut config = config(temp.path());
        for (controllers, want, not) in [
            (
                Controllers::All,
                "--enable-admission-plugins=NodeRestriction",
                "--endpoint-reconciler-type=none",
            ),
            (
                Controllers::ObjectsOnly,
                "--endpoint-reconciler-type=none",
                "--enable-admission-plugins=NodeRestriction",
            ),
        ] {
            config.controllers = controllers;
            let words = apiserver(&config).unwrap().words();
            assert!(words.iter().any(|w| w == want), "{controllers:?}");
            assert!(!words.iter().any(|w| w == not), "{controllers:?}");
        }
    }

    #[test]
    fn no_flag_is_given_twice() {
        let temp = tempfile::tempdir().unwrap();
        let words = apiserver(&config(temp.path())).unwrap().words();
        let mut names: Vec<&str> = words.iter().map(|w| w.split_once('=').unwrap().0).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
