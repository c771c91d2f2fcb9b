//! Programs that outlive the command which starts them, each remembered by a file.
//!
//! A program begins only when its record is on disk ([`spawn_held`]), so that a `hack/up` killed at any moment leaves no
//! program that the next one does not know of.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use super::{CommandLine, Identity, ProcError};

/// How long a program has to end after SIGKILL.
const KILL_LIMIT: Duration = Duration::from_secs(10);
/// Waits for a line, and becomes the program only if one comes: the end of whoever should send it ends this too.
const HELD: &str = r#"read -r _ && exec "$@" </dev/null"#;

/// The directory of records.
#[derive(Clone, Debug)]
pub struct Ledger {
    dir: PathBuf,
}

/// One started program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// What it is called.
    pub name: String,
    /// The process.
    pub process: Identity,
    /// Where it logs.
    pub log: PathBuf,
    /// Position in the order of starts; ends go the other way.
    order: u32,
}

impl Record {
    /// Whether it still runs.
    pub fn is_alive(&self) -> bool {
        self.process.is_alive()
    }
}

impl Ledger {
    /// The records in `dir`, which must exist.
    pub fn in_dir(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// Starts `command` detached from terminal and session, its output appended to `log`, and records it. One of the
    /// same name that runs already is returned as it is.
    pub fn start(&self, command: &CommandLine, log: &Path) -> Result<Record, ProcError> {
        if let Some(record) = self.get(command.name())?.filter(Record::is_alive) {
            return Ok(record);
        }
        let (mut child, process) = spawn_held(command, log)?;
        let order = self.all()?.iter().map(|r| r.order + 1).max().unwrap_or(0);
        let record = Record {
            name: command.name().to_owned(),
            process,
            log: log.to_owned(),
            order,
        };
        self.write(&record)?;
        release(&mut child).map_err(|_| ended_at_once(command, log))?;
        // Reaped by a thread, so that it does not stay as a zombie while this process lives.
        std::thread::spawn(move || child.wait());
        Ok(record)
    }

    /// The record called `name`, whether its program runs or not.
    pub fn get(&self, name: &str) -> Result<Option<Record>, ProcError> {
        Ok(self.all()?.into_iter().find(|r| r.name == name))
    }

    /// All records in the order of their starts. A file that does not hold one is an error, not skipped: a program
    /// might be behind it.
    pub fn all(&self) -> Result<Vec<Record>, ProcError> {
        let entries = match fs::read_dir(&self.dir) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(|e| fault("cannot list", &self.dir, e))?,
        };
        let mut records = Vec::new();
        for entry in entries {
            let path = entry
                .map_err(|e| fault("cannot list", &self.dir, e))?
                .path();
            if path.extension().is_some_and(|e| e == "json") {
                let text = fs::read(&path).map_err(|e| fault("cannot read", &path, e))?;
                records.push(
                    serde_json::from_slice::<Record>(&text)
                        .map_err(|e| fault("cannot parse", &path, e.into()))?,
                );
            }
        }
        records.sort_by_key(|r| r.order);
        Ok(records)
    }

    /// Ends one program: SIGTERM, `grace`, SIGKILL. Then its record goes.
    pub fn stop(&self, name: &str, grace: Duration) -> Result<(), ProcError> {
        match self.get(name)? {
            None => Ok(()),
            Some(record) => self.stop_record(&record, grace),
        }
    }

    /// Ends all programs, the last started first (kube-apiserver before its etcd: without etcd it hangs in its
    /// graceful end).
    pub fn stop_all(&self, grace: Duration) -> Result<(), ProcError> {
        self.all()?
            .iter()
            .rev()
            .try_for_each(|record| self.stop_record(record, grace))
    }

    fn stop_record(&self, record: &Record, grace: Duration) -> Result<(), ProcError> {
        let Record { name, process, .. } = record;
        let io = |e| {
            fault(
                "cannot signal",
                Path::new(&format!("/proc/{}", process.pid)),
                e,
            )
        };
        process.signal(Signal::TERM).map_err(io)?;
        if !process.wait(grace).map_err(io)? {
            process.signal(Signal::KILL).map_err(io)?;
            if !process.wait(KILL_LIMIT).map_err(io)? {
                return Err(ProcError::Immortal {
                    name: name.clone(),
                    pid: process.pid,
                });
            }
        }
        let path = self.path(name);
        fs::remove_file(&path).map_err(|e| fault("cannot remove", &path, e))
    }

    /// Writes a record whole or not at all, for everybody to read: root writes those that an ordinary user's hack/status
    /// looks at.
    fn write(&self, record: &Record) -> Result<(), ProcError> {
        let path = self.path(&record.name);
        let write = || -> io::Result<()> {
            let mut file = tempfile::NamedTempFile::new_in(&self.dir)?;
            serde_json::to_writer(&mut file, record)?;
            file.flush()?;
            let readable = fs::Permissions::from_mode(0o644);
            file.as_file().set_permissions(readable)?;
            file.persist(&path).map_err(|e| e.error)?;
            Ok(())
        };
        write().map_err(|e| fault("cannot write", &path, e))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.json"))
    }
}

/// Starts a program in a session of its own, held back until [`release`]. Both `setsid` (util-linux) and the shell exec
/// in place, so that pid and start time are the program's from the first moment on.
fn spawn_held(command: &CommandLine, log: &Path) -> Result<(Child, Identity), ProcError> {
    let output = OpenOptions::new()
        .create(true)
        .append(true)
        .open(log)
        .map_err(|e| fault("cannot open", log, e))?;
    let errors = output
        .try_clone()
        .map_err(|e| fault("cannot open", log, e))?;
    let start = |source| ProcError::Start {
        name: command.name().to_owned(),
        program: command.program().to_owned(),
        source,
    };
    // Asked here, because otherwise the shell starts well and the fault stands only in its log.
    fs::metadata(command.program()).map_err(start)?;
    let held = CommandLine::new("setsid", "setsid").args(["sh", "-c", HELD, command.name()]);
    let child = command
        .clone()
        .inside(&held)
        .command()
        .stdin(Stdio::piped())
        .stdout(Stdio::from(output))
        .stderr(Stdio::from(errors))
        .spawn()
        .map_err(start)?;
    let identity = Identity::of(child.id() as i32).map_err(start)?;
    let identity = identity.ok_or_else(|| ended_at_once(command, log))?;
    Ok((child, identity))
}

/// Lets a held program begin.
fn release(child: &mut Child) -> io::Result<()> {
    match child.stdin.take() {
        Some(mut stdin) => stdin.write_all(b"\n"),
        None => Ok(()),
    }
}

fn ended_at_once(command: &CommandLine, log: &Path) -> ProcError {
    ProcError::Ended {
        name: command.name().to_owned(),
        status: "at once".to_owned(),
        log: log.to_owned(),
        tail: super::tail(log, 10),
    }
}

fn fault(doing: &'static str, path: &Path, source: io::Error) -> ProcError {
    ProcError::Io {
        doing,
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(5);

    fn sleeper(name: &str) -> CommandLine {
        CommandLine::new(name, "/bin/sleep").arg("600")
    }

    #[test]
    fn a_program_is_recorded_started_once_and_ended() {
        let temp = tempfile::tempdir().unwrap();
        let ledger = Ledger::in_dir(temp.path());
        let log = temp.path().join("one.log");
        let one = ledger.start(&sleeper("one"), &log).unwrap();
        let again = ledger.start(&sleeper("one"), &log).unwrap();
        assert_eq!(one, again);
        let two = ledger.start(&sleeper("two"), &log).unwrap();
        assert_eq!(ledger.all().unwrap(), [one.clone(), two.clone()]);
        ledger.stop_all(GRACE).unwrap();
        assert!(!one.is_alive() && !two.is_alive());
        assert_eq!(ledger.all().unwrap(), []);
        ledger.stop("one", GRACE).unwrap();
    }

    #[test]
    fn a_program_that_ignores_sigterm_is_killed() {
        let temp = tempfile::tempdir().unwrap();
        let ledger = Ledger::in_dir(temp.path());
        let log = temp.path().join("deaf.log");
        let deaf = CommandLine::new("deaf", "/bin/sh")
            .args(["-c", "trap '' TERM; echo ready; while :; do sleep 1; done"]);
        let record = ledger.start(&deaf, &log).unwrap();
        while super::super::tail(&log, 1) != "ready" {
            std::thread::yield_now();
        }
        ledger.stop("deaf", Duration::from_millis(50)).unwrap();
        assert!(!record.is_alive());
    }

    #[test]
    fn a_program_whose_starter_ends_before_it_is_recorded_does_not_begin() {
        let temp = tempfile::tempdir().unwrap();
        let (log, mark) = (temp.path().join("log"), temp.path().join("mark"));
        let touch = CommandLine::new("touch", "/usr/bin/touch").arg(&mark);
        let (child, identity) = spawn_held(&touch, &log).unwrap();
        assert!(identity.is_alive());
        // As the kernel does when the starter ends.
        let status = { child }.wait().unwrap();
        assert!(!status.success() && !mark.exists());

        let (mut child, identity) = spawn_held(&touch, &log).unwrap();
        release(&mut child).unwrap();
        assert!(child.wait().unwrap().success() && mark.exists());
        assert!(!identity.is_alive());
    }

    #[test]
    fn records_are_for_everybody_to_read() {
        let temp = tempfile::tempdir().unwrap();
        let ledger = Ledger::in_dir(temp.path());
        ledger
            .start(&sleeper("one"), &temp.path().join("log"))
            .unwrap();
        let mode = fs::metadata(ledger.path("one"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o644);
        ledger.stop_all(GRACE).unwrap();
    }

    #[test]
    fn a_program_that_does_not_exist_is_named() {
        let temp = tempfile::tempdir().unwrap();
        let ledger = Ledger::in_dir(temp.path());
        let log = temp.path().join("no.log");
        let message = ledger
            .start(&CommandLine::new("no", "/does/not/exist"), &log)
            .unwrap_err()
            .to_string();
        assert!(message.contains("/does/not/exist"), "{message}");
    }
}
