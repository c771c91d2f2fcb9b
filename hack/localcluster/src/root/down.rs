//! Ending the cluster and removing what it kept.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::{RootError, io_error, ownership};
use crate::node;
use crate::proc::Ledger;
use crate::state::{LOCKS, State};

/// How long a program has to end by itself.
const GRACE: Duration = Duration::from_secs(5);

/// What stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Nothing.
    Nothing,
    /// The logs.
    Logs,
}

/// Ends everything and removes the state. Safe to run again, and when nothing runs. Locks stay for whoever waits for
/// them, and logs that are kept are given to the user.
pub fn down(state: &State, keep: Keep) -> Result<(), RootError> {
    let _lock = state.root_lock()?;
    node::down(state)?;
    Ledger::in_dir(state.run()).stop_all(GRACE)?;
    let mounts =
        fs::read_to_string("/proc/self/mountinfo").map_err(io_error("/proc/self/mountinfo"))?;
    if let Some(mount) = mount_below(&mounts, state.root()) {
        return Err(RootError::Mounted(mount.to_owned()));
    }
    let entries = match fs::read_dir(state.root()) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(io_error(state.root()))?,
    };
    for entry in entries {
        let path = entry.map_err(io_error(state.root()))?.path();
        if keep == Keep::Logs && path == state.logs() {
            ownership::give(&path, state.root())?;
        } else if !LOCKS.iter().any(|lock| path.ends_with(lock)) {
            remove(&path)?;
        }
    }
    Ok(())
}

fn remove(path: &Path) -> Result<(), RootError> {
    let is_dir = fs::symlink_metadata(path).map_err(io_error(path))?.is_dir();
    let removed = if is_dir {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    };
    removed.map_err(io_error(path))
}

/// The first mount point below `dir` in a mountinfo (proc(5): the fifth field, blanks as `\040`). Removing files while
/// something is mounted there would remove somebody else's.
fn mount_below<'a>(mountinfo: &'a str, dir: &Path) -> Option<&'a str> {
    let dir = dir.to_string_lossy().replace(' ', "\\040");
    let points = mountinfo.lines().filter_map(|line| line.split(' ').nth(4));
    points
        .into_iter()
        .find(|point| Path::new(point).starts_with(&dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_below_the_directory_is_found() {
        let info = "22 1 8:1 / / rw - ext4 /dev/a rw\n30 22 0:5 / /home/a\\040b/.state/node/x rw - tmpfs t rw\n";
        let below = |dir: &str| mount_below(info, Path::new(dir));
        assert_eq!(
            below("/home/a b/.state"),
            Some("/home/a\\040b/.state/node/x")
        );
        assert_eq!(below("/home/a b/.stat"), None);
        assert_eq!(below("/srv"), None);
    }

    #[test]
    fn logs_stay_when_asked_for_and_a_second_time_changes_nothing() {
        let temp = tempfile::tempdir().unwrap();
        let state = State::at(temp.path().join("state"));
        down(&state, Keep::Nothing).unwrap();
        for (keep, want) in [(Keep::Logs, true), (Keep::Nothing, false)] {
            state.create().unwrap();
            fs::write(state.kubeconfig(), "").unwrap();
            down(&state, keep).unwrap();
            assert!(!state.kubeconfig().exists() && !state.pki().exists());
            assert_eq!(state.logs().exists(), want, "{keep:?}");
        }
        down(&state, Keep::Nothing).unwrap();
    }
}
