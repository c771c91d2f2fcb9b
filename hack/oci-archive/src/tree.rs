//! Reads a folder of this machine into a layer's entries.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use crate::{
    Error,
    error::file,
    layer::{Meta, Node},
};

/// Whose the files of a folder are inside the image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Owners {
    /// Root's, whoever they belong to here. Right for what a user has built.
    #[default]
    Root,
    /// As they are here. Right for a root file system made as root.
    Kept,
}

/// Everything below `root`, parents before children, with paths relative to it.
pub(crate) fn walk(root: &Path, owners: Owners) -> Result<Vec<(PathBuf, Node, Meta)>, Error> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(file("list", &folder))? {
            let path = entry.map_err(file("list", &folder))?.path();
            let meta = fs::symlink_metadata(&path).map_err(file("look at", &path))?;
            let node = node(&path, meta.file_type())?;
            if node == Node::Dir {
                folders.push(path.clone());
            }
            let inside = path
                .strip_prefix(root)
                .map_err(|_| Error::EntryPath(path.clone()))?;
            found.push((inside.to_owned(), node, kept(&meta, owners)));
        }
    }
    found.sort_by(|(a, ..), (b, ..)| a.cmp(b));
    Ok(found)
}

fn node(path: &Path, kind: fs::FileType) -> Result<Node, Error> {
    if kind.is_dir() {
        Ok(Node::Dir)
    } else if kind.is_file() {
        Ok(Node::File(path.to_owned()))
    } else if kind.is_symlink() {
        fs::read_link(path)
            .map(Node::Symlink)
            .map_err(file("read symbolic link", path))
    } else {
        Err(Error::Kind(path.to_owned()))
    }
}

fn kept(meta: &fs::Metadata, owners: Owners) -> Meta {
    let (uid, gid) = match owners {
        Owners::Root => (0, 0),
        Owners::Kept => (meta.uid(), meta.gid()),
    };
    Meta {
        mode: meta.mode() & 0o7777,
        uid,
        gid,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::{fs::PermissionsExt as _, net::UnixListener};

    use super::*;

    #[test]
    fn folders_files_and_links_are_found_in_order() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("b")).unwrap();
        fs::write(root.path().join("b/x"), "").unwrap();
        fs::set_permissions(root.path().join("b/x"), fs::Permissions::from_mode(0o4711)).unwrap();
        std::os::unix::fs::symlink("/nowhere", root.path().join("a")).unwrap();
        let found = walk(root.path(), Owners::Root).unwrap();
        let paths: Vec<_> = found
            .iter()
            .map(|(path, ..)| path.to_str().unwrap())
            .collect();
        assert_eq!(paths, ["a", "b", "b/x"]);
        assert_eq!(found[0].1, Node::Symlink("/nowhere".into()));
        assert_eq!(
            found[2].2,
            Meta {
                mode: 0o4711,
                uid: 0,
                gid: 0
            }
        );
        let owner = fs::metadata(root.path()).unwrap().uid();
        assert_eq!(walk(root.path(), Owners::Kept).unwrap()[2].2.uid, owner);
    }

    #[test]
    fn a_socket_is_refused_by_name() {
        let root = tempfile::tempdir().unwrap();
        let _socket = UnixListener::bind(root.path().join("s")).unwrap();
        let error = walk(root.path(), Owners::Root).unwrap_err().to_string();
        assert!(error.contains("/s: neither a file"), "{error}");
    }
}
