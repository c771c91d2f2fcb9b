//! Debian's packages, unpacked into the cache and never installed.
//!
//! `apt-get download` fetches and checks a package against Debian's signed lists, `dpkg-deb -x` unpacks it. A package
//! is fetched once per version; without lists (offline, or never updated) one that is in the cache serves.

use std::fs;
use std::path::{Path, PathBuf};

use super::error::{NodeError, io_error};
use super::tool::{find, machine, output};

/// What `nft` needs beside Debian's base system.
const NFTABLES: [&str; 9] = [
    "nftables",
    "libnftables1",
    "libnftnl11",
    "libmnl0",
    "libjansson4",
    "libxtables12",
    "libedit2",
    "libbsd0",
    "libmd0",
];

/// The directory of unpacked packages.
#[derive(Clone, Debug)]
pub struct Packages {
    dir: PathBuf,
}

/// What the node takes from Debian.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unpacked {
    /// The directory of CNI plugins.
    pub cni: PathBuf,
    /// The static busybox.
    pub busybox: PathBuf,
    /// `nft`'s packages, when the machine has none.
    pub nft: Option<Nft>,
}

/// An unpacked `nft`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nft {
    /// Its directory, for PATH.
    pub bin: PathBuf,
    /// Its libraries, for `LD_LIBRARY_PATH`.
    pub lib: PathBuf,
}

impl Packages {
    /// Packages below `cache`.
    pub fn in_cache(cache: &Path) -> Self {
        Self {
            dir: cache.join("debian"),
        }
    }

    /// Everything that the node takes from Debian.
    ///
    /// # Errors
    /// When a package is unknown or cannot be fetched.
    pub fn node(&self) -> Result<Unpacked, NodeError> {
        let cni = self
            .unpack("containernetworking-plugins", &[])?
            .join("usr/lib/cni");
        let busybox = self.unpack("busybox-static", &[])?.join("bin/busybox");
        let nft = if find("nft").is_some() {
            None
        } else {
            Some(self.nft()?)
        };
        Ok(Unpacked { cni, busybox, nft })
    }

    fn nft(&self) -> Result<Nft, NodeError> {
        let [first, more @ ..] = NFTABLES;
        let root = self.unpack(first, &more)?;
        let lib = root
            .join("usr/lib")
            .join(format!("{}-linux-gnu", std::env::consts::ARCH));
        Ok(Nft {
            bin: root.join("usr/sbin"),
            lib,
        })
    }

    /// Unpacks `package`, and `more` into the same tree; returns the tree.
    ///
    /// # Errors
    /// When it is unknown or cannot be fetched.
    pub fn unpack(&self, package: &str, more: &[&str]) -> Result<PathBuf, NodeError> {
        let policy = output(&machine("apt-cache").args(["policy", package]))?;
        let Some(version) = candidate(&policy) else {
            return self
                .newest(package)?
                .ok_or_else(|| NodeError::NoPackage(package.to_owned()));
        };
        let tree = self.dir.join(file_name(package, version));
        if !tree.is_dir() {
            self.fetch(&tree, &[&[package], more].concat())?;
        }
        Ok(tree)
    }

    /// The tree appears whole or not at all.
    fn fetch(&self, tree: &Path, packages: &[&str]) -> Result<(), NodeError> {
        fs::create_dir_all(&self.dir).map_err(io_error("create", &self.dir))?;
        let temp = tempfile::tempdir_in(&self.dir)
            .map_err(io_error("create a directory in", &self.dir))?;
        let (debs, root) = (temp.path().join("debs"), temp.path().join("root"));
        fs::create_dir(&debs).map_err(io_error("create", &debs))?;
        let apt = machine("env")
            .arg("--chdir")
            .arg(&debs)
            .args(["apt-get", "-q", "download"]);
        output(&apt.args(packages))?;
        for deb in fs::read_dir(&debs).map_err(io_error("list", &debs))? {
            let deb = deb.map_err(io_error("list", &debs))?.path();
            output(&machine("dpkg-deb").arg("--extract").arg(deb).arg(&root))?;
        }
        match fs::rename(&root, tree) {
            // Another run was quicker.
            Err(_) if tree.is_dir() => Ok(()),
            other => other.map_err(io_error("create", tree)),
        }
    }

    /// The last of what the cache holds of a package.
    fn newest(&self, package: &str) -> Result<Option<PathBuf>, NodeError> {
        if !self.dir.is_dir() {
            return Ok(None);
        }
        let prefix = format!("{package}_");
        let entries = fs::read_dir(&self.dir).map_err(io_error("list", &self.dir))?;
        let trees = entries.filter_map(|entry| Some(entry.ok()?.path()));
        Ok(trees
            .filter(|path| {
                path.file_name()
                    .is_some_and(|n| n.to_string_lossy().starts_with(&prefix))
            })
            .max())
    }
}

/// The version that `apt-cache policy` would install.
fn candidate(policy: &str) -> Option<&str> {
    let version = policy
        .lines()
        .find_map(|line| line.trim().strip_prefix("Candidate: "))?;
    (version != "(none)").then_some(version)
}

/// As apt names files: a colon would split PATH.
fn file_name(package: &str, version: &str) -> String {
    format!(
        "{package}_{}_{}",
        version.replace(':', "%3a"),
        std::env::consts::ARCH
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_candidate_is_read_and_none_is_none() {
        assert_eq!(
            candidate("x:\n  Installed: (none)\n  Candidate: 1:1.35.0-4+b1\n"),
            Some("1:1.35.0-4+b1")
        );
        assert_eq!(candidate("x:\n  Installed: 1\n  Candidate: (none)\n"), None);
        assert_eq!(candidate(""), None);
    }

    #[test]
    fn directories_fit_into_path() {
        assert!(file_name("busybox-static", "1:1.35").starts_with("busybox-static_1%3a1.35_"));
    }

    #[test]
    fn an_unpacked_version_serves_without_lists() {
        let cache = tempfile::tempdir().unwrap();
        let packages = Packages::in_cache(cache.path());
        assert_eq!(packages.newest("p").unwrap(), None);
        for name in ["p_1_x", "p_2_x", "p-q_9_x"] {
            fs::create_dir_all(cache.path().join("debian").join(name)).unwrap();
        }
        assert_eq!(
            packages.newest("p").unwrap(),
            Some(cache.path().join("debian/p_2_x"))
        );
    }
}
