//! Giving files to the owner of the state directory.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, lchown};
use std::path::Path;

use super::{RootError, io_error};

/// Gives `path`, and what is below it, to the owner of `state`.
pub(super) fn give(path: &Path, state: &Path) -> Result<(), RootError> {
    let owner = fs::metadata(state).map_err(io_error(state))?;
    give_to(path, owner.uid(), owner.gid())
}

fn give_to(path: &Path, uid: u32, gid: u32) -> Result<(), RootError> {
    lchown(path, Some(uid), Some(gid)).map_err(io_error(path))?;
    if fs::symlink_metadata(path).map_err(io_error(path))?.is_dir() {
        for entry in fs::read_dir(path).map_err(io_error(path))? {
            give_to(&entry.map_err(io_error(path))?.path(), uid, gid)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_below_changes_hands_and_links_are_not_followed() {
        let temp = tempfile::tempdir().unwrap();
        let (state, outside) = (temp.path().join("state"), temp.path().join("outside"));
        fs::create_dir_all(state.join("pki")).unwrap();
        fs::write(state.join("pki/ca.key"), "").unwrap();
        std::os::unix::fs::symlink(&outside, state.join("pki/link")).unwrap();
        // The link leads nowhere: following it would fail.
        give(&state.join("pki"), &state).unwrap();
    }
}
