//! The node's namespaces: made by `unshare`, found by the command line of their pid 1, entered by `nsenter`.
//!
//! They are found in the process table and not by a file, so that a killed `hack/up` and a reboot leave nothing that
//! could mislead the next one.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;

use super::error::{NodeError, io_error};
use super::init::{READY, SUBCOMMAND};
use super::tool::machine;
use super::wait::wait_for;
use crate::proc::{CommandLine, Identity, Record};

/// How long setting up may take; it is a few mounts.
const READY_LIMIT: Duration = Duration::from_secs(20);
/// How long everything inside may take to end after SIGKILL.
const KILL_LIMIT: Duration = Duration::from_secs(30);
/// Says, inside, that the link is complete.
const LINKED: &str = "/run/localcluster/linked";

/// Running namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespaces {
    init: Identity,
}

/// What pid 1 is started with.
#[derive(Clone, Debug)]
pub struct Start<'a> {
    /// The `localcluster` program.
    pub localcluster: &'a Path,
    /// The state directory.
    pub state: &'a Path,
    /// The node's name.
    pub hostname: &'a str,
    /// Directories that stay visible.
    pub keep: Vec<PathBuf>,
    /// Directories that appear elsewhere.
    pub bind: Vec<(PathBuf, &'static str)>,
}

impl Start<'_> {
    /// The command: all namespaces but those of users, time and control groups.
    pub fn command(&self) -> CommandLine {
        let Self {
            localcluster,
            state,
            hostname,
            keep,
            bind,
        } = self;
        let mut line = CommandLine::new("node", machine("unshare").program())
            .args([
                "--net",
                "--mount",
                "--pid",
                "--uts",
                "--ipc",
                "--fork",
                "--kill-child=KILL",
            ])
            .args(["--mount-proc", "--propagation", "private", "--"])
            .arg(*localcluster)
            .arg(SUBCOMMAND)
            .flag("state", state)
            .flag("hostname", hostname);
        for path in keep {
            line = line.flag("keep", path);
        }
        for (from, to) in bind {
            let mut value = from.clone().into_os_string();
            value.push(format!("={to}"));
            line = line.flag("bind", value);
        }
        line
    }
}

impl Namespaces {
    /// The namespaces of the cluster with this state directory, ready or not.
    ///
    /// # Errors
    /// When the process table cannot be read.
    pub fn find(state: &Path) -> Result<Option<Self>, NodeError> {
        Self::first(|state_of_process| state_of_process == state)
    }

    /// Whether the process table shows them, as far as an ordinary user sees: what looks so may be somebody else's.
    pub fn seem_to_run(state: &Path) -> bool {
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let lines = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        lines
            .filter_map(|line| state_in(&line))
            .any(|found| found == state)
    }

    /// Whether any node runs on this machine, whatever its state directory.
    ///
    /// # Errors
    /// When the process table cannot be read.
    pub fn any() -> Result<bool, NodeError> {
        Ok(Self::first(|_| true)?.is_some())
    }

    fn first(wanted: impl Fn(&Path) -> bool) -> Result<Option<Self>, NodeError> {
        let proc = Path::new("/proc");
        for entry in fs::read_dir(proc).map_err(io_error("list", proc))? {
            let entry = entry.map_err(io_error("list", proc))?;
            let pid = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse::<i32>().ok());
            if let Some(pid) = pid
                && init_of(&entry.path()).is_some_and(|state| wanted(&state))
                && let Some(init) = Identity::of(pid).map_err(io_error("look at", entry.path()))?
            {
                return Ok(Some(Self { init }));
            }
        }
        Ok(None)
    }

    /// Waits until pid 1, started as `program`, has set everything up.
    ///
    /// # Errors
    /// When it ends or takes too long.
    pub fn wait(state: &Path, program: &Record) -> Result<Self, NodeError> {
        let ready = || Ok(Self::find(state)?.filter(|found| found.path(READY).exists()));
        wait_for(
            program,
            "the node's namespaces are not set up",
            READY_LIMIT,
            ready,
        )
    }

    /// A path of the node as this process sees it.
    pub fn path(&self, inside: impl AsRef<Path>) -> PathBuf {
        let inside = inside.as_ref();
        let relative = inside.strip_prefix("/").unwrap_or(inside);
        PathBuf::from(format!("/proc/{}/root", self.init.pid)).join(relative)
    }

    /// Whether [`Namespaces::set_linked`] was called: the link is complete.
    pub fn is_linked(&self) -> bool {
        self.path(LINKED).exists()
    }

    /// Remembers that the link is complete, inside the node, so that it is forgotten with it.
    ///
    /// # Errors
    /// When the mark cannot be made.
    pub fn set_linked(&self) -> Result<(), NodeError> {
        let path = self.path(LINKED);
        fs::write(&path, "").map_err(io_error("create", path))
    }

    /// The pid of pid 1 here.
    pub fn pid(&self) -> i32 {
        self.init.pid
    }

    /// What a command line is put [`CommandLine::inside`] of to run in the node. What it starts ends with it: without
    /// `setpriv`, ending `nsenter` would leave the program behind.
    pub fn enter(&self) -> CommandLine {
        machine("nsenter")
            .arg(format!("--target={}", self.init.pid))
            .args(["--net", "--mount", "--pid", "--uts", "--ipc", "--"])
            .arg(machine("setpriv").program())
            .args(["--pdeathsig", "KILL", "--"])
    }

    /// Ends everything inside.
    ///
    /// # Errors
    /// When it does not end.
    pub fn kill(&self, log: &Path) -> Result<(), NodeError> {
        let process = format!("/proc/{}", self.init.pid);
        self.init
            .signal(Signal::KILL)
            .map_err(io_error("end", &process))?;
        if self
            .init
            .wait(KILL_LIMIT)
            .map_err(io_error("wait for", &process))?
        {
            return Ok(());
        }
        let what = format!("the node's pid 1 ({}) has not ended", self.init.pid);
        Err(NodeError::Late {
            what,
            limit: KILL_LIMIT,
            log: log.to_owned(),
        })
    }
}

/// The state directory of the cluster whose pid 1 a process is: root's, in our user namespace (somebody else's process
/// could look the same and would be entered as root), pid 1 of its own pid namespace, with our command line.
fn init_of(proc: &Path) -> Option<PathBuf> {
    let user = |proc: &Path| fs::read_link(proc.join("ns/user")).ok();
    let state = state_in(&fs::read(proc.join("cmdline")).ok()?)?;
    let root = fs::metadata(proc).ok()?.uid() == 0;
    let namespace = user(proc)? == user(Path::new("/proc/self"))?;
    let status = fs::read_to_string(proc.join("status")).ok()?;
    (root && namespace && is_pid_one_inside(&status)).then_some(state)
}

/// The state directory in the words of a process's command line, if they are those of [`Start::command`] without
/// `unshare`'s.
fn state_in(cmdline: &[u8]) -> Option<PathBuf> {
    let mut words = cmdline.split(|byte| *byte == 0).skip(1);
    if words.next() != Some(SUBCOMMAND.as_bytes()) {
        return None;
    }
    let state = words.find_map(|word| word.strip_prefix(b"--state="))?;
    Some(OsStr::from_bytes(state).into())
}

/// `NSpid:` in `/proc/PID/status` lists the pid in each namespace, ours first; nested means more than one.
fn is_pid_one_inside(status: &str) -> bool {
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let pids: Vec<&str> = line.unwrap_or("").split_ascii_whitespace().collect();
    pids.len() > 1 && pids.last() == Some(&"1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pid_one_names_its_state_directory() {
        let line = |words: &[&str]| words.join("\0").into_bytes();
        let init = [
            "/b/localcluster",
            "node-init",
            "--state=/s/.state",
            "--hostname=node",
        ];
        let unshare = [&["unshare", "--net", "--"], &init[..]].concat();
        for (words, want) in [
            (&init[..], Some("/s/.state")),
            (&unshare, None),
            (&["grep", "--state=/s/.state"], None),
            (&[], None),
        ] {
            assert_eq!(
                state_in(&line(words)).as_deref(),
                want.map(Path::new),
                "{words:?}"
            );
        }
        for (status, want) in [
            ("NSpid:\t77\t1\n", true),
            ("NSpid:\t1\n", false),
            ("NSpid:\t77\t5\n", false),
            ("Name:\tx\n", false),
        ] {
            assert_eq!(is_pid_one_inside(status), want, "{status}");
        }
    }

    #[test]
    fn a_node_that_does_not_run_is_not_found() {
        assert_eq!(
            Namespaces::find(Path::new("/does/not/exist")).unwrap(),
            None
        );
    }
}
