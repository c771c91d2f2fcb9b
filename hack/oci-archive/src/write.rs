//! Writing a layer's entries as a tar.

use std::{
    io::{self, Read, Write},
    os::unix::ffi::OsStrExt as _,
    path::Path,
};

use tar::{Builder, EntryType, Header};

use crate::{Error, Meta, error::file, layer::Node};

/// Copies a ready tar, without its gzip.
pub(crate) fn copy(path: &Path, out: &mut impl Write) -> Result<(), Error> {
    let mut tar = crate::blob::open_maybe_gzip(path)?;
    io::copy(&mut tar, out).map_err(file("copy", path))?;
    Ok(())
}

/// Adds one entry.
pub(crate) fn append(
    out: &mut Builder<impl Write>,
    path: &Path,
    node: &Node,
    meta: Meta,
    mtime: u64,
) -> Result<(), Error> {
    let mut header = Header::new_gnu();
    header.set_mode(meta.mode);
    header.set_uid(meta.uid.into());
    header.set_gid(meta.gid.into());
    header.set_mtime(mtime);
    match node {
        Node::Dir => {
            header.set_entry_type(EntryType::Directory);
            append_data(out, header, path, 0, io::empty())
        }
        Node::Symlink(target) => {
            append_symlink(out, header, path, target).map_err(file("add symbolic link", path))
        }
        Node::Bytes(bytes) => append_data(out, header, path, bytes.len() as u64, bytes.as_slice()),
        Node::File(from) => {
            let content = std::fs::File::open(from).map_err(file("read", from))?;
            let size = content.metadata().map_err(file("read", from))?.len();
            append_data(
                out,
                header,
                path,
                size,
                Exactly {
                    inner: content,
                    left: size,
                },
            )
            .map_err(|error| match error {
                Error::File { source, .. } => Error::File {
                    doing: "read",
                    path: from.clone(),
                    source,
                },
                other => other,
            })
        }
    }
}

fn append_data(
    out: &mut Builder<impl Write>,
    mut header: Header,
    path: &Path,
    size: u64,
    content: impl Read,
) -> Result<(), Error> {
    header.set_size(size);
    out.append_data(&mut header, path, content)
        .map_err(file("add", path))
}

/// The `tar` crate cleans link targets up (`./x` becomes `x`) unless they are set literally, which is possible up to
/// the header's 100 bytes.
fn append_symlink(
    out: &mut Builder<impl Write>,
    mut header: Header,
    path: &Path,
    target: &Path,
) -> io::Result<()> {
    header.set_entry_type(EntryType::Symlink);
    header.set_size(0);
    let literal = target.as_os_str().as_bytes();
    if literal.len() > 100 {
        return out.append_link(&mut header, path, target);
    }
    header.set_link_name_literal(literal)?;
    out.append_data(&mut header, path, io::empty())
}

/// A reader that gives exactly `left` bytes: a file that shrinks or grows meanwhile must not break the tar.
struct Exactly<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for Exactly<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let want = buffer
            .len()
            .min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let got = self.inner.read(&mut buffer[..want])?;
        if got == 0 && want > 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the file became shorter while it was read",
            ));
        }
        self.left -= got as u64;
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_changes_its_size_does_not_break_the_tar() {
        let mut content = Vec::new();
        let grown = Exactly {
            inner: b"12345".as_slice(),
            left: 3,
        }
        .read_to_end(&mut content);
        assert_eq!((grown.unwrap(), content.as_slice()), (3, b"123".as_slice()));
        let shrunk = Exactly {
            inner: b"12".as_slice(),
            left: 3,
        }
        .read_to_end(&mut Vec::new());
        assert_eq!(shrunk.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
