//! Locks between commands: a file that is locked for as long as a value, or the process that has it, lives (flock(2)).
//!
//! [`hold`] waits for one and says so. The file may be removed by whoever holds it, with the directory that it lies in:
//! what was waited for is then made anew.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use crate::progress::Progress;

/// How often a lock that somebody else has is asked for.
const EVERY: Duration = Duration::from_millis(50);

/// A lock that is held; dropping it gives it back, as does the end of the process.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Why a lock is not held.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// The file cannot be made or locked.
    #[error("cannot lock {path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Somebody else has it.
    #[error("{who} still holds {path} after {limit:?}: wait for it, or end it (`fuser {path}` names it)", path = path.display())]
    Busy {
        /// Who may hold it.
        who: &'static str,
        /// The file.
        path: PathBuf,
        /// How long it was waited for.
        limit: Duration,
    },
}

/// Holds the lock at `path`; `who` is who else may hold it, such as "another hack/up".
///
/// # Errors
/// When the file cannot be used, or somebody else holds it for longer than `limit`.
pub fn hold(path: &Path, who: &'static str, limit: Duration) -> Result<Lock, LockError> {
    let fault = |source| LockError::Io {
        path: path.to_owned(),
        source,
    };
    let deadline = Instant::now() + limit;
    let mut waiting: Option<Progress> = None;
    loop {
        if let Some(file) = try_hold(path).map_err(fault)? {
            if let Some(waiting) = waiting {
                waiting.done();
            }
            return Ok(Lock { _file: file });
        }
        if Instant::now() >= deadline {
            let path = path.to_owned();
            return Err(LockError::Busy { who, path, limit });
        }
        waiting
            .get_or_insert_with(|| Progress::begin(format!("waiting for {who}")))
            .detail(&format!("it holds {}", path.display()));
        std::thread::sleep(EVERY);
    }
}

/// None when somebody else has it, or has removed the file that this would lock.
fn try_hold(path: &Path) -> io::Result<Option<File>> {
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    let mut options = OpenOptions::new();
    options.create(true).write(true).truncate(false).mode(0o600);
    let file = match options.open(path) {
        // Its directory was removed in between.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
        Err(e) => return Err(e.into()),
    }
    let locked = file.metadata()?;
    let there =
        fs::metadata(path).is_ok_and(|m| (m.dev(), m.ino()) == (locked.dev(), locked.ino()));
    Ok(there.then_some(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    #[test]
    fn a_second_one_waits_for_the_first_and_no_longer_than_it_may() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("lock");
        let first = hold(&path, "another", LIMIT).unwrap();
        let error = hold(&path, "another hack/up", Duration::ZERO)
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("another hack/up still holds"), "{error}");
        std::thread::scope(|scope| {
            let second = scope.spawn(|| hold(&path, "another", LIMIT));
            assert!(!second.is_finished());
            drop(first);
            second.join().unwrap().unwrap();
        });
    }

    #[test]
    fn a_file_that_was_removed_while_it_was_held_locks_nobody() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("state/lock");
        let first = hold(&path, "another", LIMIT).unwrap();
        fs::remove_dir_all(temp.path().join("state")).unwrap();
        let second = hold(&path, "another", Duration::ZERO).unwrap();
        drop(first);
        assert!(hold(&path, "another", Duration::ZERO).is_err());
        drop(second);
    }
}
