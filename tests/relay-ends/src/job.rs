//! What a client asks of the upstream: the first bytes of a stream, which a relay passes like all others.

use anyhow::{Result, bail};

/// What the upstream does with a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// Takes so many bytes, compares each, and says [`RECEIPT`].
    Take {
        /// How many.
        bytes: u64,
    },
    /// Sends so many bytes in messages of this size.
    Pour {
        /// Size of each message, at most [`crate::noise::LONGEST`].
        size: u32,
        /// How many bytes in all.
        bytes: u64,
    },
    /// Sends back what comes.
    Echo,
    /// Nothing.
    Quiet,
}

/// How long the request for a job is.
pub const REQUEST: usize = 16;
/// What says that all bytes came and were the right ones.
pub const RECEIPT: &[u8] = b"every byte is right";

impl Job {
    /// As the first bytes of a stream.
    pub fn request(self) -> [u8; REQUEST] {
        let (kind, size, bytes) = match self {
            Self::Take { bytes } => (1u32, 0, bytes),
            Self::Pour { size, bytes } => (2, size, bytes),
            Self::Echo => (3, 0, 0),
            Self::Quiet => (4, 0, 0),
        };
        let mut request = [0; REQUEST];
        request[..4].copy_from_slice(&kind.to_be_bytes());
        request[4..8].copy_from_slice(&size.to_be_bytes());
        request[8..].copy_from_slice(&bytes.to_be_bytes());
        request
    }

    /// Reads a request.
    ///
    /// # Errors
    /// When it is none.
    pub fn read(request: [u8; REQUEST]) -> Result<Self> {
        let [a, b, c, d, e, f, g, h, bytes @ ..] = request;
        let bytes = u64::from_be_bytes(bytes);
        let size = u32::from_be_bytes([e, f, g, h]);
        Ok(match u32::from_be_bytes([a, b, c, d]) {
            1 => Self::Take { bytes },
            2 => Self::Pour { size, bytes },
            3 => Self::Echo,
            4 => Self::Quiet,
            other => bail!("{other} is no job"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_what_is_read() {
        for job in [
            Job::Take { bytes: 1 << 40 },
            Job::Pour {
                size: 256,
                bytes: 7,
            },
            Job::Echo,
            Job::Quiet,
        ] {
            assert_eq!(Job::read(job.request()).unwrap(), job);
        }
        let error = Job::read([9; REQUEST]).unwrap_err().to_string();
        assert!(error.ends_with("is no job"), "{error}");
    }
}
