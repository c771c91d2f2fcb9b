//! Children that never outlive this process, however it ends.
//!
//! A small watcher (`sh`) leads a process group that all children join, and reads a pipe whose only other end is here.
//! When this process ends, by a panic, an `exit` or SIGKILL, the kernel closes the pipe; the watcher then kills the
//! group and removes the directory. `PR_SET_PDEATHSIG` would not do: it fires when the *thread* that started the child
//! ends, and a test's thread ends before its binary does; besides, it needs `unsafe` code between fork and exec.
//! Children leave the group only by making one of their own, which none of our programs does.

use std::fs::File;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{self, Command, ExitStatus, Stdio};

use super::{CommandLine, ProcError, tail};

/// Waits for the end of the pipe, then has a process outside the group end the group (this shell included) and remove
/// the directory: a shell that kills its own group could not do anything afterwards. That process alone has the shell's
/// standard output then, whose end tells that all is done.
const WATCHER: &str =
    r#"cat >/dev/null; exec setsid sh -c 'kill -s KILL -- "-$1"; rm -rf -- "$2"' sh "$$" "$1""#;

/// A process group that ends with this process.
#[derive(Debug)]
pub struct Group {
    watcher: process::Child,
}

/// A child in a [`Group`]; dropping it kills it.
#[derive(Debug)]
pub struct Child {
    name: String,
    log: PathBuf,
    process: process::Child,
}

impl Group {
    /// Starts a group. `dir` is removed when it ends, with everything in it.
    pub fn start(dir: &Path) -> Result<Self, ProcError> {
        let watcher = Command::new("/bin/sh")
            .args(["-c", WATCHER, "sh"])
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|source| ProcError::Start {
                name: "watcher".into(),
                program: "/bin/sh".into(),
                source,
            })?;
        Ok(Self { watcher })
    }

    /// Starts `command` in the group, its output appended to `log`.
    pub fn spawn(&self, command: &CommandLine, log: &Path) -> Result<Child, ProcError> {
        let open = |source| ProcError::Io {
            doing: "cannot open",
            path: log.to_owned(),
            source,
        };
        let output = File::options()
            .create(true)
            .append(true)
            .open(log)
            .map_err(open)?;
        let errors = output.try_clone().map_err(open)?;
        let process = command
            .command()
            .stdout(output)
            .stderr(errors)
            .process_group(self.watcher.id() as i32)
            .spawn()
            .map_err(|source| ProcError::Start {
                name: command.name().to_owned(),
                program: command.program().to_owned(),
                source,
            })?;
        Ok(Child {
            name: command.name().to_owned(),
            log: log.to_owned(),
            process,
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        drop(self.watcher.stdin.take());
        // It ends within milliseconds, and what it left behind to clean up soon after; a failure to wait leaves only a
        // zombie until this process ends.
        let _ = self.watcher.wait();
        if let Some(mut until_clean) = self.watcher.stdout.take() {
            let _ = io::copy(&mut until_clean, &mut io::sink());
        }
    }
}

impl Child {
    /// Its pid.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// An error that quotes the log, if it has ended.
    pub fn check(&mut self) -> Result<(), ProcError> {
        match self.process.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(ProcError::Ended {
                name: self.name.clone(),
                status: describe(status),
                log: self.log.clone(),
                tail: tail(&self.log, 20),
            }),
            Err(source) => Err(ProcError::Io {
                doing: "cannot wait for",
                path: self.process.id().to_string().into(),
                source,
            }),
        }
    }

    /// Kills it and waits until it is gone.
    pub fn kill(&mut self) -> io::Result<()> {
        self.process.kill()?;
        self.process.wait().map(drop)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // One that has ended is fine; one that cannot be killed is the watcher's to end.
        let _ = self.kill();
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Identity;
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    fn sleeper() -> CommandLine {
        CommandLine::new("sleeper", "/bin/sleep").arg("600")
    }

    #[test]
    fn dropping_the_group_ends_its_children_and_removes_the_directory() {
        let dir = tempfile::tempdir().unwrap().keep();
        let group = Group::start(&dir).unwrap();
        let child = group.spawn(&sleeper(), &dir.join("log")).unwrap();
        let identity = Identity::of(child.pid() as i32).unwrap().unwrap();
        let watcher = Identity::of(group.watcher.id() as i32).unwrap().unwrap();
        // As if this process had ended: nobody drops the child.
        std::mem::forget(child);
        drop(group);
        assert!(identity.wait(LIMIT).unwrap());
        assert!(watcher.wait(LIMIT).unwrap());
        assert!(!dir.exists(), "dropping waits for the end");
    }

    #[test]
    fn a_child_that_ends_is_reported_with_its_log() {
        let temp = tempfile::tempdir().unwrap();
        let group = Group::start(&temp.path().join("scratch")).unwrap();
        let command =
            CommandLine::new("etcd", "/bin/sh").args(["-c", "echo no space left; exit 3"]);
        let mut child = group.spawn(&command, &temp.path().join("log")).unwrap();
        let pid = child.pid() as i32;
        if let Some(identity) = Identity::of(pid).unwrap() {
            assert!(identity.wait(LIMIT).unwrap());
        }
        let message = child.check().unwrap_err().to_string();
        assert!(message.contains("etcd ended (exit status 3)"), "{message}");
        assert!(message.contains("no space left"), "{message}");
    }
}
