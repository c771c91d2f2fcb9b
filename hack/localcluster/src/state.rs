//! The state directory: everything that a running cluster keeps outside the cache, under one ignored directory.
//!
//! ```text
//! .state/
//!   kubeconfig        the administrator's, mode 0600
//!   profile           how the programs in the cluster were compiled, if hack/up was told
//!   existing.json     with a cluster that exists: where its kubeconfig is
//!   lock, root.lock   held by the command that is changing the cluster, and by its part that runs as root
//!   bin/              kubectl, kubectl-workspace and kubectl_complete-workspace, for PATH
//!   pki/              keys and certificates, mode 0700
//!   config/           files that the programs read
//!   log/              one log per program, and the audit log
//!   run/              one record per started program
//!   cache/            what kubectl remembers of the cluster
//!   node/             what the node keeps: containerd's content, the kubelet's directories
//!   etcd/             etcd's data
//! ```

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::lock::{self, Lock, LockError};

/// How long the command that is changing the cluster is waited for: the longest hack/up compiles everything.
const LOCK_LIMIT: Duration = Duration::from_secs(45 * 60);
/// The same for the part that runs as root, which compiles nothing.
const ROOT_LOCK_LIMIT: Duration = Duration::from_secs(10 * 60);

/// The names of the files that are locked.
pub const LOCKS: [&str; 2] = ["lock", "root.lock"];

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

    /// Holds the lock of the command that changes the cluster; waits for another one.
    pub fn lock(&self) -> Result<Lock, LockError> {
        let who = "another hack/up or hack/down";
        lock::hold(&self.root.join(LOCKS[0]), who, LOCK_LIMIT)
    }

    /// Holds the lock of the part that runs as root: that of a hack/up which was killed may still be at work.
    pub fn root_lock(&self) -> Result<Lock, LockError> {
        let who = "the root part of another hack/up or hack/down";
        lock::hold(&self.root.join(LOCKS[1]), who, ROOT_LOCK_LIMIT)
    }

    /// The directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.root.join("kubeconfig")
    }

    /// Which cluster that exists hack/up was told of, if it was.
    pub fn existing(&self) -> PathBuf {
        self.root.join("existing.json")
    }

    /// How the programs in the cluster were compiled.
    pub fn profile(&self) -> PathBuf {
        self.root.join("profile")
    }

    /// Programs for the PATH of people: kubectl, kubectl-workspace, and what kubectl completes it by.
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
}
