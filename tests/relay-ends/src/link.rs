//! One end of a WebSocket over TLS that costs little: the relay between two of them is measured, on the same cores.
//!
//! A message is one frame and at least one TLS record, as programs write them that send each message at once; many
//! records go to the kernel together.

use std::{io::Write as _, ops::Range};

use anyhow::{Context as _, Result, bail, ensure};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_rustls::TlsStream;

/// How much is read at once.
const INPUT: usize = 64 * 1024;
/// How much is queued before it goes out.
const BATCH: usize = 64 * 1024;

const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// What is left of a data frame.
#[derive(Clone, Copy, Debug, Default)]
struct Rest {
    length: u64,
    mask: [u8; 4],
}

/// An end.
pub struct Link {
    io: TlsStream<TcpStream>,
    input: Vec<u8>,
    unread: Range<usize>,
    rest: Rest,
    frame: Vec<u8>,
    queued: usize,
}

impl Link {
    /// After the handshake; `early` was read with it. Whoever is the TLS client is the WebSocket's too.
    pub fn new(mut io: TlsStream<TcpStream>, early: &[u8]) -> Self {
        match &mut io {
            TlsStream::Client(io) => io.get_mut().1.set_buffer_limit(None),
            TlsStream::Server(io) => io.get_mut().1.set_buffer_limit(None),
        }
        Self {
            io,
            input: early.to_vec(),
            unread: 0..early.len(),
            rest: Rest::default(),
            frame: Vec::new(),
            queued: 0,
        }
    }

    /// Queues a message, and sends what is queued once that is much.
    pub async fn send(&mut self, payload: &[u8]) -> Result<()> {
        self.queue(BINARY, payload)?;
        if self.queued >= BATCH {
            self.flush().await?;
        }
        Ok(())
    }

    /// Sends what is queued.
    pub async fn flush(&mut self) -> Result<()> {
        self.queued = 0;
        Ok(self.io.flush().await?)
    }

    /// Bytes of a message, to be looked up with [`Self::bytes`]; `None` is the end.
    pub async fn receive(&mut self) -> Result<Option<Range<usize>>> {
        loop {
            if self.rest.length > 0 && !self.unread.is_empty() {
                return Ok(Some(self.piece()));
            }
            if self.rest.length == 0
                && let Some((opcode, rest, used)) = self.head()
            {
                if opcode < CLOSE {
                    (self.rest, self.unread.start) = (rest, self.unread.start + used);
                    continue;
                }
                let length = usize::try_from(rest.length)?;
                if self.unread.len() >= used + length {
                    if !self.control(opcode, rest, used, length).await? {
                        return Ok(None);
                    }
                    continue;
                }
            }
            if self.fill().await? == 0 {
                return Ok(None);
            }
        }
    }

    /// Bytes that [`Self::receive`] gave.
    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.input[range]
    }

    /// Reads exactly so many bytes, however they are cut.
    pub async fn read(&mut self, length: usize) -> Result<Vec<u8>> {
        let mut all = Vec::with_capacity(length);
        while all.len() < length {
            let range = self.receive().await?.context("the stream ended")?;
            all.extend_from_slice(&self.input[range]);
        }
        ensure!(all.len() == length, "more came than was expected");
        Ok(all)
    }

    /// Says goodbye and waits until the other side has gone.
    pub async fn close(&mut self) -> Result<()> {
        self.queue(CLOSE, &1000u16.to_be_bytes())?;
        self.flush().await?;
        while let Ok(Some(_)) = self.receive().await {}
        Ok(())
    }

    /// The next part of the message, unmasked where it lies.
    fn piece(&mut self) -> Range<usize> {
        let left = usize::try_from(self.rest.length).unwrap_or(usize::MAX);
        let length = left.min(self.unread.len());
        let range = self.unread.start..self.unread.start + length;
        apply(&mut self.input[range.clone()], self.rest.mask);
        self.rest.mask.rotate_left(length % 4);
        self.rest.length -= length as u64;
        self.unread.start = range.end;
        range
    }

    /// A frame's head, if it is there as a whole.
    fn head(&self) -> Option<(u8, Rest, usize)> {
        let bytes = &self.input[self.unread.clone()];
        let [first, second, ..] = *bytes else {
            return None;
        };
        let extra = match second & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let masked = second & 0x80 != 0;
        let used = 2 + extra + if masked { 4 } else { 0 };
        let head = bytes.get(..used)?;
        let length = match extra {
            0 => u64::from(second & 0x7f),
            _ => head[2..2 + extra]
                .iter()
                .fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
        };
        let mut mask = [0; 4];
        if masked {
            mask.copy_from_slice(&head[used - 4..]);
        }
        Some((first & 0x0f, Rest { length, mask }, used))
    }

    /// Answers a ping; tells whether the stream goes on.
    async fn control(
        &mut self,
        opcode: u8,
        rest: Rest,
        used: usize,
        length: usize,
    ) -> Result<bool> {
        let start = self.unread.start + used;
        let mut payload = self.input[start..start + length].to_vec();
        apply(&mut payload, rest.mask);
        self.unread.start = start + length;
        match opcode {
            PING => {
                self.queue(PONG, &payload)?;
                self.flush().await?;
                Ok(true)
            }
            CLOSE => {
                // The other side may be gone, and that is an end too.
                let _ = self.queue(CLOSE, &payload);
                let _ = self.flush().await;
                let _ = self.io.shutdown().await;
                Ok(false)
            }
            _ => Ok(true),
        }
    }

    async fn fill(&mut self) -> Result<usize> {
        self.input.copy_within(self.unread.clone(), 0);
        self.unread = 0..self.unread.len();
        if self.input.len() < INPUT {
            self.input.resize(INPUT, 0);
        }
        let read = self.io.read(&mut self.input[self.unread.end..]).await;
        let read = match read {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => 0,
            other => other?,
        };
        self.unread.end += read;
        Ok(read)
    }

    fn queue(&mut self, opcode: u8, payload: &[u8]) -> Result<()> {
        let mask = match &self.io {
            TlsStream::Client(_) => Some(key(self.frame.len() + payload.len())),
            TlsStream::Server(_) => None,
        };
        self.frame.clear();
        put(&mut self.frame, opcode, mask, payload);
        match &mut self.io {
            TlsStream::Client(io) => io.get_mut().1.writer().write_all(&self.frame)?,
            TlsStream::Server(io) => io.get_mut().1.writer().write_all(&self.frame)?,
        }
        self.queued += self.frame.len();
        Ok(())
    }

    /// Lets go of buffers: for streams that are only there.
    pub fn rest(&mut self) {
        if self.unread.is_empty() {
            self.input = Vec::new();
            self.unread = 0..0;
        }
        self.frame = Vec::new();
    }
}

/// Not secret, and not the same twice in a row: what a relay has to undo.
fn key(seed: usize) -> [u8; 4] {
    (seed as u32).wrapping_mul(0x9e37_79b9).to_be_bytes()
}

/// Appends a whole frame.
fn put(out: &mut Vec<u8>, opcode: u8, mask: Option<[u8; 4]>, payload: &[u8]) {
    let masked = if mask.is_some() { 0x80 } else { 0 };
    out.push(0x80 | opcode);
    match payload.len() {
        length @ 0..=125 => out.push(masked | length as u8),
        length @ 126..=0xffff => {
            out.push(masked | 126);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            out.push(masked | 127);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(&mask.unwrap_or_default()[..if mask.is_some() { 4 } else { 0 }]);
    let start = out.len();
    out.extend_from_slice(payload);
    apply(&mut out[start..], mask.unwrap_or_default());
}

fn apply(bytes: &mut [u8], mask: [u8; 4]) {
    if mask == [0; 4] {
        return;
    }
    let [a, b, c, d] = mask;
    let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let mut words = bytes.chunks_exact_mut(8);
    for word in &mut words {
        for (byte, key) in word.iter_mut().zip(wide.to_ne_bytes()) {
            *byte ^= key;
        }
    }
    for (byte, key) in words.into_remainder().iter_mut().zip(wide.to_ne_bytes()) {
        *byte ^= key;
    }
}

/// Reads an HTTP head; gives it and what was read behind it.
///
/// # Errors
/// When it does not end.
pub async fn head(io: &mut TlsStream<TcpStream>) -> Result<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    loop {
        if io.read_buf(&mut bytes).await? == 0 || bytes.len() > INPUT {
            bail!(
                "no answer to the handshake: {:?}",
                String::from_utf8_lossy(&bytes)
            );
        }
        if let Some(end) = bytes.windows(4).position(|part| part == b"\r\n\r\n") {
            let rest = bytes.split_off(end + 4);
            return Ok((String::from_utf8(bytes)?, rest));
        }
    }
}
