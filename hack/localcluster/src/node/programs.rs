//! The files that the node runs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::packages::{Nft, Unpacked};
use crate::assets::Binary;
use crate::proc::CommandLine;

/// Paths of programs and plugins.
#[derive(Clone, Debug)]
pub struct Programs {
    /// This crate's own program.
    pub localcluster: PathBuf,
    /// containerd.
    pub containerd: PathBuf,
    /// containerd's shim.
    pub shim: PathBuf,
    /// containerd's client.
    pub ctr: PathBuf,
    /// runc.
    pub runc: PathBuf,
    /// The kubelet.
    pub kubelet: PathBuf,
    /// kube-proxy.
    pub kube_proxy: PathBuf,
    /// The directory of CNI plugins.
    pub cni: PathBuf,
    /// A static busybox.
    pub busybox: PathBuf,
    /// `nft`, when the machine has none.
    pub nft: Option<Nft>,
    /// The directories that must be visible inside the node: those of all programs, the control plane's included.
    pub dirs: Vec<PathBuf>,
}

impl Programs {
    /// From built programs, wherever `find` has them, and Debian's packages.
    ///
    /// # Errors
    /// Those of `find`.
    pub fn new<E>(
        localcluster: PathBuf,
        unpacked: Unpacked,
        find: impl Fn(Binary) -> Result<PathBuf, E>,
    ) -> Result<Self, E> {
        let mut dirs = Binary::CLUSTER
            .into_iter()
            .map(&find)
            .collect::<Result<Vec<_>, E>>()?;
        dirs.push(localcluster.clone());
        let dirs = dirs_of(&dirs, &unpacked);
        let Unpacked { cni, busybox, nft } = unpacked;
        Ok(Self {
            localcluster,
            containerd: find(Binary::Containerd)?,
            shim: find(Binary::ContainerdShim)?,
            ctr: find(Binary::Ctr)?,
            runc: find(Binary::Runc)?,
            kubelet: find(Binary::Kubelet)?,
            kube_proxy: find(Binary::KubeProxy)?,
            cni,
            busybox,
            nft,
            dirs,
        })
    }

    /// PATH of the node's programs: an unpacked `nft`, runc (the shim looks for it there too), the machine's programs.
    pub fn path(&self) -> OsString {
        let mut path = OsString::new();
        for dir in [
            self.nft.as_ref().map(|nft| nft.bin.as_path()),
            self.runc.parent(),
        ]
        .into_iter()
        .flatten()
        {
            path.push(dir);
            path.push(":");
        }
        path.push("/usr/sbin:/usr/bin:/sbin:/bin");
        path
    }

    /// The command with what it needs to find programs, and an unpacked `nft` its libraries.
    pub fn with_tools(&self, command: CommandLine) -> CommandLine {
        let command = command.env("PATH", self.path());
        match &self.nft {
            Some(nft) => command.env("LD_LIBRARY_PATH", &nft.lib),
            None => command,
        }
    }
}

/// The directories of programs, of what symbolic links among them lead to, and of unpacked packages.
fn dirs_of(programs: &[PathBuf], unpacked: &Unpacked) -> Vec<PathBuf> {
    let Unpacked {
        cni,
        busybox: _,
        nft,
    } = unpacked;
    let real = programs
        .iter()
        .filter_map(|program| program.canonicalize().ok());
    let all: Vec<PathBuf> = programs.iter().cloned().chain(real).collect();
    let mut dirs: Vec<PathBuf> = all
        .iter()
        .filter_map(|p| p.parent())
        .map(Path::to_owned)
        .collect();
    dirs.push(cni.clone());
    dirs.extend(
        nft.iter()
            .flat_map(|nft| [nft.bin.clone(), nft.lib.clone()]),
    );
    dirs.sort();
    dirs.dedup();
    dirs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn programs(nft: Option<Nft>) -> Programs {
        let unpacked = Unpacked {
            cni: "/c/cni".into(),
            busybox: "/c/busybox".into(),
            nft,
        };
        let find = |binary: Binary| Ok::<_, ()>(Path::new("/b").join(binary.file_name()));
        Programs::new("/t/localcluster".into(), unpacked, find).unwrap()
    }

    #[test]
    fn every_directory_is_named_once_and_links_are_followed() {
        assert_eq!(
            programs(None).dirs,
            ["/b", "/c/cni", "/t"].map(PathBuf::from)
        );
        let temp = tempfile::tempdir().unwrap();
        let top = temp.path().canonicalize().unwrap();
        for dir in ["real", "links"] {
            std::fs::create_dir(top.join(dir)).unwrap();
        }
        std::fs::write(top.join("real/etcd"), "").unwrap();
        std::os::unix::fs::symlink("../real/etcd", top.join("links/etcd")).unwrap();
        let unpacked = Unpacked {
            cni: "/c".into(),
            busybox: "/x".into(),
            nft: None,
        };
        let dirs = dirs_of(&[top.join("links/etcd")], &unpacked);
        assert_eq!(dirs, ["/c".into(), top.join("links"), top.join("real")]);
    }

    #[test]
    fn an_unpacked_nft_comes_first_and_has_its_libraries() {
        let plain = CommandLine::new("nft", "nft");
        let system = plain
            .clone()
            .env("PATH", "/b:/usr/sbin:/usr/bin:/sbin:/bin");
        assert_eq!(programs(None).with_tools(plain.clone()), system);
        let nft = Nft {
            bin: "/n/sbin".into(),
            lib: "/n/lib".into(),
        };
        let want = plain
            .clone()
            .env("PATH", "/n/sbin:/b:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("LD_LIBRARY_PATH", "/n/lib");
        assert_eq!(programs(Some(nft)).with_tools(plain), want);
    }
}
