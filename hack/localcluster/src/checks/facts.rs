//! Looking at the machine. Capabilities are tried, not inferred from module files: a kernel may have everything built
//! in and no modules at all.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const GIB: u64 = 1 << 30;
/// What compiling everything once takes: Go's caches and the programs in one place, cargo's target directory, images
/// and the running cluster in the other.
const TO_BUILD: [u64; 2] = [9 * GIB, 6 * GIB];
/// What remains to be written when everything is compiled.
const TO_RUN: [u64; 2] = [GIB, 3 * GIB];

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
    /// The filesystems that are written to.
    pub disks: Vec<Disk>,
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

/// A filesystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// A directory on it.
    pub path: PathBuf,
    /// Bytes free.
    pub free: u64,
    /// Bytes needed.
    pub need: u64,
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
    /// The same, but sudo wants a password and there is no terminal to ask on.
    SudoWithoutTerminal,
    /// An ordinary user who has not.
    None,
    /// Root by sudo: what is compiled would belong to root.
    ThroughSudo,
}

/// The controllers without which the kubelet does not start.
const CONTROLLERS: [&str; 4] = ["cpu", "cpuset", "memory", "pids"];

impl Facts {
    /// Looks at this machine. The directories need not exist yet.
    pub fn gather(cache: &Path, checkout: &Path, must_build: bool) -> Self {
        Self {
            architecture: std::env::consts::ARCH,
            rust: output("rustc", &["--version"]),
            go: output("go", &["version"]),
            must_build,
            disks: disks(cache, checkout, must_build),
            memory: available_memory(&fs::read_to_string("/proc/meminfo").unwrap_or_default()),
            overlay: has_filesystem("overlay") || has_module("overlay"),
            bridge_filter: Path::new("/proc/sys/net/bridge/bridge-nf-call-iptables").exists()
                || has_module("br_netfilter"),
            nf_tables: nf_tables(),
            cgroups: cgroups(Path::new("/sys/fs/cgroup")),
            privilege: privilege(checkout),
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

/// The needs of both directories, added up where they are on one filesystem.
fn disks(cache: &Path, checkout: &Path, must_build: bool) -> Vec<Disk> {
    let [for_cache, for_checkout] = if must_build { TO_BUILD } else { TO_RUN };
    let device = |path: &Path| fs::metadata(existing(path)).map(|m| m.dev()).ok();
    let disk = |path: &Path, need| Disk {
        path: existing(path).to_owned(),
        free: free_space(path),
        need,
    };
    if device(cache) == device(checkout) {
        vec![disk(checkout, for_cache + for_checkout)]
    } else {
        vec![disk(cache, for_cache), disk(checkout, for_checkout)]
    }
}

/// The nearest parent that exists.
fn existing(path: &Path) -> &Path {
    path.ancestors()
        .find(|p| p.exists())
        .unwrap_or(Path::new("/"))
}

fn free_space(path: &Path) -> u64 {
    rustix::fs::statvfs(existing(path)).map_or(0, |fs| fs.f_bavail * fs.f_frsize)
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

/// Root is `ThroughSudo` in a checkout of the user who called sudo. Root's own checkout is nobody else's.
fn privilege(checkout: &Path) -> Privilege {
    let caller = std::env::var("SUDO_UID")
        .ok()
        .and_then(|uid| uid.parse().ok());
    let owner = fs::metadata(checkout).map(|m| m.uid()).ok();
    if rustix::process::geteuid().is_root() {
        let theirs = caller.is_some_and(|uid: u32| uid != 0 && owner == Some(uid));
        return if theirs {
            Privilege::ThroughSudo
        } else {
            Privilege::Root
        };
    }
    let terminal = || fs::File::open("/dev/tty").is_ok();
    match output("sudo", &["-V"]) {
        None => Privilege::None,
        Some(_) if sudo_asks_nothing() || terminal() => Privilege::Sudo,
        Some(_) => Privilege::SudoWithoutTerminal,
    }
}

/// Whether sudo would run a command now without a password.
pub fn sudo_asks_nothing() -> bool {
    output("sudo", &["-n", "true"]).is_some()
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
        assert_eq!(existing(&temp.path().join("a/b/c")), temp.path());
    }

    #[test]
    fn needs_on_one_filesystem_add_up_and_others_stand_alone() {
        let temp = tempfile::tempdir().unwrap();
        let [cache, checkout] = ["cache", "checkout"].map(|name| temp.path().join(name));
        let together = disks(&cache, &checkout, true);
        assert_eq!(together.len(), 1);
        assert_eq!(together[0].need, TO_BUILD[0] + TO_BUILD[1]);
        let apart = disks(Path::new("/proc/self"), &checkout, false);
        let needs: Vec<u64> = apart.iter().map(|disk| disk.need).collect();
        assert_eq!(needs, TO_RUN);
    }
}
