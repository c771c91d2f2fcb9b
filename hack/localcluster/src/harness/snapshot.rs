//! What a machine has, before and after, so that a test can say that nothing stayed behind: mounts, links, addresses,
//! routes, nftables, control groups, settings, loop devices, names of files where programs like to leave
//! some, and processes that have to do with one directory.
//!
//! Other clusters of this kind may come and go on the same machine meanwhile: what bears their names is left out.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// What is listed by programs: a kind, the program, its words.
const LISTS: [(&str, &str, &str); 7] = [
    (
        "mount",
        "findmnt",
        "--list --noheadings --output TARGET,FSTYPE,SOURCE,PROPAGATION",
    ),
    ("link", "ip", "-oneline -brief link show"),
    ("address", "ip", "-oneline -brief addr show"),
    ("route", "ip", "-4 route show table all"),
    ("route6", "ip", "-6 route show table all"),
    ("nftables", "nft", "list ruleset"),
    (
        "loop",
        "losetup",
        "--list --noheadings --output NAME,BACK-FILE",
    ),
];
/// Settings that the kernel changes by itself, or that answer differently each time.
const VOLATILE: [&str; 16] = [
    "/proc/sys/fs/aio-nr",
    "/proc/sys/fs/dentry-state",
    "/proc/sys/fs/file-nr",
    "/proc/sys/fs/inode-nr",
    "/proc/sys/fs/inode-state",
    "/proc/sys/fs/quota",
    "/proc/sys/kernel/cad_pid",
    "/proc/sys/kernel/ns_last_pid",
    "/proc/sys/kernel/perf_cpu_time_max_percent",
    "/proc/sys/kernel/perf_event_max_sample_rate",
    "/proc/sys/kernel/pty/nr",
    "/proc/sys/kernel/random/entropy_avail",
    "/proc/sys/kernel/random/uuid",
    "/proc/sys/kernel/tainted",
    "/proc/sys/net/netfilter/nf_conntrack_count",
    "/proc/sys/vm/stat_refresh",
];
/// Directories whose files are counted by name: a node or a runtime that runs outside of its namespaces writes here.
const PLACES: [&str; 8] = [
    "/dev/shm",
    "/etc",
    "/etc/cni",
    "/etc/containerd",
    "/opt",
    "/run",
    "/var/lib",
    "/var/log",
];
/// What names of clusters' links and control groups begin with.
const PREFIX: &str = "kw-";

/// One line per thing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot(BTreeSet<String>);

impl Snapshot {
    /// Of the machine, with the processes that mention `dir`. `own` is the name of the cluster's link and control group
    /// ([`crate::node::footprint::name`]).
    ///
    /// # Errors
    /// When a program or a file does not say.
    pub fn take(dir: &Path, own: &str) -> io::Result<Self> {
        let mut lines = BTreeSet::new();
        for (kind, program, words) in LISTS {
            let text = listed(program, words)?;
            lines.extend(text.lines().map(|line| format!("{kind}: {}", line.trim())));
        }
        cgroups(Path::new("/sys/fs/cgroup"), &mut lines);
        settings(Path::new("/proc/sys"), &mut lines);
        for place in PLACES {
            names(Path::new(place), &mut lines);
        }
        processes(dir, &mut lines);
        lines.retain(|line| !of_another(line, own));
        Ok(Self(lines))
    }

    /// What differs from the machine as it is, once nothing does or time is over. The kernel takes a network namespace
    /// apart a moment after its last process.
    ///
    /// # Errors
    /// As [`Snapshot::take`].
    pub fn until_same(&self, dir: &Path, own: &str, limit: Duration) -> io::Result<Vec<String>> {
        let deadline = Instant::now() + limit;
        loop {
            let difference = self.difference(&Self::take(dir, own)?);
            if difference.is_empty() || Instant::now() > deadline {
                return Ok(difference);
            }
        }
    }

    /// What is in only one of both: `- ` what is gone, `+ ` what is new.
    pub fn difference(&self, later: &Self) -> Vec<String> {
        let gone = self.0.difference(&later.0).map(|line| format!("- {line}"));
        let new = later.0.difference(&self.0).map(|line| format!("+ {line}"));
        gone.chain(new).collect()
    }
}

fn listed(program: &str, words: &str) -> io::Result<String> {
    let output = Command::new(program).args(words.split(' ')).output();
    let output = match output {
        // Without nft nobody but the node's own has made tables, in its own namespace.
        Err(e) if e.kind() == io::ErrorKind::NotFound && program == "nft" => {
            return Ok(String::new());
        }
        other => other?,
    };
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(io::Error::other(format!("{program} {words}: {complaint}")))
    }
}

/// Whether a line is about the link or the control group of another cluster of this kind.
fn of_another(line: &str, own: &str) -> bool {
    line.contains(PREFIX) && !line.contains(own)
}

fn cgroups(dir: &Path, lines: &mut BTreeSet<String>) {
    for path in children(dir) {
        if path.is_dir() && !path.is_symlink() {
            lines.insert(format!("cgroup: {}", path.display()));
            cgroups(&path, lines);
        } else if path.ends_with("cgroup.subtree_control") {
            let enabled = fs::read_to_string(&path).unwrap_or_default();
            lines.insert(format!("controllers: {} {enabled}", path.display()));
        }
    }
}

fn settings(dir: &Path, lines: &mut BTreeSet<String>) {
    for path in children(dir) {
        if VOLATILE
            .iter()
            .any(|volatile| path == Path::new(volatile) || path.starts_with(volatile))
        {
            continue;
        }
        if path.is_dir() {
            settings(&path, lines);
        } else if let Ok(value) = fs::read_to_string(&path) {
            lines.insert(format!("sysctl: {} {value}", path.display()));
        }
    }
}

fn names(dir: &Path, lines: &mut BTreeSet<String>) {
    let paths = children(dir).into_iter();
    lines.extend(paths.map(|path| format!("file: {}", path.display())));
}

fn processes(dir: &Path, lines: &mut BTreeSet<String>) {
    let own = std::process::id().to_string();
    for path in children(Path::new("/proc")) {
        let words = fs::read(path.join("cmdline")).unwrap_or_default();
        let text = String::from_utf8_lossy(&words).replace('\0', " ");
        if text.contains(&*dir.to_string_lossy()) && !path.ends_with(&own) {
            lines.insert(format!("process: {text}"));
        }
    }
}

/// None for what went away meanwhile.
fn children(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_named_and_other_clusters_are_not_ours() {
        let of = |lines: &[&str]| Snapshot(lines.iter().map(|l| (*l).to_owned()).collect());
        let (before, after) = (of(&["link: lo", "route: a"]), of(&["link: lo", "route: b"]));
        assert_eq!(before.difference(&after), ["- route: a", "+ route: b"]);
        assert_eq!(before.difference(&before), Vec::<String>::new());
        for (line, want) in [
            ("cgroup: /sys/fs/cgroup/cpu/kw-0a/kubepods", true),
            ("sysctl: /proc/sys/net/ipv4/conf/kw-0a/forwarding 1", true),
            ("link: kw-0b UP", false),
            ("link: eth0 UP", false),
        ] {
            assert_eq!(of_another(line, "kw-0b"), want, "{line}");
        }
    }

    #[test]
    fn settings_of_interfaces_count_and_what_the_kernel_counts_does_not() {
        let mut lines = BTreeSet::new();
        settings(Path::new("/proc/sys"), &mut lines);
        let has = |start: &str| lines.iter().any(|line| line.starts_with(start));
        assert!(has("sysctl: /proc/sys/net/ipv4/conf/lo/forwarding "));
        assert!(has("sysctl: /proc/sys/net/ipv4/ip_forward "));
        assert!(!has("sysctl: /proc/sys/fs/file-nr"));
    }
}
