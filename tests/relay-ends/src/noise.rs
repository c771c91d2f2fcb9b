//! What is sent: noise that both ends know, so that every byte is compared where it arrives.

/// The longest message and the longest piece that is compared at once.
pub const LONGEST: usize = 64 * 1024;
/// After so many bytes it begins again; odd, so that no buffer's size divides it.
const PERIOD: usize = (1 << 20) - 3;

/// The bytes of a transfer, by their position.
pub struct Noise(Vec<u8>);

impl Default for Noise {
    /// The same in every process.
    fn default() -> Self {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let byte = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        let mut bytes: Vec<u8> = std::iter::repeat_with(byte).take(PERIOD).collect();
        bytes.extend_from_within(..LONGEST);
        Self(bytes)
    }
}

impl Noise {
    /// `length` bytes from this position on; at most [`LONGEST`].
    pub fn at(&self, position: u64, length: usize) -> &[u8] {
        let start = (position % PERIOD as u64) as usize;
        &self.0[start..start + length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_has_one_byte_however_it_is_asked_for() {
        let noise = Noise::default();
        let near_the_end = PERIOD as u64 - 3;
        let across = noise.at(near_the_end, 6).to_vec();
        let single = (0..6).flat_map(|n| noise.at(near_the_end + n, 1));
        assert_eq!(across, single.copied().collect::<Vec<_>>());
        assert_ne!(noise.at(0, LONGEST), noise.at(1, LONGEST));
    }
}
