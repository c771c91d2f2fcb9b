//! Files that running programs watch.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::error::{NodeError, io_error};

/// Makes `path` hold `text`, for everybody to read: whole or not at all, and untouched when it does already. kube-proxy ends when its
/// configuration is written again, and containerd reads a network list that is half written.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn put(path: &Path, text: impl AsRef<[u8]>) -> Result<(), NodeError> {
    let text = text.as_ref();
    if fs::read(path).is_ok_and(|now| now == text) {
        return Ok(());
    }
    let write = || -> io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(path.parent().unwrap_or(Path::new("/")))?;
        file.write_all(text)?;
        let readable = fs::Permissions::from_mode(0o644);
        file.as_file().set_permissions(readable)?;
        file.persist(path).map_err(|e| e.error)?;
        Ok(())
    };
    write().map_err(io_error("write", path))
}

/// Removes a directory of ours, unless something is mounted below it: that would be somebody else's files.
///
/// # Errors
/// When a mount is in the way, or a file cannot be removed.
pub(crate) fn remove_dir(dir: &Path) -> Result<(), NodeError> {
    let table = "/proc/self/mountinfo";
    let mountinfo = fs::read_to_string(table).map_err(io_error("read", table))?;
    if let Some(point) = mounted_below(&mountinfo, dir) {
        return Err(io_error("remove", point)(io::Error::other(
            "it is a mount point; unmount it and try again",
        )));
    }
    match fs::remove_dir_all(dir) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(io_error("remove", dir)(e)),
        _ => Ok(()),
    }
}

/// The first mount point at or below `dir` (proc(5): the fifth field, with blanks as `\040`).
fn mounted_below<'a>(mountinfo: &'a str, dir: &Path) -> Option<&'a str> {
    let dir = dir.to_string_lossy().replace(' ', "\\040");
    mountinfo
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .find(|point| Path::new(point).starts_with(&dir))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn a_file_changes_only_when_its_text_does() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("f");
        let inode = || fs::metadata(&path).unwrap().ino();
        put(&path, "one").unwrap();
        let first = inode();
        put(&path, "one").unwrap();
        assert_eq!(inode(), first);
        put(&path, "two").unwrap();
        assert_ne!(inode(), first);
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o644, "an ordinary user reads it too");
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_mount_point_below_is_in_the_way() {
        let table =
            "22 1 8:1 / / rw - ext4 /dev/a rw\n30 22 0:5 / /a\\040b/node/x rw - tmpfs t rw\n";
        assert_eq!(
            mounted_below(table, Path::new("/a b/node")),
            Some("/a\\040b/node/x")
        );
        assert_eq!(mounted_below(table, Path::new("/a b/nod")), None);
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir_all(temp.path().join("node/x")).unwrap();
        remove_dir(&temp.path().join("node")).unwrap();
        remove_dir(&temp.path().join("node")).unwrap();
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0);
    }
}
