//! SHA-256 digests as OCI writes them, and a writer that counts and hashes what passes.

use std::{
    fmt,
    io::{self, Write},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Digest(String);

impl Digest {
    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self::finish(Sha256::new_with_prefix(bytes))
    }

    /// The digest of what a hasher has seen.
    fn finish(hasher: Sha256) -> Self {
        Self(format!("sha256:{:x}", hasher.finalize()))
    }

    /// Where an OCI layout keeps the blob of this digest; none when the digest is of another algorithm or malformed.
    pub(crate) fn blob_path(&self) -> Option<String> {
        let hex = self.0.strip_prefix("sha256:")?;
        let wellformed =
            hex.len() == 64 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        wellformed.then(|| format!("blobs/sha256/{hex}"))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Passes bytes on, and knows their number and digest.
pub(crate) struct Hashing<W> {
    inner: W,
    hasher: Sha256,
    size: u64,
}

impl<W> Hashing<W> {
    pub(crate) fn new(inner: W) -> Self {
        Self {
            inner,
            hasher: Sha256::new(),
            size: 0,
        }
    }

    /// The writer inside, the digest and the number of bytes.
    pub(crate) fn finish(self) -> (W, Digest, u64) {
        (self.inner, Digest::finish(self.hasher), self.size)
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_the_standard() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").to_string(), empty);
        let mut writer = Hashing::new(Vec::new());
        writer.write_all(b"ab").unwrap();
        writer.write_all(b"c").unwrap();
        let (bytes, digest, size) = writer.finish();
        assert_eq!((bytes.as_slice(), size), (b"abc".as_slice(), 3));
        assert_eq!(digest, Digest::of(b"abc"));
    }

    #[test]
    fn only_wellformed_digests_name_a_blob() {
        assert_eq!(
            Digest::of(b"x").blob_path().unwrap().len(),
            "blobs/sha256/".len() + 64
        );
        for bad in ["sha512:00", "sha256:../../etc/passwd", "sha256:", "e3b0"] {
            assert_eq!(Digest(bad.into()).blob_path(), None, "{bad}");
        }
    }
}
