//! Starting, recording and ending programs.
//!
//! A [`CommandLine`] is a value that says what to run. [`Ledger`] runs it detached and remembers it on disk, for the
//! cluster that outlives `hack/up`. [`Group`] runs it as a child that never outlives this process, for tests.
//! Programs are named by pid *and* start time ([`Identity`]), so that a pid which the kernel gave to somebody else is
//! never signalled.

mod command;
mod group;
mod identity;
mod ledger;

pub use command::CommandLine;
pub use group::{Child, Group};
pub use identity::Identity;
pub use ledger::{Ledger, Record};

use std::io;
use std::path::PathBuf;

/// Why a program could not be started or ended.
#[derive(Debug, thiserror::Error)]
pub enum ProcError {
    /// The program did not start.
    #[error("cannot start {name} ({program}): {source}", program = program.display())]
    Start {
        /// What it is called here.
        name: String,
        /// The file that was run.
        program: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A file or a process of the kernel's table could not be used.
    #[error("{doing} {path}: {source}", path = path.display())]
    Io {
        /// What was being done, as a gerund or "cannot …".
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The program ended when it should not have.
    #[error("{name} ended ({status}); its log is {log}:\n{tail}", log = log.display())]
    Ended {
        /// What it is called here.
        name: String,
        /// Its exit status in words.
        status: String,
        /// Its log.
        log: PathBuf,
        /// The last lines of that.
        tail: String,
    },
    /// The program is still there after SIGKILL.
    #[error("{name} (pid {pid}) does not end, not even on SIGKILL: look at /proc/{pid}/stack")]
    Immortal {
        /// What it is called here.
        name: String,
        /// Its pid.
        pid: i32,
    },
}

/// The last `lines` lines of a log, for error messages; empty when it cannot be read.
pub fn tail(log: &std::path::Path, lines: usize) -> String {
    let text = std::fs::read(log)
        .map(|b| String::from_utf8_lossy(&b).into_owned())
        .unwrap_or_default();
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_of_a_log_is_its_last_lines() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "a\nb\nc\n").unwrap();
        assert_eq!(tail(file.path(), 2), "b\nc");
        assert_eq!(tail(file.path(), 9), "a\nb\nc");
        assert_eq!(tail(std::path::Path::new("/does/not/exist"), 9), "");
    }
}
