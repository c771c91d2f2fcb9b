//! One layer of an image: what lies where, or a tar that exists already.

use std::{
    collections::BTreeMap,
    io::Write,
    path::{Component, Path, PathBuf},
};

use tar::Builder;

use crate::{Error, Owners, error::file, tree, write};

/// Permission bits and owner of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Permission bits, set-uid and sticky included.
    pub mode: u32,
    /// The owner's number.
    pub uid: u32,
    /// The group's number.
    pub gid: u32,
}

impl Meta {
    /// A program or folder of root's: 0755.
    pub const EXECUTABLE: Self = Self {
        mode: 0o755,
        uid: 0,
        gid: 0,
    };
    /// A file of root's that all may read: 0644.
    pub const READABLE: Self = Self {
        mode: 0o644,
        uid: 0,
        gid: 0,
    };
}

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    Dir,
    Symlink(PathBuf),
    Bytes(Vec<u8>),
    File(PathBuf),
}

impl Node {
    fn kind(&self) -> &'static str {
        match self {
            Self::Dir => "a folder",
            Self::Symlink(_) => "a symbolic link",
            Self::Bytes(_) | Self::File(_) => "a file",
        }
    }
}

/// A layer: a set of entries, or a tar that is taken as it is.
#[derive(Clone, Debug)]
pub struct Layer(Source);

#[derive(Clone, Debug)]
enum Source {
    Entries(BTreeMap<PathBuf, (Node, Meta)>),
    Tar(PathBuf),
}

impl Default for Layer {
    fn default() -> Self {
        Self::new()
    }
}

impl Layer {
    /// A layer without entries.
    pub fn new() -> Self {
        Self(Source::Entries(BTreeMap::new()))
    }

    /// A layer that is this tar, plain or gzipped, byte for byte: its order and times are the caller's business.
    pub fn tar(path: impl Into<PathBuf>) -> Self {
        Self(Source::Tar(path.into()))
    }

    /// A layer with everything below a folder. Hard links become files of their own; extended attributes stay behind.
    ///
    /// # Errors
    /// When the folder cannot be read, or holds devices, pipes or sockets.
    pub fn tree(root: &Path, owners: Owners) -> Result<Self, Error> {
        let mut layer = Self::new();
        for (path, node, meta) in tree::walk(root, owners)? {
            layer.add(&path, node, meta)?;
        }
        Ok(layer)
    }

    /// Puts a file of this machine into the image. It is read when the image is written.
    ///
    /// # Errors
    /// When the place is not inside the image or taken.
    pub fn file(
        &mut self,
        at: impl AsRef<Path>,
        from: impl Into<PathBuf>,
        meta: Meta,
    ) -> Result<(), Error> {
        self.add(at.as_ref(), Node::File(from.into()), meta)
    }

    /// Puts a file with this content into the image.
    ///
    /// # Errors
    /// When the place is not inside the image or taken.
    pub fn bytes(
        &mut self,
        at: impl AsRef<Path>,
        content: impl Into<Vec<u8>>,
        meta: Meta,
    ) -> Result<(), Error> {
        self.add(at.as_ref(), Node::Bytes(content.into()), meta)
    }

    /// Makes a folder; a folder that is there already takes the new mode and owner.
    ///
    /// # Errors
    /// When the place is not inside the image or taken by something else.
    pub fn dir(&mut self, at: impl AsRef<Path>, meta: Meta) -> Result<(), Error> {
        self.add(at.as_ref(), Node::Dir, meta)
    }

    /// Makes a symbolic link; the target is written as it is given.
    ///
    /// # Errors
    /// When the place is not inside the image or taken.
    pub fn symlink(
        &mut self,
        at: impl AsRef<Path>,
        target: impl Into<PathBuf>,
    ) -> Result<(), Error> {
        self.add(
            at.as_ref(),
            Node::Symlink(target.into()),
            Meta {
                mode: 0o777,
                ..Meta::EXECUTABLE
            },
        )
    }

    fn add(&mut self, at: &Path, node: Node, meta: Meta) -> Result<(), Error> {
        let path = inside(at)?;
        let Source::Entries(entries) = &mut self.0 else {
            return Err(Error::Conflict {
                path,
                first: "part of a ready tar",
                second: node.kind(),
            });
        };
        for parent in path
            .ancestors()
            .skip(1)
            .filter(|parent| !parent.as_os_str().is_empty())
        {
            let (parent_node, _) = entries
                .entry(parent.to_owned())
                .or_insert((Node::Dir, Meta::EXECUTABLE));
            if *parent_node != Node::Dir {
                let first = parent_node.kind();
                return Err(Error::Conflict {
                    path: parent.to_owned(),
                    first,
                    second: "a folder",
                });
            }
        }
        match entries.get(&path) {
            Some((old, _)) if !(*old == Node::Dir && node == Node::Dir) => Err(Error::Conflict {
                first: old.kind(),
                second: node.kind(),
                path,
            }),
            _ => {
                entries.insert(path, (node, meta));
                Ok(())
            }
        }
    }

    /// Writes the layer as an uncompressed tar; every entry has the time `mtime`.
    pub(crate) fn write(&self, mtime: u64, out: &mut impl Write) -> Result<(), Error> {
        match &self.0 {
            Source::Tar(path) => write::copy(path, out),
            Source::Entries(entries) => {
                let mut builder = Builder::new(out);
                for (path, (node, meta)) in entries {
                    write::append(&mut builder, path, node, *meta, mtime)?;
                }
                builder.finish().map_err(file("write", "the layer's tar"))
            }
        }
    }
}

/// The path without a leading slash or dot.
fn inside(at: &Path) -> Result<PathBuf, Error> {
    let mut path = PathBuf::new();
    for component in at.components() {
        match component {
            Component::RootDir | Component::CurDir => {}
            Component::Normal(name) => path.push(name),
            Component::ParentDir | Component::Prefix(_) => {
                return Err(Error::EntryPath(at.to_owned()));
            }
        }
    }
    if path.as_os_str().is_empty() {
        Err(Error::EntryPath(at.to_owned()))
    } else {
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    /// Path, kind, mode, owner, link target and content of every entry.
    fn entries(layer: &Layer) -> Vec<String> {
        let mut bytes = Vec::new();
        layer.write(7, &mut bytes).unwrap();
        let mut archive = tar::Archive::new(bytes.as_slice());
        let describe = |mut entry: tar::Entry<'_, &[u8]>| {
            let mut content = String::new();
            entry.read_to_string(&mut content).unwrap();
            let (path, header) = (
                entry.path().unwrap().display().to_string(),
                entry.header().clone(),
            );
            let link = entry
                .link_name()
                .unwrap()
                .map(|l| format!(" -> {}", l.display()))
                .unwrap_or_default();
            assert_eq!(header.mtime().unwrap(), 7);
            let owner = (header.uid().unwrap(), header.gid().unwrap());
            format!(
                "{path}{link} {:o} {owner:?} {content}",
                header.mode().unwrap()
            )
        };
        archive
            .entries()
            .unwrap()
            .map(|entry| describe(entry.unwrap()))
            .collect()
    }

    #[test]
    fn entries_come_out_sorted_with_their_parents() {
        let mut layer = Layer::new();
        layer.symlink("/usr/bin/sh", "./busybox").unwrap();
        layer
            .bytes(
                "usr/bin/busybox",
                "x",
                Meta {
                    mode: 0o4755,
                    uid: 1,
                    gid: 2,
                },
            )
            .unwrap();
        layer
            .dir(
                "./tmp",
                Meta {
                    mode: 0o1777,
                    uid: 0,
                    gid: 0,
                },
            )
            .unwrap();
        assert_eq!(
            entries(&layer),
            [
                "tmp 1777 (0, 0) ",
                "usr 755 (0, 0) ",
                "usr/bin 755 (0, 0) ",
                "usr/bin/busybox 4755 (1, 2) x",
                "usr/bin/sh -> ./busybox 777 (0, 0) "
            ]
        );
    }

    #[test]
    fn long_names_and_targets_survive() {
        let mut layer = Layer::new();
        let long = "d/".repeat(80) + "f";
        layer.bytes(&long, "content", Meta::READABLE).unwrap();
        layer.symlink("l", format!("/{long}")).unwrap();
        let all = entries(&layer);
        assert!(
            all.contains(&format!("{long} 644 (0, 0) content")),
            "{all:?}"
        );
        assert!(
            all.contains(&format!("l -> /{long} 777 (0, 0) ")),
            "{all:?}"
        );
    }

    #[test]
    fn places_outside_the_image_and_places_taken_are_refused() {
        let mut layer = Layer::new();
        for bad in ["../x", "/", "", "a/../../x"] {
            assert!(
                matches!(layer.dir(bad, Meta::EXECUTABLE), Err(Error::EntryPath(_))),
                "{bad}"
            );
        }
        layer.bytes("etc/passwd", "root", Meta::READABLE).unwrap();
        let twice = layer
            .bytes("etc/passwd", "other", Meta::READABLE)
            .unwrap_err();
        assert_eq!(
            twice.to_string(),
            "etc/passwd: given twice in one layer, first as a file and then as a file"
        );
        let below = layer.dir("etc/passwd/d", Meta::EXECUTABLE).unwrap_err();
        assert_eq!(
            below.to_string(),
            "etc/passwd: given twice in one layer, first as a file and then as a folder"
        );
        layer
            .dir(
                "etc",
                Meta {
                    mode: 0o700,
                    uid: 0,
                    gid: 0,
                },
            )
            .unwrap();
        assert_eq!(entries(&layer)[0], "etc 700 (0, 0) ");
    }
}
