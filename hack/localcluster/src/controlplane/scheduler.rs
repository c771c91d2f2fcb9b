//! kube-scheduler's command line.

use super::Config;
use crate::assets::{AssetsError, Binary};
use crate::pki::Component;
use crate::proc::CommandLine;

/// kube-scheduler for `config`.
pub fn scheduler(config: &Config) -> Result<CommandLine, AssetsError> {
    let kubeconfig = config.pki.kubeconfig(Component::Scheduler);
    Ok(config
        .program(Binary::KubeScheduler)?
        .flag("kubeconfig", &kubeconfig)
        .flag("authentication-kubeconfig", &kubeconfig)
        .flag("authorization-kubeconfig", &kubeconfig)
        .flag("bind-address", config.private_address.to_string())
        .flag("leader-elect", "false"))
}

#[cfg(test)]
mod tests {
    use super::super::config::tests::config;
    use super::*;

    #[test]
    fn it_answers_only_on_the_private_address() {
        let temp = tempfile::tempdir().unwrap();
        let words = scheduler(&config(temp.path())).unwrap().words();
        assert!(words.contains(&"--bind-address=127.0.0.1".to_owned()));
    }
}
