//! Clients of kube-apiserver, from a kubeconfig or the Pod's own ServiceAccount.

use std::path::{Path, PathBuf};

use kube::config::{KubeConfigOptions, Kubeconfig};

/// No client can be made.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig is broken.
    #[error("kubeconfig {path}: {source}")]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<kube::config::KubeconfigError>,
    },
    /// There is no kubeconfig, and this is no Pod.
    #[error("no --kubeconfig is given and this is not a Pod with a ServiceAccount: {0}")]
    InCluster(#[from] Box<kube::config::InClusterError>),
    /// The configuration does not make a client.
    #[error("cannot make a client for {url}: {source}")]
    Client {
        /// kube-apiserver.
        url: String,
        /// Why.
        source: Box<kube::Error>,
    },
}

/// A client by `kubeconfig`, or else by the Pod's ServiceAccount. Tokens in files are read again as
/// they rotate.
///
/// # Errors
/// When neither makes a client.
pub async fn client(kubeconfig: Option<&Path>) -> Result<kube::Client, ClientError> {
    let config = match kubeconfig {
        Some(path) => from_file(path).await?,
        None => kube::Config::incluster().map_err(Box::new)?,
    };
    let url = config.cluster_url.to_string();
    kube::Client::try_from(config).map_err(|source| ClientError::Client {
        url,
        source: Box::new(source),
    })
}

async fn from_file(path: &Path) -> Result<kube::Config, ClientError> {
    let fault = |source| ClientError::Kubeconfig {
        path: path.to_owned(),
        source: Box::new(source),
    };
    let kubeconfig = Kubeconfig::read_from(path).map_err(fault)?;
    let options = KubeConfigOptions::default();
    kube::Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .map_err(fault)
}
