//! The state directory: everything that a running cluster keeps outside the cache, under one ignored directory.
//!
//! ```text
//! .state/
//!   kubeconfig        the administrator's, mode 0600
//!   lock              held by the command that is changing the cluster
//!   bin/              kubectl and kubectl-workspace, for PATH
//!   pki/              keys and certificates, mode 0700
//!   config/           files that the programs read
//!   log/              one log per program, and the audit log
//!   run/              one record per started program
//!   cache/            what kubectl remembers of the cluster
//!   node/             what the node keeps: containerd's content, the kubelet's directories
//!   etcd/             etcd's data
//! ```

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// The paths under one state directory. Holding one creates nothing: see [`State::create`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    root: PathBuf,
}

/// Why the state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// A file or directory cannot be made or read.
    #[error("cannot use {path} of the state directory: {source}")]
    Io {
        /// What was touched.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// Another command holds the lock.
    #[error(
        "another hack/up or hack/down is changing the cluster (it holds {0}): wait for it, or end it"
    )]
    Busy(PathBuf),
}

impl State {
    /// The state directory of a checkout: `.state` at its top.
    pub fn of_checkout(top: &Path) -> Self {
        Self::at(top.join(".state"))
    }

    /// The state directory at `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Makes the directories that are missing. Keys are for the owner alone, the rest is readable: programs in
    /// containers without root reach their mounts through it.
    pub fn create(&self) -> Result<(), StateError> {
        for dir in [
            self.root(),
            &self.bin(),
            &self.config(),
            &self.logs(),
            &self.run(),
        ] {
            make_dir(dir, 0o755)?;
        }
        make_dir(&self.pki(), 0o700)
    }

    /// Takes the lock for as long as the result lives.
    pub fn lock(&self) -> Result<Lock, StateError> {
        let path = self.root.join("lock");
        let fail = |source| StateError::Io {
            path: path.clone(),
            source,
        };
        let file = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(fail)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Lock { _file: file }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(StateError::Busy(path)),
            Err(e) => Err(fail(e.into())),
        }
    }

    /// The directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.root.join("kubeconfig")
    }

    /// Programs for the PATH of people: kubectl and kubectl-workspace.
    pub fn bin(&self) -> PathBuf {
        self.root.join("bin")
    }

    /// Keys, certificates and the kubeconfigs of programs.
    pub fn pki(&self) -> PathBuf {
        self.root.join("pki")
    }

    /// Configuration files that programs read.
    pub fn config(&self) -> PathBuf {
        self.root.join("config")
    }

    /// The directory of logs.
    pub fn logs(&self) -> PathBuf {
        self.root.join("log")
    }

    /// What kubectl remembers of the cluster.
    pub fn kubectl_cache(&self) -> PathBuf {
        self.root.join("cache")
    }

    /// The log of one program.
    pub fn log(&self, program: &str) -> PathBuf {
        self.logs().join(format!("{program}.log"))
    }

    /// kube-apiserver's audit log.
    pub fn audit_log(&self) -> PathBuf {
        self.logs().join("audit.log")
    }

    /// The records of started programs (see [`crate::proc::Ledger`]).
    pub fn run(&self) -> PathBuf {
        self.root.join("run")
    }

    /// What the node keeps.
    pub fn node(&self) -> PathBuf {
        self.root.join("node")
    }

    /// etcd's data.
    pub fn etcd(&self) -> PathBuf {
        self.root.join("etcd")
    }
}

/// The right to change the cluster; dropping it gives it back, as does the end of the process.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Makes `dir` and its parents with `mode`; one that exists stays as it is.
fn make_dir(dir: &Path, mode: u32) -> Result<(), StateError> {
    let made = DirBuilder::new().recursive(true).mode(mode).create(dir);
    made.or_else(|e| {
        if fs::metadata(dir).is_ok_and(|m| m.is_dir()) {
            Ok(())
        } else {
            Err(e)
        }
    })
    .map_err(|source| StateError::Io {
        path: dir.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn keys_are_for_the_owner_alone_and_creating_twice_changes_nothing() {
        let temp = tempfile::tempdir().unwrap();
        let state = State::of_checkout(temp.path());
        state.create().unwrap();
        state.create().unwrap();
        assert_eq!(
            fs::metadata(state.pki()).unwrap().permissions().mode() & 0o777,
            0o700
        );
        assert!(state.logs().is_dir());
        assert_eq!(state.log("etcd"), temp.path().join(".state/log/etcd.log"));
    }

    #[test]
    fn a_second_command_is_refused_until_the_first_ends() {
        let temp = tempfile::tempdir().unwrap();
        let state = State::at(temp.path());
        let first = state.lock().unwrap();
        assert!(matches!(state.lock(), Err(StateError::Busy(_))));
        drop(first);
        state.lock().unwrap();
    }
}
