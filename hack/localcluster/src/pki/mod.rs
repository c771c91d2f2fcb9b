//! Certificates, keys and kubeconfigs of a cluster, made by rcgen.
//!
//! Two authorities, as kubeadm has them: `ca` signs servers and clients, `front-proxy-ca` signs only the certificate
//! with which kube-apiserver calls aggregated servers, so that no client certificate can pass for it. Everything is
//! written once into one directory and reused while the [`Plan`] stays the same.

mod authority;
mod files;
mod kubeconfig;
mod plan;
mod subject;

pub use authority::{Authority, Issued};
pub use files::{FRONT_PROXY_NAME, Pki};
pub use kubeconfig::kubeconfig;
pub use plan::{Component, NodeNames, Plan};
pub use subject::Subject;

use std::io;
use std::path::PathBuf;

/// Why certificates could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file failed.
    #[error("cannot use {path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A certificate could not be made.
    #[error("cannot make the certificate of {subject}: {source}")]
    Issue {
        /// For whom.
        subject: String,
        /// Why.
        source: rcgen::Error,
    },
    /// A certificate that was just made has a shape that is not X.509's.
    #[error("the certificate of {0} is not DER as RFC 5280 has it")]
    Shape(String),
}
