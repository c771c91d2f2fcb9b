//! How KubeVirt cuts what it reads into frames (gorilla/websocket's `messageWriter` with buffers of 10,240 bytes).

use std::ops::Range;

/// gorilla's buffer holds this much payload.
const BUFFER: usize = 10_240;
/// More than twice the buffer with its room for a header goes out unbuffered.
const UNBUFFERED: usize = 2 * (BUFFER + 14);

/// One frame of a message: the first is binary, the others continue it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Which bytes.
    pub range: Range<usize>,
    /// Whether it is the first.
    pub first: bool,
    /// Whether it is the last.
    pub last: bool,
}

/// The frames of one message of this length.
pub fn pieces(length: usize) -> Vec<Piece> {
    if length > UNBUFFERED {
        return vec![
            Piece {
                range: 0..length,
                first: true,
                last: false,
            },
            Piece {
                range: length..length,
                first: false,
                last: true,
            },
        ];
    }
    let mut pieces = Vec::with_capacity(length.div_ceil(BUFFER).max(1));
    let mut start = 0;
    loop {
        let end = (start + BUFFER).min(length);
        let last = end == length;
        pieces.push(Piece {
            range: start..end,
            first: start == 0,
            last,
        });
        if last {
            return pieces;
        }
        start = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_cut_where_gorilla_cuts_them() {
        let lengths = |n: usize| pieces(n).iter().map(|p| p.range.len()).collect::<Vec<_>>();
        assert_eq!(lengths(1), [1]);
        assert_eq!(lengths(10_240), [10_240]);
        assert_eq!(lengths(10_241), [10_240, 1]);
        assert_eq!(lengths(20_508), [10_240, 10_240, 28]);
        assert_eq!(lengths(20_509), [20_509, 0]);
        assert_eq!(lengths(32_768), [32_768, 0]);
    }

    #[test]
    fn exactly_the_first_starts_and_the_last_ends_a_message() {
        for length in [1, 10_240, 10_241, 20_508, 32_768] {
            let pieces = pieces(length);
            let first: Vec<bool> = pieces.iter().map(|p| p.first).collect();
            let last: Vec<bool> = pieces.iter().map(|p| p.last).collect();
            assert!(first[0] && !first[1..].contains(&true), "{length}");
            assert!(
                last[last.len() - 1] && !last[..last.len() - 1].contains(&true),
                "{length}"
            );
        }
    }
}
