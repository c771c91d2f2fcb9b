//! The files that the node runs.

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
        })
    }

    /// The directories that the node must see.
    pub fn dirs(&self) -> Vec<PathBuf> {
        let Self {
            localcluster,
            containerd,
            shim,
            ctr: _,
            runc,
            kubelet,
            kube_proxy,
            cni,
            busybox: _,
            nft,
        } = self;
        let programs = [localcluster, containerd, shim, runc, kubelet, kube_proxy];
        let mut dirs: Vec<PathBuf> = programs
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

    /// A command that finds `nft`.
    pub fn with_tools(&self, command: CommandLine) -> CommandLine {
        let Some(Nft { bin, lib }) = &self.nft else {
            return command;
        };
        let mut path = bin.clone().into_os_string();
        path.push(":/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("PATH", path).env("LD_LIBRARY_PATH", lib)
    }
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
    fn every_directory_is_named_once() {
        assert_eq!(
            programs(None).dirs(),
            ["/b", "/c/cni", "/t"].map(PathBuf::from)
        );
    }

    #[test]
    fn an_unpacked_nft_is_found_and_the_machines_own_needs_nothing() {
        let plain = CommandLine::new("nft", "nft");
        assert_eq!(programs(None).with_tools(plain.clone()), plain);
        let nft = Nft {
            bin: "/n/sbin".into(),
            lib: "/n/lib".into(),
        };
        let want = plain
            .clone()
            .env("PATH", "/n/sbin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("LD_LIBRARY_PATH", "/n/lib");
        assert_eq!(programs(Some(nft)).with_tools(plain), want);
    }
}
