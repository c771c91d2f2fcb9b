//! Events to bytes: whole frames, masked when we are the client.

use bytes::{BufMut as _, BytesMut};
use ring::rand::{SecureRandom as _, SystemRandom};

use super::Opcode;
use crate::streams::close::cut;

/// Appends one final frame whose payload is the parts in their order.
pub fn encode(out: &mut BytesMut, opcode: Opcode, mask: Option<[u8; 4]>, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    put_head(out, opcode, mask, length);
    let start = out.len();
    for part in parts {
        out.put_slice(part);
    }
    if let Some(mask) = mask {
        apply_mask(&mut out[start..], mask);
    }
}

/// Appends the head of a final frame, and makes room for its payload.
pub(super) fn put_head(out: &mut BytesMut, opcode: Opcode, mask: Option<[u8; 4]>, length: usize) {
    out.reserve(length + 14);
    out.put_u8(0x80 | opcode.bits());
    let masked = if mask.is_some() { 0x80 } else { 0 };
    match length {
        0..=125 => out.put_u8(masked | length as u8),
        126..=0xffff => {
            out.put_u8(masked | 126);
            out.put_u16(length as u16);
        }
        _ => {
            out.put_u8(masked | 127);
            out.put_u64(length as u64);
        }
    }
    if let Some(mask) = mask {
        out.put_slice(&mask);
    }
}

/// Appends a close frame; the reason is cut to what fits.
pub fn encode_close(out: &mut BytesMut, mask: Option<[u8; 4]>, code: u16, reason: &str) {
    let code = code.to_be_bytes();
    encode(out, Opcode::Close, mask, &[&code, cut(reason).as_bytes()]);
}

/// Exclusive-or with the key, repeated from its start.
pub(super) fn apply_mask(bytes: &mut [u8], mask: [u8; 4]) {
    let mut chunks = bytes.chunks_exact_mut(4);
    for chunk in &mut chunks {
        for (byte, key) in chunk.iter_mut().zip(mask) {
            *byte ^= key;
        }
    }
    for (byte, key) in chunks.into_remainder().iter_mut().zip(mask) {
        *byte ^= key;
    }
}

/// Fresh masking keys from the system's random source (RFC 6455 §10.3), a pool at a time.
#[derive(Debug)]
pub struct Masks {
    random: SystemRandom,
    pool: [u8; 64],
    used: usize,
}

impl Default for Masks {
    fn default() -> Self {
        Self {
            random: SystemRandom::new(),
            pool: [0; 64],
            used: 64,
        }
    }
}

impl Masks {
    /// The next key.
    ///
    /// # Errors
    /// The system has no randomness to give.
    pub fn fresh(&mut self) -> Result<[u8; 4], std::io::Error> {
        if self.used == self.pool.len() {
            self.random
                .fill(&mut self.pool)
                .map_err(|_| std::io::Error::other("the system's random source failed"))?;
            self.used = 0;
        }
        let at = self.used;
        self.used += 4;
        let pool = &self.pool;
        Ok([pool[at], pool[at + 1], pool[at + 2], pool[at + 3]])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_use_the_shortest_form() {
        for (length, head) in [(0, 2), (125, 2), (126, 4), (65_535, 4), (65_536, 10)] {
            let mut out = BytesMut::new();
            encode(&mut out, Opcode::Binary, None, &[&vec![0; length]]);
            assert_eq!(out.len(), head + length);
        }
    }

    #[test]
    fn the_masked_hello_of_the_rfc() {
        let mut out = BytesMut::new();
        encode(
            &mut out,
            Opcode::Text,
            Some([0x37, 0xfa, 0x21, 0x3d]),
            &[b"Hel", b"lo"],
        );
        assert_eq!(
            out.as_ref(),
            [
                0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58
            ]
        );
    }

    #[test]
    fn keys_are_not_repeated() {
        let mut masks = Masks::default();
        let keys: std::collections::HashSet<_> = (0..64).map(|_| masks.fresh().unwrap()).collect();
        assert!(keys.len() > 60);
    }
}
