//! Looks for a secret in this process's own memory.

use std::{fs, ops::Range, os::unix::fs::FileExt as _};

use anyhow::Result;

/// How much is looked at at a time.
const CHUNK: usize = 1 << 20;
const MASK: u8 = 0xa5;

/// Bytes to look for, kept so that the search does not find itself.
pub struct Needle {
    masked: Vec<u8>,
}

impl Needle {
    /// Looks for these bytes; the caller wipes its own copy.
    pub fn new(bytes: &[u8]) -> Self {
        Self {
            masked: bytes.iter().map(|byte| byte ^ MASK).collect(),
        }
    }

    fn is_at(&self, bytes: &[u8]) -> bool {
        bytes.len() >= self.masked.len()
            && self
                .masked
                .iter()
                .zip(bytes)
                .all(|(masked, byte)| masked ^ MASK == *byte)
    }

    fn count(&self, bytes: &[u8], excluded: &Range<usize>, start: usize) -> usize {
        let first = self.masked[0] ^ MASK;
        let mut count = 0;
        for (at, byte) in bytes.iter().enumerate() {
            if *byte == first && !excluded.contains(&(start + at)) && self.is_at(&bytes[at..]) {
                count += 1;
            }
        }
        count
    }
}

/// How often each needle is in this process's memory: heap, stacks, everything that is mapped and
/// can be written.
pub fn search(needles: &[Needle]) -> Result<Vec<usize>> {
    let memory = fs::File::open("/proc/self/mem")?;
    let mut counts = vec![0; needles.len()];
    let longest = needles.iter().map(|n| n.masked.len()).max().unwrap_or(0);
    let mut buffer = vec![0; CHUNK + longest];
    let own = buffer.as_ptr().addr();
    let own = own..own + buffer.len();
    for mapping in mappings()? {
        for start in mapping.clone().step_by(CHUNK) {
            let end = (start + CHUNK + longest).min(mapping.end);
            let bytes = &mut buffer[..end - start];
            if memory.read_exact_at(bytes, start as u64).is_err() {
                continue;
            }
            // What begins behind the chunk is found in the next one.
            let last = CHUNK.min(bytes.len());
            for (needle, count) in needles.iter().zip(&mut counts) {
                let reach = (last + needle.masked.len() - 1).min(bytes.len());
                *count += needle.count(&bytes[..reach], &own, start);
            }
        }
    }
    buffer.fill(0);
    Ok(counts)
}

fn mappings() -> Result<Vec<Range<usize>>> {
    let mut found = Vec::new();
    for line in fs::read_to_string("/proc/self/maps")?.lines() {
        let mut fields = line.split_whitespace();
        let (range, rights) = (fields.next().unwrap_or(""), fields.next().unwrap_or(""));
        let Some((start, end)) = range.split_once('-').filter(|_| rights.starts_with("rw")) else {
            continue;
        };
        found.push(usize::from_str_radix(start, 16)?..usize::from_str_radix(end, 16)?);
    }
    Ok(found)
}
