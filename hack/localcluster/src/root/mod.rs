//! The part that needs root: the node's namespaces with everything in them.
//!
//! `hack/up` and `hack/down` run as the user and run this program again through sudo for this part ([`elevate`]), so
//! that what is compiled belongs to the user. What this part writes for people is given to the owner of the state
//! directory.

mod down;
mod elevate;
mod ownership;
mod up;

pub use down::{Keep, down};
pub use elevate::elevate;
pub use up::{CONTROL_PLANE, import, up};

use std::io;
use std::path::PathBuf;

/// Why the part that needs root failed.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    /// A program is missing.
    #[error(transparent)]
    Assets(#[from] crate::assets::AssetsError),
    /// Certificates cannot be made.
    #[error(transparent)]
    Pki(#[from] crate::pki::PkiError),
    /// The state directory cannot be used.
    #[error(transparent)]
    State(#[from] crate::state::StateError),
    /// The node refused.
    #[error(transparent)]
    Node(#[from] crate::node::NodeError),
    /// A program cannot be started or ended.
    #[error(transparent)]
    Proc(#[from] crate::proc::ProcError),
    /// kube-apiserver does not get ready.
    #[error(transparent)]
    NotReady(#[from] crate::controlplane::NotReady),
    /// The administrator's client cannot be made.
    #[error(transparent)]
    Client(#[from] crate::harness::HarnessError),
    /// A file failed.
    #[error("cannot use {path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is nothing to import into.
    #[error("no node runs: start one with hack/up")]
    NoNode,
    /// Something is still mounted below the state directory.
    #[error("{0} is still mounted: nothing was removed. Unmount it, then run hack/down again")]
    Mounted(String),
    /// The part that runs as root of another command does not end.
    #[error(transparent)]
    Lock(#[from] crate::lock::LockError),
    /// There is no sudo.
    #[error(
        "the node part needs root, and sudo does not run ({0}): install it (`apt install sudo`), or run this as root"
    )]
    NoSudo(io::Error),
    /// This program failed as root; it has said why.
    #[error("the part that needs root failed ({0}): the reason stands above")]
    Failed(std::process::ExitStatus),
    /// sudo or what it ran failed; that has said why.
    #[error(
        "the part that runs through sudo failed ({0}): the reason stands above, and if it is sudo's own, \
         this user may not use it, or it needs a terminal to ask for a password"
    )]
    FailedThroughSudo(std::process::ExitStatus),
}

fn io_error(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> RootError {
    let path = path.into();
    move |source| RootError::Io { path, source }
}
