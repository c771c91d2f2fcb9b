//! Clients of one cluster as different people.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

use super::HarnessError;
use crate::pki::{Issued, Pki, Subject};

/// The client settings in the kubeconfig at `path`. Sets the process's TLS provider, unless it has one.
pub(super) async fn load(path: &Path) -> Result<Config, HarnessError> {
    // An error says that there is one already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let fail = |source| HarnessError::Kubeconfig {
        path: path.to_owned(),
        source,
    };
    let kubeconfig = Kubeconfig::read_from(path).map_err(fail)?;
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(fail)
}

/// A client for `config`. Each call makes a new one: a client lives on the runtime that made it, and every test has
/// its own. It asks once: a test is told each answer, where kube would ask again by itself on 429, 503 and 504.
pub(super) fn client(config: &Config) -> Result<Client, HarnessError> {
    let url = config.cluster_url.clone();
    let mut config = config.clone();
    config.default_retry = false;
    Client::try_from(config).map_err(|e| HarnessError::Api {
        doing: format!("making a client for {url}"),
        source: Box::new(e),
    })
}

/// `config` for another user, by a client certificate of the cluster's authority.
pub(super) fn config_as(
    config: &Config,
    pki: &Pki,
    user: &str,
    groups: &[&str],
) -> Result<Config, HarnessError> {
    let subject = groups.iter().fold(Subject::user(user), |subject, group| {
        subject.in_group(*group)
    });
    let mut config = config.clone();
    config.auth_info =
        auth_info(&pki.authority().client(&subject)?).map_err(|e| HarnessError::Kubeconfig {
            path: format!("of {user}").into(),
            source: e,
        })?;
    Ok(config)
}

/// `config` without any credentials.
pub(super) fn config_anonymous(config: &Config) -> Config {
    let mut config = config.clone();
    config.auth_info = AuthInfo::default();
    config
}

fn auth_info(issued: &Issued) -> Result<AuthInfo, KubeconfigError> {
    let fields = serde_json::json!({
        "client-certificate-data": STANDARD.encode(&issued.cert),
        "client-key-data": STANDARD.encode(&issued.key),
    });
    // Through the file's form, because the key's type there is not exported.
    let text = serde_json::json!({ "users": [{ "name": "user", "user": fields }] }).to_string();
    let parsed = Kubeconfig::from_yaml(&text)?;
    Ok(parsed
        .auth_infos
        .into_iter()
        .find_map(|named| named.auth_info)
        .unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::Plan;

    #[test]
    fn another_user_has_a_certificate_and_nobody_has_none() {
        let temp = tempfile::tempdir().unwrap();
        let plan = Plan {
            server: "127.0.0.1:1".into(),
            server_names: vec![],
            node: None,
        };
        let pki = Pki::ensure(temp.path(), &plan).unwrap();
        let admin = Config::new("https://127.0.0.1:1".parse().unwrap());
        let alice = config_as(&admin, &pki, "alice", &["a", "b"]).unwrap();
        assert!(
            alice.auth_info.client_certificate_data.is_some()
                && alice.auth_info.client_key_data.is_some()
        );
        assert!(
            config_anonymous(&alice)
                .auth_info
                .client_certificate_data
                .is_none()
        );
    }
}
