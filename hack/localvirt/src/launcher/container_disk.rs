//! What a containerDisk image holds: a disk in `/disk`, and for a fast boot a kernel in `/boot`.
//!
//! KubeVirt's containerDisk is an image with one file in `/disk`, its kernelBoot container one with a kernel and an
//! initrd. Ours may be both: when the image of the boot disk has `/boot/vmlinuz` and `/boot/initrd` (and optionally
//! `/boot/cmdline`), the guest is started with them, which under TCG saves the boot loader's many seconds. An image
//! without them boots from its disk. Entry points: [`find_disk`], [`find_kernel`], [`Format::of`].

use std::fs;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

/// A kernel command line that is longer than this is not one.
const MAX_CMDLINE: u64 = 4096;
/// Kernel command line when the image has none.
const DEFAULT_CMDLINE: &str = "console=tty1 console=ttyS0 quiet";

/// A kernel to start directly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// bzImage or PVH ELF.
    pub image: PathBuf,
    /// The initial file system.
    pub initrd: PathBuf,
    /// Its command line.
    pub cmdline: String,
}

/// Format of a disk image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Bytes as they are.
    Raw,
    /// QEMU's own.
    Qcow2,
}

/// Why a containerDisk cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ContainerDiskError {
    /// The path leaves the image or is relative.
    #[error("path {0:?} must be an absolute path to a file without relative components")]
    Path(PathBuf),
    /// There is not exactly one candidate.
    #[error("{dir:?} holds {found} files: a containerDisk has one, or its path is named")]
    Ambiguous {
        /// The directory.
        dir: PathBuf,
        /// Number of files in it.
        found: usize,
    },
    /// The disk refers to files outside itself.
    #[error("{0:?} refers to another file: a containerDisk stands alone")]
    Backed(PathBuf),
    /// It cannot be read.
    #[error("cannot read {path:?}")]
    Io {
        /// What.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl ContainerDiskError {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
}

/// The disk of the image mounted at `root`: the named one, else the only file of `/disk`.
pub fn find_disk(root: &Path, path: Option<&Path>) -> Result<PathBuf, ContainerDiskError> {
    if let Some(path) = path {
        return inside(root, path);
    }
    let dir = root.join("disk");
    let mut files = Vec::new();
    for entry in fs::read_dir(&dir).map_err(ContainerDiskError::io(&dir))? {
        let path = entry.map_err(ContainerDiskError::io(&dir))?.path();
        if fs::symlink_metadata(&path).is_ok_and(|m| m.is_file()) {
            files.push(path);
        }
    }
    match files.pop() {
        Some(file) if files.is_empty() => Ok(file),
        rest => Err(ContainerDiskError::Ambiguous {
            dir,
            found: files.len() + usize::from(rest.is_some()),
        }),
    }
}

/// `root` and `path` joined, where `path` must not lead out of `root`, not by a symbolic link either.
fn inside(root: &Path, path: &Path) -> Result<PathBuf, ContainerDiskError> {
    let refuse = || ContainerDiskError::Path(path.to_owned());
    let relative = path.strip_prefix("/").map_err(|_| refuse())?;
    let plain = relative
        .components()
        .all(|c| matches!(c, Component::Normal(_)));
    if !plain || relative.as_os_str().is_empty() {
        return Err(refuse());
    }
    let joined = root.join(relative);
    let real = joined
        .canonicalize()
        .map_err(ContainerDiskError::io(&joined))?;
    let base = root.canonicalize().map_err(ContainerDiskError::io(root))?;
    if real.starts_with(base) {
        Ok(real)
    } else {
        Err(refuse())
    }
}

/// The kernel of the image mounted at `root`, if it has one.
pub fn find_kernel(root: &Path) -> Result<Option<Kernel>, ContainerDiskError> {
    let (image, initrd) = (root.join("boot/vmlinuz"), root.join("boot/initrd"));
    if !image.is_file() || !initrd.is_file() {
        return Ok(None);
    }
    let path = root.join("boot/cmdline");
    let mut cmdline = String::new();
    match fs::File::open(&path) {
        Ok(file) => {
            file.take(MAX_CMDLINE)
                .read_to_string(&mut cmdline)
                .map_err(ContainerDiskError::io(&path))?;
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => cmdline.push_str(DEFAULT_CMDLINE),
        Err(e) => return Err(ContainerDiskError::io(&path)(e)),
    }
    Ok(Some(Kernel {
        image,
        initrd,
        cmdline: cmdline.trim().to_owned(),
    }))
}

impl Format {
    /// The format of the image at `path`, which must stand alone: a tenant's qcow2 header could otherwise name any
    /// file of the launcher (its Secret, for one) as backing file.
    pub fn of(path: &Path) -> Result<Self, ContainerDiskError> {
        let mut head = Vec::new();
        let file = fs::File::open(path).map_err(ContainerDiskError::io(path))?;
        file.take(HEADER)
            .read_to_end(&mut head)
            .map_err(ContainerDiskError::io(path))?;
        match Header::parse(&head) {
            Header::Raw => Ok(Self::Raw),
            Header::Qcow2 => Ok(Self::Qcow2),
            Header::Backed => Err(ContainerDiskError::Backed(path.to_owned())),
        }
    }

    /// QEMU's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
        }
    }
}

/// Bytes of the qcow2 header that matter: up to the incompatible features.
const HEADER: u64 = 80;

#[derive(Debug, PartialEq, Eq)]
enum Header {
    Raw,
    Qcow2,
    Backed,
}

impl Header {
    /// QEMU's docs/interop/qcow2.txt: magic at 0, version at 4, backing_file_offset at 8, incompatible features at 72
    /// (bit 2: external data file).
    fn parse(head: &[u8]) -> Self {
        if !head.starts_with(b"QFI\xfb") {
            return Self::Raw;
        }
        let backing = head.get(8..16).is_none_or(|offset| offset != [0; 8]);
        let version = head.get(4..8).map_or(0, |v| v[3]);
        let external = version >= 3 && head.get(79).is_none_or(|low| low & 4 != 0);
        if backing || external {
            Self::Backed
        } else {
            Self::Qcow2
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(files: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for file in files {
            let path = dir.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, b"quiet x=1\n").unwrap();
        }
        dir
    }

    #[test]
    fn the_only_file_is_the_disk_and_of_several_one_is_named() {
        let one = root(&["disk/a.img"]);
        assert_eq!(
            find_disk(one.path(), None).unwrap(),
            one.path().join("disk/a.img")
        );
        let two = root(&["disk/a.img", "disk/b.img"]);
        assert!(matches!(
            find_disk(two.path(), None),
            Err(ContainerDiskError::Ambiguous { found: 2, .. })
        ));
        assert!(
            find_disk(two.path(), Some(Path::new("/disk/b.img")))
                .unwrap()
                .ends_with("disk/b.img")
        );
        let none = root(&["other"]);
        assert!(matches!(
            find_disk(none.path(), None),
            Err(ContainerDiskError::Io { .. })
        ));
    }

    #[test]
    fn a_named_path_stays_in_the_image() {
        let dir = root(&["disk/a.img"]);
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("disk/link")).unwrap();
        for bad in ["disk/a.img", "/", "/disk/../disk/a.img", "/disk/link"] {
            let result = find_disk(dir.path(), Some(Path::new(bad)));
            assert!(
                matches!(result, Err(ContainerDiskError::Path(_))),
                "{bad}: {result:?}"
            );
        }
    }

    #[test]
    fn a_kernel_is_used_when_it_is_whole() {
        assert_eq!(find_kernel(root(&["boot/vmlinuz"]).path()).unwrap(), None);
        let plain = root(&["boot/vmlinuz", "boot/initrd"]);
        assert_eq!(
            find_kernel(plain.path()).unwrap().unwrap().cmdline,
            DEFAULT_CMDLINE
        );
        let own = root(&["boot/vmlinuz", "boot/initrd", "boot/cmdline"]);
        assert_eq!(
            find_kernel(own.path()).unwrap().unwrap().cmdline,
            "quiet x=1"
        );
    }

    #[test]
    fn an_image_that_names_another_file_is_refused() {
        let qcow2 = |version: u8, backing: u8, features: u8| {
            let mut head = vec![0; 80];
            head[..4].copy_from_slice(b"QFI\xfb");
            (head[7], head[15], head[79]) = (version, backing, features);
            head
        };
        let cases = [
            (b"\0\0\0".to_vec(), Header::Raw),
            (qcow2(3, 0, 0), Header::Qcow2),
            (qcow2(2, 0, 0)[..72].to_vec(), Header::Qcow2),
            (qcow2(3, 104, 0), Header::Backed),
            (qcow2(3, 0, 4), Header::Backed),
            (qcow2(3, 0, 0)[..72].to_vec(), Header::Backed),
            (b"QFI\xfb".to_vec(), Header::Backed),
        ];
        for (head, expected) in cases {
            assert_eq!(Header::parse(&head), expected, "{head:?}");
        }
    }
}
