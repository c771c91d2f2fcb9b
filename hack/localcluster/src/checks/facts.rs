//! Looking at the machine. Capabilities are tried, not inferred from module files: a kernel may have everything built
//! in and no modules at all.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// What was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// As the kernel names it.
    pub architecture: &'static str,
    /// What `rustc --version` says.
    pub rust: Option<String>,
    /// What `go version` says.
    pub go: Option<String>,
    /// Whether programs are missing, so that Go is needed.
    pub must_build: bool,
    /// Bytes free where the cache is.
    pub disk: u64,
    /// Bytes of memory that programs could get.
    pub memory: u64,
    /// Whether overlay filesystems can be mounted.
    pub overlay: bool,
    /// Whether bridged packets can be filtered.
    pub bridge_filter: bool,
    /// Whether nftables work.
    pub nf_tables: Netfilter,
    /// How processes are grouped.
    pub cgroups: Cgroups,
    /// How the node part gets its rights.
    pub privilege: Privilege,
}

/// Whether a feature of the kernel is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Netfilter {
    /// It was tried.
    Works,
    /// It was tried and refused.
    Refused,
    /// It could not be tried yet.
    Unknown,
}

/// The cgroup hierarchies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cgroups {
    /// The unified hierarchy, with all controllers that the kubelet needs.
    V2,
    /// The old ones, with all controllers that the kubelet needs.
    V1,
    /// A controller is missing.
    Without(&'static str),
}

/// How the node part gets its rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// This is root's own session.
    Root,
    /// An ordinary user who has sudo.
    Sudo,
    /// An ordinary user who has not.
    None,
    /// Root by sudo: what is compiled would belong to root.
    ThroughSudo,
}

/// The controllers without which the kubelet does not start.
const CONTROLLERS: [&str; 4] = ["cpu", "cpuset", "memory", "pids"];

impl Facts {
    /// Looks at this machine. `cache` need not exist yet.
    pub fn gather(cache: &Path, must_build: bool) -> Self {
        Self {
            architecture: std::env::consts::ARCH,
            rust: output("rustc", &["--version"]),
            go: output("go", &["version"]),
            must_build,
            disk: free_space(cache),
            memory: available_memory(&fs::read_to_string("/proc/meminfo").unwrap_or_default()),
            overlay: has_filesystem("overlay") || has_module("overlay"),
            bridge_filter: Path::new("/proc/sys/net/bridge/bridge-nf-call-iptables").exists()
                || has_module("br_netfilter"),
            nf_tables: nf_tables(),
            cgroups: cgroups(Path::new("/sys/fs/cgroup")),
            privilege: privilege(),
        }
    }
}

fn output(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Free bytes of the filesystem of the nearest existing parent.
fn free_space(path: &Path) -> u64 {
    let existing = path
        .ancestors()
        .find(|p| p.exists())
        .unwrap_or(Path::new("/"));
    rustix::fs::statvfs(existing).map_or(0, |fs| fs.f_bavail * fs.f_frsize)
}

fn available_memory(meminfo: &str) -> u64 {
    let line = meminfo
        .lines()
        .find_map(|l| l.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|l| l.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

fn has_filesystem(name: &str) -> bool {
    let all = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    all.lines()
        .any(|l| l.split_ascii_whitespace().last() == Some(name))
}

/// Whether the kernel could load it; `modprobe` is not on an ordinary user's PATH.
fn has_module(name: &str) -> bool {
    ["/sbin/modprobe", "/usr/sbin/modprobe"]
        .iter()
        .any(|modprobe| output(modprobe, &["-n", name]).is_some())
}

/// Makes a table in a network namespace that ends with the command.
fn nf_tables() -> Netfilter {
    let Some(nft) = ["/usr/sbin/nft", "/sbin/nft"]
        .into_iter()
        .find(|p| Path::new(p).exists())
    else {
        return if has_module("nf_tables") {
            Netfilter::Works
        } else {
            Netfilter::Unknown
        };
    };
    let unshare: &[&str] = if rustix::process::geteuid().is_root() {
        &["-n"]
    } else {
        &["-rn"]
    };
    let args = [unshare, &["--", nft, "add", "table", "inet", "probe"]].concat();
    match output("unshare", &args) {
        Some(_) => Netfilter::Works,
        // An ordinary user may be forbidden to try.
        None if unshare == ["-rn"] => Netfilter::Unknown,
        None => Netfilter::Refused,
    }
}

fn cgroups(root: &Path) -> Cgroups {
    if let Ok(controllers) = fs::read_to_string(root.join("cgroup.controllers")) {
        let has = |name: &&&str| !controllers.split_ascii_whitespace().any(|c| c == **name);
        return CONTROLLERS
            .iter()
            .find(has)
            .map_or(Cgroups::V2, |c| Cgroups::Without(c));
    }
    CONTROLLERS
        .iter()
        .find(|c| !root.join(c).is_dir())
        .map_or(Cgroups::V1, |c| Cgroups::Without(c))
}

fn privilege() -> Privilege {
    let by_sudo = std::env::var_os("SUDO_UID").is_some_and(|uid| uid != "0");
    match (rustix::process::geteuid().is_root(), by_sudo) {
        (true, false) => Privilege::Root,
        (true, true) => Privilege::ThroughSudo,
        (false, _) if output("sudo", &["-V"]).is_some() => Privilege::Sudo,
        (false, _) => Privilege::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_bytes() {
        assert_eq!(
            available_memory("MemTotal: 9 kB\nMemAvailable:   2048 kB\n"),
            2 * 1024 * 1024
        );
        assert_eq!(available_memory(""), 0);
    }

    #[test]
    fn both_kinds_of_cgroups_are_told_apart_and_the_missing_controller_is_named() {
        let temp = tempfile::tempdir().unwrap();
        assert_eq!(cgroups(temp.path()), Cgroups::Without("cpu"));
        for controller in CONTROLLERS {
            fs::create_dir(temp.path().join(controller)).unwrap();
        }
        assert_eq!(cgroups(temp.path()), Cgroups::V1);
        for (text, want) in [
            ("cpuset cpu io memory pids", Cgroups::V2),
            ("cpuset cpu memory", Cgroups::Without("pids")),
        ] {
            fs::write(temp.path().join("cgroup.controllers"), text).unwrap();
            assert_eq!(cgroups(temp.path()), want, "{text}");
        }
    }

    #[test]
    fn space_is_that_of_the_nearest_directory_that_exists() {
        let temp = tempfile::tempdir().unwrap();
        assert!(free_space(&temp.path().join("a/b/c")) > 0);
    }
}
