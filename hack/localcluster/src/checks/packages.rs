//! Debian's packages: which are needed for what, which are missing, and installing those.

use std::process::{Command, Stdio};

/// A package and the reason for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Package {
    /// Its name in Debian.
    pub name: &'static str,
    /// What it is for.
    pub reason: &'static str,
}

/// What is needed on the machine itself. The node's own tools (CNI plugins, busybox, nft) and what goes into images
/// are unpacked into the cache and not installed.
pub const NEEDED: [Package; 5] = [
    Package {
        name: "gcc",
        reason: "links Rust programs, compiles runc's C",
    },
    Package {
        name: "libc6-dev",
        reason: "the same",
    },
    Package {
        name: "pkg-config",
        reason: "finds libseccomp for runc",
    },
    Package {
        name: "libseccomp-dev",
        reason: "is linked into runc",
    },
    Package {
        name: "iproute2",
        reason: "makes the link to the node",
    },
];

/// Why packages cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum PackagesError {
    /// There is no apt.
    #[error(
        "this is not Debian (apt-get does not run: {source}). Install what it calls {names} yourself"
    )]
    NoApt {
        /// The packages.
        names: String,
        /// Why apt does not run.
        source: std::io::Error,
    },
    /// apt failed.
    #[error(
        "apt-get {action} failed ({status}). If it names a package, is that in your sources (/etc/apt)?"
    )]
    Apt {
        /// What it should do.
        action: &'static str,
        /// Its exit status.
        status: std::process::ExitStatus,
    },
}

/// Those of [`NEEDED`] that are not installed.
pub fn missing() -> Vec<Package> {
    missing_of(&NEEDED, is_installed)
}

fn missing_of(needed: &[Package], installed: impl Fn(&str) -> bool) -> Vec<Package> {
    needed
        .iter()
        .copied()
        .filter(|p| !installed(p.name))
        .collect()
}

fn is_installed(name: &str) -> bool {
    let query = Command::new("dpkg-query")
        .args(["-W", "-f", "${db:Status-Status}", name])
        .stderr(Stdio::null())
        .output();
    query.is_ok_and(|output| output.stdout.starts_with(b"installed"))
}

/// sudo takes the environment away, so that what asks no questions is said on the command line.
const APT: [&str; 3] = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"];

/// Installs `packages` with apt, through sudo unless this is root. Fetches the lists first, since those of a fresh
/// machine are empty or name versions that are gone.
pub fn install(packages: &[Package]) -> Result<(), PackagesError> {
    let names: Vec<&str> = packages.iter().map(|p| p.name).collect();
    apt(&names, "update", &["update", "-q"])?;
    let install = ["install", "-q", "-y", "--no-install-recommends"];
    apt(&names, "install", &[&install[..], &names].concat())
}

fn apt(names: &[&str], action: &'static str, args: &[&str]) -> Result<(), PackagesError> {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("Through sudo: apt-get {action}.");
    }
    let mut command = as_root(&APT, root);
    let status = command.args(args).status();
    let status = status.map_err(|source| PackagesError::NoApt {
        names: names.join(", "),
        source,
    })?;
    if status.success() {
        Ok(())
    } else {
        Err(PackagesError::Apt { action, status })
    }
}

fn as_root(words: &[&str], root: bool) -> Command {
    let through: &[&str] = if root { &[] } else { &["sudo", "--"] };
    let mut words = through.iter().chain(words);
    let mut command = Command::new(words.next().unwrap_or(&"true"));
    command.args(words);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_is_installed() {
        let missing = missing_of(&NEEDED, |name| name != "pkg-config");
        assert_eq!(
            missing.iter().map(|p| p.name).collect::<Vec<_>>(),
            ["pkg-config"]
        );
        assert_eq!(missing_of(&NEEDED, |_| true), []);
    }

    #[test]
    fn an_ordinary_user_goes_through_sudo() {
        assert_eq!(as_root(&["apt-get"], true).get_program(), "apt-get");
        let sudo = as_root(&["env", "apt-get"], false);
        assert_eq!(sudo.get_program(), "sudo");
        assert_eq!(
            sudo.get_args().collect::<Vec<_>>(),
            ["--", "env", "apt-get"]
        );
    }
}
