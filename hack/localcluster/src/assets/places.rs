//! Where programs are looked for: `KUBEBUILDER_ASSETS`, then the user's cache.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::{Binary, recipe};

/// The two directories. Values come from the environment once, at the edge ([`Places::from_env`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    given: Option<PathBuf>,
    base: PathBuf,
    cache: PathBuf,
}

/// Neither `XDG_CACHE_HOME` nor `HOME` says where the cache is.
#[derive(Debug, thiserror::Error)]
#[error("there is no place for the cache: set HOME or XDG_CACHE_HOME")]
pub struct NoCache;

impl Places {
    /// From `KUBEBUILDER_ASSETS`, `XDG_CACHE_HOME` and `HOME`.
    pub fn from_env() -> Result<Self, NoCache> {
        Self::new(
            std::env::var_os("KUBEBUILDER_ASSETS"),
            std::env::var_os("XDG_CACHE_HOME"),
            std::env::var_os("HOME"),
        )
    }

    /// From the values of those variables. A relative `XDG_CACHE_HOME` is ignored, as its specification says.
    pub fn new(
        given: Option<OsString>,
        cache: Option<OsString>,
        home: Option<OsString>,
    ) -> Result<Self, NoCache> {
        let absolute =
            |value: Option<OsString>| value.map(PathBuf::from).filter(|p| p.is_absolute());
        let base = absolute(cache)
            .or_else(|| Some(absolute(home)?.join(".cache")))
            .ok_or(NoCache)?;
        let given = given.filter(|v| !v.is_empty()).map(PathBuf::from);
        Ok(Self::at(given, base.join("kubeworkspaces")))
    }

    /// `given` first, then the cache of this project at `base`.
    pub fn at(given: Option<PathBuf>, base: PathBuf) -> Self {
        let cache = base.join(recipe::key());
        Self { given, base, cache }
    }

    /// What `KUBEBUILDER_ASSETS` named.
    pub fn given(&self) -> Option<&Path> {
        self.given.as_deref()
    }

    /// The cache of this project, for all versions.
    pub fn base(&self) -> &Path {
        &self.base
    }

    /// The directory of what is built here, for the versions and build settings of today.
    pub fn cache(&self) -> &Path {
        &self.cache
    }

    /// Where built programs are.
    pub fn bin(&self) -> PathBuf {
        self.cache.join("bin")
    }

    /// The program, if it is in one of the places.
    pub fn find(&self, binary: Binary) -> Option<PathBuf> {
        let dirs = self.given.iter().cloned().chain([self.bin()]);
        dirs.map(|dir| dir.join(binary.file_name()))
            .find(|path| is_program(path))
    }
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata()
        .is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_cache_follows_the_environment() {
        let os = |s: &str| Some(OsString::from(s));
        for (cache, home, want) in [
            (os("/x"), os("/h"), Some("/x/kubeworkspaces")),
            (None, os("/h"), Some("/h/.cache/kubeworkspaces")),
            (os("relative"), os("/h"), Some("/h/.cache/kubeworkspaces")),
            (os(""), os("/h"), Some("/h/.cache/kubeworkspaces")),
            (None, None, None),
        ] {
            let places = Places::new(None, cache.clone(), home).ok();
            assert_eq!(
                places.as_ref().map(|p| p.cache().parent().unwrap()),
                want.map(Path::new),
                "{cache:?}"
            );
        }
    }

    #[test]
    fn given_programs_come_before_built_ones_and_must_be_executable() {
        let temp = tempfile::tempdir().unwrap();
        let given = temp.path().join("given");
        let places =
            Places::new(Some(given.clone().into()), Some(temp.path().into()), None).unwrap();
        let put = |dir: &Path, mode: u32| {
            std::fs::create_dir_all(dir).unwrap();
            let path = dir.join("etcd");
            std::fs::write(&path, "").unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            path
        };
        assert_eq!(places.find(Binary::Etcd), None);
        let built = put(&places.bin(), 0o755);
        put(&given, 0o644);
        assert_eq!(places.find(Binary::Etcd), Some(built));
        assert_eq!(places.find(Binary::Etcd), Some(places.bin().join("etcd")));
        let given = put(&given, 0o755);
        assert_eq!(places.find(Binary::Etcd), Some(given));
    }
}
