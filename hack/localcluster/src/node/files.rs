//! Files that running programs watch.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use super::error::{NodeError, io_error};

/// Makes `path` hold `text`: whole or not at all, and untouched when it does already. kube-proxy ends when its
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
        file.persist(path).map_err(|e| e.error)?;
        Ok(())
    };
    write().map_err(io_error("write", path))
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
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 1);
    }
}
