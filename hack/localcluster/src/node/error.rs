//! What can go wrong with the node.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::proc::ProcError;

/// A failure, with what was being done and where to look.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// A program of the machine said no.
    #[error("{command} failed ({status}): {stderr}")]
    Command {
        /// The command line.
        command: String,
        /// Its exit status in words.
        status: String,
        /// What it said.
        stderr: String,
    },
    /// A file, mount or kernel setting could not be used.
    #[error("{doing} {path}: {source}", path = path.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// With what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A program answered something that is not in its documented form.
    #[error("{program} answered something unexpected: {problem}")]
    Answer {
        /// The program.
        program: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// Every candidate for the link network is in use.
    #[error(
        "no network is free for the link to the node: all of {0} overlap addresses or routes of this machine; \
         remove one of those routes"
    )]
    NoFreeNetwork(String),
    /// Something did not happen in time.
    #[error("{what} after {limit:?}; look into {log}", log = log.display())]
    Late {
        /// What did not happen.
        what: String,
        /// The time that it had.
        limit: Duration,
        /// The log that says why.
        log: PathBuf,
    },
    /// Debian's package lists do not know a package.
    #[error("Debian has no package {0} here: run `apt-get update`, or check /etc/apt/sources.list")]
    NoPackage(String),
    /// A program could not be started or ended.
    #[error(transparent)]
    Process(#[from] ProcError),
    /// An image could not be written or read.
    #[error(transparent)]
    Image(#[from] oci_archive::Error),
    /// kube-apiserver refused or could not be reached.
    #[error("watch {what}: {source}")]
    Watch {
        /// What was watched.
        what: &'static str,
        /// Why it failed.
        source: Box<kube::runtime::wait::Error>,
    },
}

/// Turns an I/O error into one that names the file.
pub(crate) fn io_error(
    doing: &'static str,
    path: impl AsRef<Path>,
) -> impl FnOnce(io::Error) -> NodeError {
    let path = path.as_ref().to_owned();
    move |source| NodeError::Io {
        doing,
        path,
        source,
    }
}

/// The same for rustix's errors.
pub(crate) fn errno(
    doing: &'static str,
    path: impl AsRef<Path>,
) -> impl FnOnce(rustix::io::Errno) -> NodeError {
    let wrap = io_error(doing, path);
    move |errno| wrap(errno.into())
}
