//! What can go wrong while an archive is written or read.

use std::{io, path::PathBuf};

/// A failure, with the file or entry that it is about.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of this machine could not be used.
    #[error("{doing} {}", path.display())]
    File {
        /// What was being done: `read`, `create`, …
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// An image name that container runtimes would not take, or would expand into another one.
    #[error(
        "image name {name:?}: {problem} (give HOST/REPOSITORY:TAG, as in registry.example.com/tools/pause:1)"
    )]
    Reference {
        /// The name as given.
        name: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A path that does not name a place inside an image.
    #[error("{}: a path inside an image is relative to its root and has no `..`", .0.display())]
    EntryPath(PathBuf),
    /// The same path was given twice in one layer.
    #[error("{}: given twice in one layer, first as {first} and then as {second}", path.display())]
    Conflict {
        /// The path inside the image.
        path: PathBuf,
        /// What it is already.
        first: &'static str,
        /// What it should have become.
        second: &'static str,
    },
    /// A folder holds something that an image cannot carry.
    #[error("{}: neither a file, a folder nor a symbolic link; remove it from the tree", .0.display())]
    Kind(PathBuf),
    /// This machine's architecture has no name that we know of in OCI's terms.
    #[error("architecture {0} is not known here: amd64 and arm64 are")]
    Architecture(String),
    /// An archive that does not hold what it says.
    #[error("{}: {problem}", path.display())]
    Archive {
        /// The archive.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
}

/// Turns an I/O error into one that names the file.
pub(crate) fn file(
    doing: &'static str,
    path: impl Into<PathBuf>,
) -> impl FnOnce(io::Error) -> Error {
    let path = path.into();
    move |source| Error::File {
        doing,
        path,
        source,
    }
}
