//! The programs of the cluster: found, or built once from their Go modules.
//!
//! [`Assets::ensure`] looks in `KUBEBUILDER_ASSETS`, then in the user's cache, and builds what is in neither, showing
//! progress. Two runs at the same time do not collide: one builds, the other waits and finds.

mod binary;
mod build;
mod places;
mod recipe;

pub use binary::Binary;
pub use places::{NoCache, Places};
pub use recipe::{GoModule, Recipe, recipe};

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// Where each program is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assets {
    found: BTreeMap<Binary, PathBuf>,
}

/// Why a program is not there.
#[derive(Debug, thiserror::Error)]
pub enum AssetsError {
    /// There is no cache.
    #[error(transparent)]
    NoCache(#[from] NoCache),
    /// Another run does not finish.
    #[error(transparent)]
    Lock(#[from] crate::lock::LockError),
    /// A file of the cache failed.
    #[error("cannot use {path} of the cache: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Go is not there.
    #[error(
        "cannot run `go` ({0}): install Go 1.26 or later from https://go.dev/dl and put it on PATH"
    )]
    NoGo(io::Error),
    /// Go failed.
    #[error("building {name} failed ({status}). Its output ends with:\n{tail}")]
    Build {
        /// The program.
        name: &'static str,
        /// Go's exit status.
        status: std::process::ExitStatus,
        /// The end of its output.
        tail: String,
    },
    /// It is not among those that were asked for.
    #[error("{0} was not asked for when the programs were looked up")]
    NotAsked(&'static str),
    /// It is in no place, and building was not wanted.
    #[error("{} not found in KUBEBUILDER_ASSETS or the cache: run `hack/up` or `localcluster assets`, which build them", .0.join(", "))]
    Missing(Vec<&'static str>),
}

impl Assets {
    /// Finds `wanted` and builds what is missing.
    pub fn ensure(wanted: &[Binary], places: &Places) -> Result<Self, AssetsError> {
        let missing: Vec<Binary> = wanted
            .iter()
            .copied()
            .filter(|b| places.find(*b).is_none())
            .collect();
        if !missing.is_empty() {
            build::build(&missing, places)?;
        }
        Self::find(wanted, places)
    }

    /// Finds `wanted` and builds nothing.
    pub fn find(wanted: &[Binary], places: &Places) -> Result<Self, AssetsError> {
        let mut found = BTreeMap::new();
        let mut missing = Vec::new();
        for binary in wanted {
            match places.find(*binary) {
                Some(path) => drop(found.insert(*binary, path)),
                None => missing.push(binary.file_name()),
            }
        }
        if missing.is_empty() {
            Ok(Self { found })
        } else {
            Err(AssetsError::Missing(missing))
        }
    }

    /// Where one is.
    pub fn path(&self, binary: Binary) -> Result<&Path, AssetsError> {
        self.found
            .get(&binary)
            .map(PathBuf::as_path)
            .ok_or(AssetsError::NotAsked(binary.file_name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let temp = tempfile::tempdir().unwrap();
        let places = Places::new(None, Some(temp.path().into()), None).unwrap();
        let message = Assets::find(&[Binary::Etcd, Binary::Kubectl], &places)
            .unwrap_err()
            .to_string();
        assert!(message.starts_with("etcd, kubectl not found"), "{message}");
        let none = Assets::find(&[], &places).unwrap();
        assert!(matches!(
            none.path(Binary::Etcd),
            Err(AssetsError::NotAsked("etcd"))
        ));
    }
}
