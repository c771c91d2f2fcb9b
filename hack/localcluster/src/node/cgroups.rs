//! The node's control groups: one directory of ours in every hierarchy, v1 and v2, and nothing else.
//!
//! The kubelet puts `kubepods` below it. Under v2 alone (with v1 beside it, v1 is what counts) the kernel wants controllers to be enabled in the root first; those
//! that were not are remembered and disabled at the end. Source: cgroups(7), the kernel's `cgroup-v2.rst`,
//! `k8s.io/kubernetes/pkg/kubelet/cm/cgroup_manager_linux.go` (what the kubelet requires of its root).

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::error::{NodeError, io_error};

/// Controllers that the kubelet asks for, or uses when they are there.
const WANTED: [&str; 6] = ["cpu", "cpuset", "hugetlb", "io", "memory", "pids"];
/// How long a group of ended processes may stay busy.
const BUSY_LIMIT: Duration = Duration::from_secs(10);

/// The hierarchies of the machine, and what has to be undone in them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgroups {
    /// The directory in each hierarchy.
    pub dirs: Vec<PathBuf>,
    /// v2's switch for controllers and those that we have to enable.
    pub enable: Option<(PathBuf, Vec<String>)>,
}

impl Cgroups {
    /// What is needed for a group called `name`. Changes nothing.
    ///
    /// # Errors
    /// When the kernel's files cannot be read.
    pub fn plan(name: &str) -> Result<Self, NodeError> {
        let mountinfo = Path::new("/proc/self/mountinfo");
        let text = fs::read_to_string(mountinfo).map_err(io_error("read", mountinfo))?;
        let roots = hierarchies(&text);
        let dirs = roots.iter().map(|root| root.path.join(name)).collect();
        let enable = match roots.as_slice() {
            [only] if only.unified => {
                let (all, on) = (
                    only.path.join("cgroup.controllers"),
                    only.path.join("cgroup.subtree_control"),
                );
                let read = |path: &Path| fs::read_to_string(path).map_err(io_error("read", path));
                let missing = missing(&read(&all)?, &read(&on)?);
                (!missing.is_empty()).then_some((on, missing))
            }
            _ => None,
        };
        Ok(Self { dirs, enable })
    }

    /// Enables what is missing and makes the directories.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn make(&self) -> Result<(), NodeError> {
        self.switch('+', Err)?;
        self.dirs.iter().try_for_each(|dir| {
            fs::create_dir_all(dir).map_err(io_error("create control group", dir))
        })
    }

    /// Removes the directories, from the leaves up, and disables what was enabled, unless somebody else has begun to
    /// use it meanwhile.
    ///
    /// # Errors
    /// When a process is still in one of them.
    pub fn remove(&self) -> Result<(), NodeError> {
        let deadline = Instant::now() + BUSY_LIMIT;
        self.dirs.iter().try_for_each(|dir| {
            remove_tree(dir, deadline).map_err(io_error("remove control group", dir))
        })?;
        self.switch(
            '-',
            |error| if is_busy(&error) { Ok(()) } else { Err(error) },
        )
    }

    /// Removes what of the directories nobody uses; for those that others may use as well.
    ///
    /// # Errors
    /// When the kernel refuses for another reason.
    pub fn remove_unused(&self) -> Result<(), NodeError> {
        let remove = |dir: &PathBuf| match remove_tree(dir, Instant::now()) {
            Err(e) if is_busy(&e) => Ok(()),
            other => other.map_err(io_error("remove control group", dir)),
        };
        self.dirs.iter().try_for_each(remove)
    }

    /// Writes `+` or `-` and a controller, one by one: a refusal is then about that one.
    fn switch(
        &self,
        sign: char,
        refused: impl Fn(io::Error) -> io::Result<()>,
    ) -> Result<(), NodeError> {
        let Some((path, controllers)) = &self.enable else {
            return Ok(());
        };
        let write = |controller: &String| {
            let mut file = fs::OpenOptions::new().append(true).open(path)?;
            file.write_all(format!("{sign}{controller}\n").as_bytes())
        };
        controllers
            .iter()
            .try_for_each(|controller| write(controller).or_else(&refused))
            .map_err(io_error("write", path))
    }
}

fn is_busy(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::BUSY.raw_os_error())
}

/// The top of a hierarchy.
#[derive(Debug, PartialEq, Eq)]
struct Hierarchy {
    path: PathBuf,
    unified: bool,
}

/// The hierarchies in `/proc/PID/mountinfo` (proc(5)): fields, ` - `, type. Bind mounts of parts of one do not count.
fn hierarchies(mountinfo: &str) -> Vec<Hierarchy> {
    let mut found: Vec<Hierarchy> = Vec::new();
    for line in mountinfo.lines() {
        let Some((mount, filesystem)) = line.split_once(" - ") else {
            continue;
        };
        let unified = match filesystem.split(' ').next() {
            Some("cgroup") => false,
            Some("cgroup2") => true,
            _ => continue,
        };
        let mut fields = mount.split(' ').skip(3);
        let (root, path) = (fields.next(), fields.next().map(PathBuf::from));
        if let (Some("/"), Some(path)) = (root, path)
            && !found.iter().any(|h| h.path == path)
        {
            found.push(Hierarchy { path, unified });
        }
    }
    found
}

/// What is wanted, there, and not enabled yet.
fn missing(there: &str, enabled: &str) -> Vec<String> {
    let has = |list: &str, word: &str| list.split_ascii_whitespace().any(|w| w == word);
    WANTED
        .iter()
        .filter(|c| has(there, c) && !has(enabled, c))
        .map(|c| (*c).to_owned())
        .collect()
}

/// `rmdir` from the leaves up; a group can stay busy for a moment after its last process has ended.
fn remove_tree(dir: &Path, deadline: Instant) -> io::Result<()> {
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path(), deadline)?;
        }
    }
    loop {
        match fs::remove_dir(dir) {
            Err(e) if is_busy(&e) && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_of_both_versions_are_found_once() {
        let hybrid = "\
30 24 0:26 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
31 24 0:27 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
32 24 0:26 /docker/x /elsewhere rw - cgroup cgroup rw,memory
33 24 0:26 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
34 1 8:1 / / rw - ext4 /dev/sda1 rw
";
        let paths: Vec<_> = hierarchies(hybrid)
            .into_iter()
            .map(|h| (h.path, h.unified))
            .collect();
        assert_eq!(
            paths,
            [
                ("/sys/fs/cgroup/memory".into(), false),
                ("/sys/fs/cgroup/unified".into(), true)
            ]
        );
        let unified =
            "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(
            hierarchies(unified),
            [Hierarchy {
                path: "/sys/fs/cgroup".into(),
                unified: true
            }]
        );
    }

    #[test]
    fn only_controllers_that_are_there_and_off_are_enabled() {
        for (there, enabled, want) in [
            (
                "cpuset cpu io memory hugetlb pids rdma",
                "cpu memory pids",
                vec!["cpuset", "hugetlb", "io"],
            ),
            (
                "cpuset cpu io memory pids",
                "cpuset cpu io memory pids",
                vec![],
            ),
            ("", "", vec![]),
        ] {
            assert_eq!(missing(there, enabled), want, "{there} {enabled}");
        }
    }

    #[test]
    fn trees_go_from_the_leaves_up_and_absent_ones_are_fine() {
        let temp = tempfile::tempdir().unwrap();
        let top = temp.path().join("kw");
        fs::create_dir_all(top.join("kubepods/pod1/c")).unwrap();
        let groups = Cgroups {
            dirs: vec![top.clone(), temp.path().join("absent")],
            enable: None,
        };
        groups.remove().unwrap();
        assert!(!top.exists());
    }

    #[test]
    fn what_was_enabled_is_disabled_again() {
        let temp = tempfile::tempdir().unwrap();
        let switch = temp.path().join("cgroup.subtree_control");
        let groups = Cgroups {
            dirs: vec![],
            enable: Some((switch.clone(), vec!["cpuset".into(), "io".into()])),
        };
        assert!(
            groups
                .make()
                .unwrap_err()
                .to_string()
                .contains("cgroup.subtree_control")
        );
        fs::write(&switch, "").unwrap();
        groups.make().unwrap();
        groups.remove().unwrap();
        assert_eq!(
            fs::read_to_string(&switch).unwrap(),
            "+cpuset\n+io\n-cpuset\n-io\n"
        );
    }
}
