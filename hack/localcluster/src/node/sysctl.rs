//! Starts the kubelet so that it cannot change the machine's settings: `localcluster node-kubelet`.
//!
//! At its start the kubelet writes settings that are global to the kernel. It gets a mount namespace in which private
//! files lie over them, which already hold what it wants. Containers do not see these: user namespaces need a `/proc`
//! that nothing lies over. Source: `setupKernelTunables` in `k8s.io/kubernetes/pkg/kubelet/cm`.

use std::convert::Infallible;
use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use rustix::mount::mount_bind;

use super::error::{NodeError, errno, io_error};
use super::tool::machine;
use crate::proc::CommandLine;

/// The subcommand's name.
pub const SUBCOMMAND: &str = "node-kubelet";
/// Where the private files are, inside the node.
const DIR: &str = "/run/localcluster/sysctl";
/// The settings, below `/proc/sys`, and the values that the kubelet writes.
const SETTINGS: [(&str, &str); 6] = [
    ("kernel/keys/root_maxbytes", "25000000"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
];

/// Runs `kubelet` by way of the subcommand of `localcluster`, in a mount namespace of its own. Its other mounts are
/// shared with the node's, so that containers see volumes.
pub fn wrapped(kubelet: CommandLine, localcluster: &Path) -> CommandLine {
    let wrapper = machine("unshare")
        .args(["--mount", "--propagation", "unchanged"])
        .arg(localcluster)
        .args([SUBCOMMAND, "--"]);
    kubelet.inside(&wrapper)
}

/// Lays the files over the settings and becomes the program.
///
/// # Errors
/// When a mount is refused or the program cannot be started.
pub fn exec(program: &OsString, args: &[OsString]) -> Result<Infallible, NodeError> {
    for (setting, value) in SETTINGS {
        let (private, real) = (
            Path::new(DIR).join(setting),
            Path::new("/proc/sys").join(setting),
        );
        let dir = private.parent().unwrap_or(Path::new(DIR));
        fs::create_dir_all(dir)
            .and_then(|()| fs::write(&private, value))
            .map_err(io_error("write", &private))?;
        mount_bind(&private, &real).map_err(errno("lay a file over", &real))?;
    }
    Err(io_error("start", program)(
        Command::new(program).args(args).exec(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kubelet_runs_in_a_mount_namespace_that_shares_its_other_mounts() {
        let line = wrapped(
            CommandLine::new("kubelet", "/b/kubelet").flag("v", "2"),
            Path::new("/b/localcluster"),
        );
        let want = [
            "--mount",
            "--propagation",
            "unchanged",
            "/b/localcluster",
            "node-kubelet",
            "--",
            "/b/kubelet",
            "--v=2",
        ];
        assert_eq!(
            (line.name(), line.words()),
            ("kubelet", want.map(str::to_owned).to_vec())
        );
    }

    #[test]
    fn every_setting_exists_on_this_kernel() {
        for (setting, _) in SETTINGS {
            assert!(Path::new("/proc/sys").join(setting).exists(), "{setting}");
        }
    }
}
