//! The node's pid 1: `localcluster node-init`, run by `unshare` in fresh namespaces.
//!
//! It covers the machine's directories that programs of a node write to, and then does what a pid 1 must: it reaps.
//! Every other program of the node enters its namespaces. When it ends, the kernel ends all of them, and with them go
//! their mounts, links, addresses, routes and nftables.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind_recursive, mount_change};
use rustix::process::{WaitOptions, wait};
use tokio::signal::unix::{SignalKind, signal};

use super::error::{NodeError, errno, io_error};

/// The subcommand's name; [`super::namespaces`] finds the process by it.
pub const SUBCOMMAND: &str = "node-init";
/// Says, inside, that everything is set up.
pub const READY: &str = "/run/localcluster/ready";
/// Directories of the machine that the node has for itself, in memory.
const COVERED: [&str; 5] = ["/opt", "/run", "/tmp", "/var/lib", "/var/log"];
/// Per-namespace settings of the kernel. `bridge` is there only with br_netfilter loaded.
const SYSCTLS: [(&str, &str); 4] = [
    ("/proc/sys/net/ipv4/ip_forward", "1"),
    ("/proc/sys/net/ipv6/conf/all/forwarding", "1"),
    ("/proc/sys/net/bridge/bridge-nf-call-iptables", "1"),
    ("/proc/sys/net/bridge/bridge-nf-call-ip6tables", "1"),
];

/// The arguments of `localcluster node-init`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct InitArgs {
    /// The state directory; names the node for those who look for it
    #[arg(long)]
    pub state: PathBuf,
    /// The node's host name
    #[arg(long)]
    pub hostname: String,
    /// A directory that stays visible at its place, wherever it is; repeat
    #[arg(long)]
    pub keep: Vec<PathBuf>,
    /// FROM=TO: a directory that the node sees at another place; repeat
    #[arg(long, value_parser = parse_bind)]
    pub bind: Vec<(PathBuf, PathBuf)>,
}

fn parse_bind(text: &str) -> Result<(PathBuf, PathBuf), String> {
    let (from, to) = text.rsplit_once('=').ok_or("give FROM=TO")?;
    Ok((from.into(), to.into()))
}

/// Sets the namespaces up and reaps until it is told to end.
///
/// # Errors
/// When the kernel refuses one of the mounts or settings.
pub async fn run(args: InitArgs) -> Result<(), NodeError> {
    let InitArgs {
        state: _,
        hostname,
        keep,
        bind,
    } = args;
    if std::process::id() != 1 {
        let source =
            std::io::Error::other("this is not pid 1 of namespaces of its own; hack/up starts it");
        return Err(io_error("set up", "/")(source));
    }
    rustix::system::sethostname(hostname.as_bytes())
        .map_err(errno("set the host name to", &hostname))?;
    mounts(keep, bind)?;
    for (path, value) in SYSCTLS {
        if Path::new(path).exists() {
            fs::write(path, value).map_err(io_error("write", path))?;
        }
    }
    let ready = Path::new(READY);
    let dir = ready.parent().unwrap_or(Path::new("/run"));
    fs::create_dir_all(dir)
        .and_then(|()| fs::write(ready, ""))
        .map_err(io_error("create", ready))?;
    reap().await
}

/// Covers directories, and puts back or elsewhere what must stay visible. Everything is opened before anything is
/// covered. Mounts are then shared, so that containers may have mount propagation; but not `/proc`, over which the
/// kubelet's private settings are laid (see [`super::sysctl`]).
fn mounts(keep: Vec<PathBuf>, bind: Vec<(PathBuf, PathBuf)>) -> Result<(), NodeError> {
    let covered = |path: &Path| COVERED.iter().any(|dir| path.starts_with(dir));
    let kept = keep
        .into_iter()
        .filter(|path| covered(path))
        .map(|path| (path.clone(), path));
    let opened = kept
        .chain(bind)
        .map(|(from, to)| Ok((open(&from)?, to)))
        .collect::<Result<Vec<_>, NodeError>>()?;
    for dir in COVERED {
        let mode = if dir == "/tmp" {
            c"mode=1777"
        } else {
            c"mode=755"
        };
        mount("tmpfs", dir, "tmpfs", MountFlags::empty(), mode)
            .map_err(errno("mount a tmpfs on", dir))?;
    }
    for (from, to) in opened {
        fs::create_dir_all(&to).map_err(io_error("create", &to))?;
        let from = format!("/proc/self/fd/{}", from.as_raw_fd());
        mount_bind_recursive(from, &to).map_err(errno("bind a directory to", &to))?;
    }
    let change =
        |path, flags| mount_change(path, flags).map_err(errno("change the propagation of", path));
    change(
        "/",
        MountPropagationFlags::SHARED | MountPropagationFlags::REC,
    )?;
    change("/proc", MountPropagationFlags::PRIVATE)
}

fn open(path: &Path) -> Result<File, NodeError> {
    let flags = (OFlags::PATH | OFlags::DIRECTORY).bits().cast_signed();
    OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)
        .map_err(io_error("open", path))
}

/// Waits for children until SIGTERM.
async fn reap() -> Result<(), NodeError> {
    let listen = |kind| signal(kind).map_err(io_error("listen for signals in", "/proc/self"));
    let (mut child, mut term) = (
        listen(SignalKind::child())?,
        listen(SignalKind::terminate())?,
    );
    loop {
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
        tokio::select! {
            _ = child.recv() => {}
            _ = term.recv() => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binds_are_split_at_the_last_sign() {
        assert_eq!(parse_bind("/a=b=/c"), Ok(("/a=b".into(), "/c".into())));
        assert!(parse_bind("/a").is_err());
    }

    #[tokio::test]
    async fn it_refuses_to_cover_the_machine_itself() {
        let args = InitArgs {
            state: "/s".into(),
            hostname: "node".into(),
            keep: vec![],
            bind: vec![],
        };
        assert!(
            run(args)
                .await
                .unwrap_err()
                .to_string()
                .contains("not pid 1")
        );
    }
}
