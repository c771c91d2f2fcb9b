//! Debian's packages, unpacked into the cache and never installed.
//!
//! `apt-get download` fetches and checks a package against Debian's signed lists, `dpkg-deb -x` unpacks it. A package
//! is fetched once per version; without lists (offline, or never updated) one that is in the cache serves. The user
//! fetches ([`Packages::node`]) and notes where; root reads that ([`Packages::unpacked`]), for what root fetched would
//! be root's in the user's cache.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::{NodeError, io_error};
use super::files::put;
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

/// The packages of CNI plugins and of the static busybox.
const CNI: &str = "containernetworking-plugins";
const BUSYBOX: &str = "busybox-static";

/// The file that says what was unpacked last.
const CURRENT: &str = "current.json";

/// The directory of unpacked packages.
#[derive(Clone, Debug)]
pub struct Packages {
    dir: PathBuf,
}

/// What the node takes from Debian.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unpacked {
    /// The directory of CNI plugins.
    pub cni: PathBuf,
    /// The static busybox.
    pub busybox: PathBuf,
    /// `nft`'s packages, when the machine has none.
    pub nft: Option<Nft>,
}

/// An unpacked `nft`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nft {
    /// Its directory, for PATH.
    pub bin: PathBuf,
    /// Its libraries, for `LD_LIBRARY_PATH`.
    pub lib: PathBuf,
}

impl Nft {
    fn in_tree(root: PathBuf) -> Self {
        let lib = format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH);
        Self {
            bin: root.join("usr/sbin"),
            lib: root.join(lib),
        }
    }
}

impl Packages {
    /// Packages below `cache`.
    pub fn in_cache(cache: &Path) -> Self {
        Self {
            dir: cache.join("debian"),
        }
    }

    /// Everything that the node takes from Debian, fetched if it is missing, and noted.
    ///
    /// # Errors
    /// When a package is unknown or cannot be fetched.
    pub fn node(&self) -> Result<Unpacked, NodeError> {
        let [nft, more @ ..] = NFTABLES;
        let wanted = [CNI, BUSYBOX, nft];
        // Asked once for all: without a cache of its own apt reads all its lists each time.
        let policy = output(&machine("apt-cache").arg("policy").args(wanted))?;
        let get = |package, more| self.tree(package, candidate(&policy, package), more);
        let nft = || get(nft, &more).map(Nft::in_tree);
        let unpacked = Unpacked {
            cni: get(CNI, &[])?.join("usr/lib/cni"),
            busybox: get(BUSYBOX, &[])?.join("bin/busybox"),
            nft: find("nft").is_none().then(nft).transpose()?,
        };
        let note = self.dir.join(CURRENT);
        let text = serde_json::to_vec_pretty(&unpacked)
            .map_err(|e| io_error("describe", &note)(e.into()))?;
        put(&note, text)?;
        Ok(unpacked)
    }

    /// What [`Packages::node`] has noted.
    ///
    /// # Errors
    /// When there is no such note.
    pub fn unpacked(&self) -> Result<Unpacked, NodeError> {
        let note = self.dir.join(CURRENT);
        let read = || Ok(serde_json::from_slice(&fs::read(&note)?)?);
        read().map_err(io_error("read", &note))
    }

    /// The tree of a package, and `more` in the same one: that of the version which Debian has now, fetched if need be;
    /// or the last one of the cache.
    fn tree(
        &self,
        package: &str,
        version: Option<&str>,
        more: &[&str],
    ) -> Result<PathBuf, NodeError> {
        let Some(version) = version else {
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

/// The version of a package that would be installed, in the answer of `apt-cache policy` about several.
fn candidate<'a>(policy: &'a str, package: &str) -> Option<&'a str> {
    let heading = format!("{package}:");
    let mut lines = policy.lines().skip_while(|line| *line != heading).skip(1);
    let version = lines
        .by_ref()
        .take_while(|line| line.starts_with(' '))
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
    fn each_candidate_is_read_and_none_is_none() {
        let policy = "x:\n  Installed: (none)\n  Candidate: 1:1.35.0-4+b1\n  Version table:\n     1 500\n\
                      y:\n  Installed: 1\n  Candidate: (none)\nz:\nw:\n  Candidate: 3\n";
        for (package, want) in [
            ("x", Some("1:1.35.0-4+b1")),
            ("y", None),
            ("z", None),
            ("w", Some("3")),
            ("absent", None),
        ] {
            assert_eq!(candidate(policy, package), want, "{package}");
        }
    }

    #[test]
    fn what_the_user_has_fetched_is_what_root_finds() {
        let cache = tempfile::tempdir().unwrap();
        let packages = Packages::in_cache(cache.path());
        let error = packages.unpacked().unwrap_err().to_string();
        assert!(error.contains(CURRENT), "{error}");
        for name in [CNI, BUSYBOX, NFTABLES[0]] {
            let policy = output(&machine("apt-cache").args(["policy", name])).unwrap();
            let version = candidate(&policy, name).unwrap_or("1");
            fs::create_dir_all(packages.dir.join(file_name(name, version))).unwrap();
        }
        let fetched = packages.node().unwrap();
        assert_eq!(packages.unpacked().unwrap(), fetched);
        assert!(fetched.busybox.ends_with("bin/busybox"));
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
