//! The whole cluster that `hack/up` has started, for end-to-end tests.

use std::path::{Path, PathBuf};

use kube::{Client, Config};

use super::{HarnessError, Kubectl, KubectlError, identity};
use crate::assets::{Assets, Binary, Places};
use crate::pki::Pki;
use crate::state::State;

/// Names another state directory than the checkout's.
pub const STATE_VARIABLE: &str = "KUBEWORKSPACES_STATE";

/// A running cluster. It is shared by all tests: each takes a namespace of its own.
#[derive(Debug)]
pub struct Cluster {
    state: State,
    pki: Pki,
    admin: Config,
    kubectl: Kubectl,
}

impl Cluster {
    /// The cluster of this checkout, or the one whose state directory `KUBEWORKSPACES_STATE` names.
    pub async fn attach() -> Result<Self, HarnessError> {
        let state = std::env::var_os(STATE_VARIABLE).map_or_else(
            || State::of_checkout(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")),
            |path| State::at(PathBuf::from(path)),
        );
        Self::attach_to(state).await
    }

    /// The cluster of `state`, if it answers.
    pub async fn attach_to(state: State) -> Result<Self, HarnessError> {
        let none = || HarnessError::NoCluster(state.root().display().to_string());
        if !state.kubeconfig().exists() {
            return Err(none());
        }
        let admin = identity::load(&state.kubeconfig()).await?;
        identity::client(&admin)?
            .apiserver_version()
            .await
            .map_err(|_| none())?;
        let assets = Assets::find(
            &[Binary::Kubectl],
            &Places::from_env().map_err(crate::assets::AssetsError::from)?,
        )?;
        let kubectl = Kubectl::new(
            assets.path(Binary::Kubectl)?,
            state.kubeconfig(),
            state.kubectl_cache(),
        );
        Ok(Self {
            pki: Pki::open(&state.pki())?,
            admin,
            kubectl,
            state,
        })
    }

    /// A client of the administrator.
    pub fn client(&self) -> Result<Client, HarnessError> {
        identity::client(&self.admin)
    }

    /// A client of `user` in `groups`, by a client certificate.
    pub fn client_as(&self, user: &str, groups: &[&str]) -> Result<Client, HarnessError> {
        identity::client(&self.config_as(user, groups)?)
    }

    /// The settings of the administrator's client.
    pub fn config(&self) -> Config {
        self.admin.clone()
    }

    /// The settings of another user's client.
    pub fn config_as(&self, user: &str, groups: &[&str]) -> Result<Config, HarnessError> {
        identity::config_as(&self.admin, &self.pki, user, groups)
    }

    /// What `kubectl args` writes, as the administrator.
    pub async fn kubectl<A: AsRef<std::ffi::OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
    ) -> Result<String, KubectlError> {
        self.kubectl.run(args).await
    }

    /// The administrator's kubectl, for input, other users and other versions.
    pub fn kubectl_program(&self) -> &Kubectl {
        &self.kubectl
    }

    /// Where it keeps its things: logs, the audit log, certificates.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Its certificates.
    pub fn pki(&self) -> &Pki {
        &self.pki
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn without_a_cluster_the_reader_is_told_to_start_one() {
        let temp = tempfile::tempdir().unwrap();
        let error = Cluster::attach_to(State::at(temp.path()))
            .await
            .unwrap_err();
        assert!(error.to_string().contains("hack/up"), "{error}");
    }
}
