//! What a machine has, before and after: mounts, links, addresses, routes, nftables, control groups, settings, loop
//! devices, and processes that have to do with one directory.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Settings that the kernel changes by itself, or that answer differently each time.
const VOLATILE: [&str; 12] = [
    "/proc/sys/fs/dentry-state",
    "/proc/sys/fs/file-nr",
    "/proc/sys/fs/inode-nr",
    "/proc/sys/fs/inode-state",
    "/proc/sys/fs/aio-nr",
    "/proc/sys/fs/quota",
    "/proc/sys/kernel/ns_last_pid",
    "/proc/sys/kernel/pty/nr",
    "/proc/sys/kernel/random",
    "/proc/sys/net/netfilter/nf_conntrack_count",
    "/proc/sys/net/ipv4/conf",
    "/proc/sys/vm/stat_refresh",
];

/// One line per thing.
#[derive(Debug)]
pub(crate) struct Snapshot(BTreeSet<String>);

impl Snapshot {
    /// Of the machine, with the processes that mention `dir`.
    pub(crate) fn take(dir: &Path) -> Self {
        let mut lines = BTreeSet::new();
        for (kind, program, words) in [
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
        ] {
            let output = Command::new(program)
                .args(words.split(' '))
                .output()
                .unwrap();
            assert!(output.status.success(), "{program} {words}");
            let text = String::from_utf8(output.stdout).unwrap();
            lines.extend(text.lines().map(|line| format!("{kind}: {}", line.trim())));
        }
        cgroups(Path::new("/sys/fs/cgroup"), &mut lines);
        settings(Path::new("/proc/sys"), &mut lines);
        processes(dir, &mut lines);
        Self(lines)
    }

    /// What differs from the machine as it is, once nothing does or time is over.
    pub(crate) fn until_same(&self, dir: &Path, limit: Duration) -> Vec<String> {
        let deadline = Instant::now() + limit;
        loop {
            let difference = self.difference(&Self::take(dir));
            if difference.is_empty() || Instant::now() > deadline {
                return difference;
            }
        }
    }

    /// What is in only one of both.
    pub(crate) fn difference(&self, later: &Self) -> Vec<String> {
        let gone = self.0.difference(&later.0).map(|line| format!("- {line}"));
        let new = later.0.difference(&self.0).map(|line| format!("+ {line}"));
        gone.chain(new).collect()
    }
}

/// The machine's value of a setting that the kubelet wants to change.
pub(crate) fn overcommit() -> String {
    fs::read_to_string("/proc/sys/vm/overcommit_memory").unwrap()
}

fn cgroups(dir: &Path, lines: &mut BTreeSet<String>) {
    for path in children(dir) {
        if path.is_dir() && !path.is_symlink() {
            lines.insert(format!("cgroup: {}", path.display()));
            cgroups(&path, lines);
        } else if path.ends_with("cgroup.subtree_control") {
            lines.insert(format!(
                "controllers: {} {}",
                path.display(),
                fs::read_to_string(&path).unwrap_or_default()
            ));
        }
    }
}

fn settings(dir: &Path, lines: &mut BTreeSet<String>) {
    for path in children(dir)
        .into_iter()
        .filter(|path| !VOLATILE.iter().any(|volatile| path.starts_with(volatile)))
    {
        if path.is_dir() {
            settings(&path, lines);
        } else if let Ok(value) = fs::read_to_string(&path) {
            lines.insert(format!("sysctl: {} {value}", path.display()));
        }
    }
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
fn children(dir: &Path) -> Vec<std::path::PathBuf> {
    fs::read_dir(dir)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect()
}
