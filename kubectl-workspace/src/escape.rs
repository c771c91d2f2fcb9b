//! Finds the escape character in what is typed. Entry point: [`scan`].

/// `Ctrl-]`, as telnet and virtctl have it.
pub const ESCAPE: u8 = 0x1d;

/// What of a chunk goes to the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Typed<'a> {
    /// All of it.
    Input(&'a [u8]),
    /// What stands before the escape character; then the session ends.
    Escape(&'a [u8]),
}

/// Looks for [`ESCAPE`]. One byte is the whole sequence, so chunks need no memory of each other.
pub fn scan(chunk: &[u8]) -> Typed<'_> {
    match chunk.iter().position(|byte| *byte == ESCAPE) {
        Some(at) => Typed::Escape(&chunk[..at]),
        None => Typed::Input(chunk),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_escape_is_found_wherever_a_chunk_ends() {
        let typed = b"ls\n\x1drest";
        for cut in 0..=typed.len() {
            let mut before = Vec::new();
            let mut ended = false;
            for chunk in [&typed[..cut], &typed[cut..]] {
                match scan(chunk) {
                    _ if ended => {}
                    Typed::Input(bytes) => before.extend_from_slice(bytes),
                    Typed::Escape(bytes) => {
                        before.extend_from_slice(bytes);
                        ended = true;
                    }
                }
            }
            assert!(ended, "cut at {cut}");
            assert_eq!(before, b"ls\n", "cut at {cut}");
        }
    }

    #[test]
    fn everything_else_is_input() {
        for input in [
            &b""[..],
            b"\x03",
            b"]",
            b"\x1b]0;title\x07",
            "\u{9d}".as_bytes(),
        ] {
            assert_eq!(scan(input), Typed::Input(input));
        }
    }
}
