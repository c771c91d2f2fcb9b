//! What tests run against, in two sizes: [`ControlPlane`] alone, in seconds, as many at once as wanted; and the whole
//! [`Cluster`] that `hack/up` has started.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let plane = localcluster::harness::ControlPlane::start().await?;
//! let alice = plane.client_as("alice", &["team"])?;
//! println!("{}", plane.kubectl(["get", "namespaces"]).await?);
//! # Ok(()) }
//! ```

mod apiservice;
mod cluster;
mod control_plane;
mod identity;
mod kubectl;
mod loopback;
mod snapshot;

pub use apiservice::{Registration, external_name_service, register, wait_available};
pub use cluster::{Cluster, STATE_VARIABLE};
pub use control_plane::ControlPlane;
pub use kubectl::{Kubectl, KubectlError};
pub use snapshot::Snapshot;

use std::io;
use std::path::PathBuf;

use crate::assets::AssetsError;
use crate::controlplane::NotReady;
use crate::pki::PkiError;
use crate::proc::ProcError;

/// A client of the administrator of the cluster whose kubeconfig is `path`.
pub async fn administrator(path: &std::path::Path) -> Result<kube::Client, HarnessError> {
    identity::client(&identity::load(path).await?)
}

/// Why the harness cannot give what was asked for.
#[derive(Debug, thiserror::Error)]
pub enum HarnessError {
    /// A program is missing.
    #[error(transparent)]
    Assets(#[from] AssetsError),
    /// Certificates cannot be made.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// A program cannot be started.
    #[error(transparent)]
    Proc(#[from] ProcError),
    /// It does not get ready.
    #[error(transparent)]
    NotReady(#[from] NotReady),
    /// A file failed.
    #[error("cannot use {path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A kubeconfig cannot be used.
    #[error("cannot use the kubeconfig {path}: {source}", path = path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why.
        source: kube::config::KubeconfigError,
    },
    /// kube-apiserver refused.
    #[error("{doing}: {source}")]
    Api {
        /// What was being done.
        doing: String,
        /// Why.
        source: Box<kube::Error>,
    },
    /// There is no cluster.
    #[error("no cluster answers at {0}: start one with `hack/up`, and see `hack/status`")]
    NoCluster(String),
    /// An aggregated API did not become available.
    #[error("APIService {name} is not Available after {seconds} s: {last}")]
    NotAvailable {
        /// The APIService.
        name: String,
        /// How long it was waited for.
        seconds: u64,
        /// What its condition says.
        last: String,
    },
}
