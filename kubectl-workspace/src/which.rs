//! Programs on PATH. Entry point: [`find`].

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The program that a shell would run for this name.
pub fn find(name: &Path) -> Option<PathBuf> {
    find_in(name, &std::env::var_os("PATH")?)
}

fn find_in(name: &Path, path: &std::ffi::OsStr) -> Option<PathBuf> {
    if name.as_os_str().is_empty() {
        return None;
    }
    if name.components().count() > 1 {
        return is_program(name).then(|| name.to_owned());
    }
    std::env::split_paths(path)
        .map(|dir| dir.join(name))
        .find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    std::fs::metadata(file).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_an_executable_file_and_the_first_one_wins() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let path = std::env::join_paths(dirs.iter().map(tempfile::TempDir::path)).unwrap();
        let make = |dir: usize, mode: u32| {
            let file = dirs[dir].path().join("viewer");
            std::fs::write(&file, "").unwrap();
            std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
            file
        };
        assert_eq!(find_in(Path::new("viewer"), &path), None);
        make(0, 0o644);
        let second = make(1, 0o755);
        assert_eq!(find_in(Path::new("viewer"), &path), Some(second.clone()));
        let first = make(0, 0o755);
        assert_eq!(find_in(Path::new("viewer"), &path), Some(first));
        assert_eq!(find_in(&second, &path), Some(second.clone()));
        assert_eq!(find_in(Path::new(""), &path), None);
    }
}
