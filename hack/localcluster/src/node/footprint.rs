//! What the node leaves on the machine outside its namespaces, written down before it is made.
//!
//! The end of pid 1 takes everything inside. What remains is listed here: the machine's end of the link, control
//! groups, enabled controllers, a kernel module, and loop devices that the kubelet makes for block volumes. Since the record is written
//! first, a run that is killed at any point can be undone.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::cgroups::Cgroups;
use super::error::{NodeError, io_error};
use super::files::put;
use super::modules::Modules;
use super::network::Link;
use super::tool::{ip, machine, output};
use super::{containerd, kubelet};

/// The group that containerd makes for containers of `ctr run`, which the kubelet knows nothing of.
const CONTAINERD_GROUP: &str = "k8s.io";

/// Everything to undo.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footprint {
    /// The boot in which it was made: a restart of the machine undoes everything, and settings are others' again.
    boot: String,
    /// The link.
    pub link: Link,
    /// The name of our control group.
    pub cgroup: String,
    /// Our control groups.
    pub cgroups: Cgroups,
    /// Control groups that containerd may make, and which were not there before.
    pub more_cgroups: Cgroups,
    /// Kernel modules that were not loaded.
    #[serde(default)]
    pub modules: Modules,
}

impl Footprint {
    /// What a new node will leave. Changes nothing.
    ///
    /// # Errors
    /// When no network is free or the machine does not answer.
    pub fn plan(state: &Path) -> Result<Self, NodeError> {
        let cgroup = name(state);
        let mut more_cgroups = Cgroups {
            enable: None,
            ..Cgroups::plan(CONTAINERD_GROUP)?
        };
        more_cgroups.dirs.retain(|dir| !dir.exists());
        Ok(Self {
            boot: boot()?,
            link: Link::probe(&cgroup)?,
            cgroups: Cgroups::plan(&cgroup)?,
            more_cgroups,
            modules: Modules::plan(),
            cgroup,
        })
    }

    /// The record in a node directory, if there is one.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn load(dir: &Path) -> Result<Option<Self>, NodeError> {
        let path = path(dir);
        match fs::read(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(io_error("read", &path)(e)),
            Ok(text) => serde_json::from_slice(&text)
                .map(Some)
                .map_err(|e| io_error("parse", &path)(e.into())),
        }
    }

    /// Writes the record whole or not at all.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn store(&self, dir: &Path) -> Result<(), NodeError> {
        let text = serde_json::to_vec_pretty(self)
            .map_err(|e| io_error("describe", path(dir))(e.into()))?;
        put(&path(dir), text)
    }

    /// Undoes everything, after the node's processes have ended.
    ///
    /// # Errors
    /// When the machine refuses; trying again is safe.
    pub fn undo(&self, dir: &Path) -> Result<(), NodeError> {
        let Self {
            boot: made_in,
            link,
            cgroup: _,
            cgroups,
            more_cgroups,
            modules,
        } = self;
        if *made_in != boot()? {
            return Ok(());
        }
        if Path::new("/sys/class/net").join(&link.name).exists() {
            remove_link(&link.name)?;
        }
        detach_loops(dir)?;
        modules.unload()?;
        more_cgroups.remove_unused()?;
        cgroups.remove()
    }
}

/// Undoes what can be found by its name: the record was removed by somebody, or nothing was ever made.
///
/// # Errors
/// When the machine refuses; trying again is safe.
pub fn undo_unrecorded(state: &Path) -> Result<(), NodeError> {
    let name = name(state);
    if Path::new("/sys/class/net").join(&name).exists() {
        remove_link(&name)?;
    }
    let cgroups = Cgroups {
        enable: None,
        ..Cgroups::plan(&name)?
    };
    cgroups.remove()
}

fn boot() -> Result<String, NodeError> {
    let path = "/proc/sys/kernel/random/boot_id";
    fs::read_to_string(path).map_err(io_error("read", path))
}

fn path(dir: &Path) -> PathBuf {
    dir.join("footprint.json")
}

/// The name of the link and the control group of the cluster with this state directory: at most 15 bytes (an
/// interface's limit), and two state directories do not share one.
pub fn name(state: &Path) -> String {
    let digest = Sha256::digest(state.as_os_str().as_encoded_bytes());
    let hex: String = digest[..4]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("kw-{hex}")
}

/// The kernel removes the link by itself a moment after the namespace has gone, perhaps between look and removal.
fn remove_link(name: &str) -> Result<(), NodeError> {
    match output(&ip(&format!("link delete {name}"))) {
        Err(NodeError::Command { stderr, .. }) if stderr.contains("Cannot find device") => Ok(()),
        other => other.map(drop),
    }
}

/// Detaches loop devices whose files are the node's: the kubelet leaves those of block volumes behind.
fn detach_loops(dir: &Path) -> Result<(), NodeError> {
    let list = machine("losetup").args(["--list", "--json", "--output", "NAME,BACK-FILE,BACK-INO"]);
    for (device, file, inode) in loops(&output(&list)?)? {
        let here = on_machine(&file, dir);
        if here.metadata().is_ok_and(|meta| meta.ino() == inode) {
            output(&machine("losetup").arg("--detach").arg(device))?;
        }
    }
    Ok(())
}

/// Where a file of the node is on the machine.
fn on_machine(file: &Path, dir: &Path) -> PathBuf {
    let inside = [(kubelet::ROOT, "kubelet"), (containerd::ROOT, "containerd")];
    let moved = inside
        .iter()
        .find_map(|(root, name)| Some(dir.join(name).join(file.strip_prefix(root).ok()?)));
    moved
        .or_else(|| file.starts_with(dir).then(|| file.to_owned()))
        .unwrap_or_else(|| dir.join("absent"))
}

/// Devices with the path and the inode of their files.
fn loops(json: &str) -> Result<Vec<(String, PathBuf, u64)>, NodeError> {
    #[derive(Deserialize)]
    struct List {
        loopdevices: Vec<Loop>,
    }
    #[derive(Deserialize)]
    struct Loop {
        name: String,
        #[serde(rename = "back-file")]
        file: Option<PathBuf>,
        #[serde(rename = "back-ino")]
        inode: Option<u64>,
    }
    if json.trim().is_empty() {
        return Ok(Vec::new());
    }
    let list: List = serde_json::from_str(json).map_err(|e| NodeError::Answer {
        program: "losetup",
        problem: e.to_string(),
    })?;
    Ok(list
        .loopdevices
        .into_iter()
        .filter_map(|l| Some((l.name, l.file?, l.inode?)))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_an_interface_and_differ_by_state_directory() {
        let (one, two) = (name(Path::new("/a/.state")), name(Path::new("/b/.state")));
        assert!(one.len() <= 15 && one != two, "{one} {two}");
        assert_eq!(one, name(Path::new("/a/.state")));
    }

    #[test]
    fn loop_devices_of_the_node_and_no_others_are_ours() {
        let json = r#"{"loopdevices":[{"name":"/dev/loop0","back-file":"/var/lib/kubelet/x","back-ino":7},
                       {"name":"/dev/loop1","back-file":null,"back-ino":null}]}"#;
        assert_eq!(
            loops(json).unwrap(),
            [("/dev/loop0".to_owned(), "/var/lib/kubelet/x".into(), 7)]
        );
        assert_eq!(loops("").unwrap(), []);
        assert!(loops("{}").is_err());
        let dir = Path::new("/s/node");
        for (file, want) in [
            ("/var/lib/kubelet/x/y", "/s/node/kubelet/x/y"),
            ("/s/node/disks/a", "/s/node/disks/a"),
            ("/home/user/image", "/s/node/absent"),
        ] {
            assert_eq!(on_machine(Path::new(file), dir), Path::new(want), "{file}");
        }
    }

    #[test]
    fn what_an_earlier_boot_left_is_gone_already() {
        let temp = tempfile::tempdir().unwrap();
        let switch = temp.path().join("cgroup.subtree_control");
        let cgroups = Cgroups {
            dirs: vec![],
            enable: Some((switch.clone(), vec!["cpuset".into()])),
        };
        let link = Link {
            name: "kw-absent".into(),
            host: [10, 0, 0, 1].into(),
            node: [10, 0, 0, 2].into(),
            host6: "fd00::1".parse().unwrap(),
            node6: "fd00::2".parse().unwrap(),
        };
        let now = Footprint {
            boot: boot().unwrap(),
            link,
            cgroup: "kw-1".into(),
            cgroups,
            more_cgroups: Cgroups::default(),
            modules: Modules::default(),
        };
        let earlier = Footprint {
            boot: "another".into(),
            ..now.clone()
        };
        fs::write(&switch, "").unwrap();
        earlier.undo(temp.path()).unwrap();
        assert_eq!(fs::read_to_string(&switch).unwrap(), "");
        now.undo(temp.path()).unwrap();
        assert_eq!(fs::read_to_string(&switch).unwrap(), "-cpuset\n");
    }

    #[test]
    fn a_record_is_read_back_and_none_is_none() {
        let temp = tempfile::tempdir().unwrap();
        assert_eq!(Footprint::load(temp.path()).unwrap(), None);
        let link = Link {
            name: "l".into(),
            host: [10, 0, 0, 1].into(),
            node: [10, 0, 0, 2].into(),
            host6: "fd00::1".parse().unwrap(),
            node6: "fd00::2".parse().unwrap(),
        };
        let footprint = Footprint {
            boot: boot().unwrap(),
            link,
            cgroup: "kw-1".into(),
            cgroups: Cgroups::default(),
            more_cgroups: Cgroups::default(),
            modules: Modules::default(),
        };
        footprint.store(temp.path()).unwrap();
        assert_eq!(Footprint::load(temp.path()).unwrap(), Some(footprint));
        fs::write(path(temp.path()), "cut off").unwrap();
        assert!(
            Footprint::load(temp.path())
                .unwrap_err()
                .to_string()
                .contains("footprint.json")
        );
    }
}
