//! kube-controller-manager's command line.

use super::Config;
use super::config::Controllers;
use crate::assets::{AssetsError, Binary};
use crate::pki::Component;
use crate::proc::CommandLine;

/// The controllers that a control plane without nodes runs: those whose work shows in API objects, and that our server
/// and its tests rely on.
const OBJECTS_ONLY: &str = "garbage-collector-controller,namespace-controller,serviceaccount-controller,\
    root-ca-certificate-publisher-controller,clusterrole-aggregation-controller,resourcequota-controller,\
    validatingadmissionpolicy-status-controller";

/// kube-controller-manager for `config`. Its rate limit towards kube-apiserver is raised: with the default the first
/// ServiceAccount of a namespace comes seconds late.
pub fn controller_manager(config: &Config) -> Result<CommandLine, AssetsError> {
    let pki = &config.pki;
    let kubeconfig = pki.kubeconfig(Component::ControllerManager);
    let line = config
        .program(Binary::KubeControllerManager)?
        .flag("kubeconfig", &kubeconfig)
        .flag(
            "service-account-private-key-file",
            pki.service_account_key(),
        )
        .flag("root-ca-file", pki.cert("ca"))
        .flag("cluster-signing-cert-file", pki.cert("ca"))
        .flag("cluster-signing-key-file", pki.key("ca"))
        .flag("use-service-account-credentials", "true")
        .flag("leader-elect", "false")
        .flag("kube-api-qps", "300")
        .flag("kube-api-burst", "600");
    Ok(match config.controllers {
        Controllers::All => line
            .flag("controllers", "*")
            .flag("bind-address", config.private_address.to_string())
            .flag("authentication-kubeconfig", &kubeconfig)
            .flag("authorization-kubeconfig", &kubeconfig)
            .flag("service-cluster-ip-range", config.services.flag()),
        // Port 0: nobody asks it anything, and parallel runs do not collide.
        Controllers::ObjectsOnly => line
            .flag("controllers", OBJECTS_ONLY)
            .flag("secure-port", "0"),
    })
}

#[cfg(test)]
mod tests {
    use super::super::config::tests::config;
    use super::*;

    #[test]
    fn without_a_node_nothing_listens_and_objects_are_still_collected() {
        let temp = tempfile::tempdir().unwrap();
        let mut config = config(temp.path());
        config.controllers = Controllers::ObjectsOnly;
        let words = controller_manager(&config).unwrap().words();
        assert!(words.contains(&"--secure-port=0".to_owned()));
        let controllers = words
            .iter()
            .find_map(|w| w.strip_prefix("--controllers="))
            .unwrap();
        assert!(
            controllers
                .split(',')
                .all(|c| c.ends_with("-controller") && !c.contains(' ')),
            "{controllers}"
        );
        assert!(controllers.contains("garbage-collector-controller,namespace-controller"));
    }

    #[test]
    fn with_a_node_all_controllers_run() {
        let temp = tempfile::tempdir().unwrap();
        let words = controller_manager(&config(temp.path())).unwrap().words();
        assert!(words.contains(&"--controllers=*".to_owned()));
        assert!(!words.iter().any(|w| w.starts_with("--secure-port")));
    }
}
