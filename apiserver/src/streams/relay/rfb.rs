//! What a viewer of a display does, told from what its program does by itself (RFC 6143 §7).
//!
//! A viewer asks for updates all the time, whether somebody looks or not. Only keys, pointer, clipboard
//! and what we do not know count as a person; so the lengths of all messages are known here, and
//! their contents are not kept.

/// The longest head of a message that its length depends on.
const HEAD: usize = 12;

/// Where a client is in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Version,
    Security,
    Init,
    Messages,
    /// A message whose length is unknown: nothing that follows can be told apart.
    Lost,
}

/// What a head means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// More of it is needed.
    More,
    /// It is complete; so many bytes follow that belong to it.
    Message { rest: u64, counts: bool },
    /// It cannot be understood.
    Unknown,
}

/// Follows the client's side of RFB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RfbInput {
    stage: Stage,
    head: [u8; HEAD],
    have: usize,
    /// Bytes of the current message that are still to come, and whether they count.
    rest: u64,
    counts: bool,
}

impl Default for RfbInput {
    fn default() -> Self {
        Self {
            stage: Stage::Version,
            head: [0; HEAD],
            have: 0,
            rest: 0,
            counts: false,
        }
    }
}

impl RfbInput {
    /// Takes what the client sent next; tells whether any of it counts.
    pub(super) fn take(&mut self, mut bytes: &[u8]) -> bool {
        let mut counts = false;
        while let Some((first, others)) = bytes.split_first() {
            if self.stage == Stage::Lost {
                return true;
            }
            if self.rest > 0 {
                let skip = usize::try_from(self.rest).map_or(bytes.len(), |r| r.min(bytes.len()));
                self.rest -= skip as u64;
                counts |= self.counts;
                bytes = &bytes[skip..];
                continue;
            }
            self.head[self.have] = *first;
            self.have += 1;
            bytes = others;
            counts |= self.step();
        }
        counts
    }

    fn step(&mut self) -> bool {
        let head = &self.head[..self.have];
        let (step, next) = match self.stage {
            Stage::Version => version(head),
            Stage::Security => security(head),
            Stage::Init => (message(0, false), Stage::Messages),
            Stage::Messages | Stage::Lost => (client_message(head), Stage::Messages),
        };
        match step {
            Step::More => false,
            Step::Message { rest, counts } => {
                (self.rest, self.counts, self.have) = (rest, counts, 0);
                self.stage = next;
                counts
            }
            Step::Unknown => {
                self.stage = Stage::Lost;
                true
            }
        }
    }
}

fn message(rest: u64, counts: bool) -> Step {
    Step::Message { rest, counts }
}

/// `RFB 003.008\n`; before 3.7 the server decides about security, and the client says nothing.
fn version(head: &[u8]) -> (Step, Stage) {
    if head.len() < 12 {
        return (Step::More, Stage::Version);
    }
    let minor = std::str::from_utf8(&head[8..11])
        .ok()
        .and_then(|text| text.parse::<u16>().ok());
    match minor.filter(|_| head.starts_with(b"RFB 003.")) {
        Some(0..7) => (message(0, false), Stage::Init),
        Some(_) => (message(0, false), Stage::Security),
        None => (Step::Unknown, Stage::Lost),
    }
}

/// None, or the answer to a challenge; other types have dialogues of their own.
fn security(head: &[u8]) -> (Step, Stage) {
    match head[0] {
        1 => (message(0, false), Stage::Init),
        2 => (message(16, false), Stage::Init),
        _ => (Step::Unknown, Stage::Lost),
    }
}

/// RFC 6143 §7.5 and the registered extensions that viewers use.
fn client_message(head: &[u8]) -> Step {
    let u16_at = |at: usize| u64::from(head[at]) << 8 | u64::from(head[at + 1]);
    let needed = match head[0] {
        2 => 4,
        6 | 251 => 8,
        248 => 9,
        255 => 2,
        _ => 1,
    };
    if head.len() < needed {
        return Step::More;
    }
    match head[0] {
        0 => message(19, false),
        2 => message(4 * u16_at(2), false),
        3 | 150 => message(9, false),
        4 => message(7, true),
        5 => message(5, true),
        // A negative length is the extended clipboard's.
        6 => {
            let length = i32::from_be_bytes([head[4], head[5], head[6], head[7]]);
            message(u64::from(length.unsigned_abs()), true)
        }
        248 => message(u64::from(head[8]), false),
        251 => message(16 * u64::from(head[6]), false),
        255 => qemu(head),
        _ => Step::Unknown,
    }
}

/// QEMU's extensions: keys with scan codes, and sound.
fn qemu(head: &[u8]) -> Step {
    match (head[1], head.len()) {
        (0, _) => message(10, true),
        (1, 2..4) => Step::More,
        (1, _) if head[2..4] == [0, 2] => message(6, false),
        (1, _) => message(0, false),
        _ => Step::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: &[u8] = b"RFB 003.008\n\x01\x01";

    fn greeted() -> RfbInput {
        let mut input = RfbInput::default();
        assert!(!input.take(HELLO), "a handshake is no input");
        input
    }

    fn with(head: &[u8], length: usize) -> Vec<u8> {
        let mut bytes = head.to_vec();
        bytes.resize(length, 0);
        bytes
    }

    #[test]
    fn only_what_a_person_does_counts() {
        let cases: &[(&str, Vec<u8>, bool)] = &[
            ("SetPixelFormat", with(&[0], 20), false),
            ("SetEncodings", with(&[2, 0, 0, 3], 16), false),
            ("FramebufferUpdateRequest", with(&[3, 1], 10), false),
            ("EnableContinuousUpdates", with(&[150, 1], 10), false),
            ("Fence", with(&[248, 0, 0, 0, 0, 0, 0, 0, 5], 14), false),
            (
                "SetDesktopSize",
                with(&[251, 0, 4, 0, 3, 0, 2, 0], 40),
                false,
            ),
            ("QEMU sound on", with(&[255, 1, 0, 0], 4), false),
            ("QEMU sound format", with(&[255, 1, 0, 2], 10), false),
            ("KeyEvent", with(&[4, 1], 8), true),
            ("PointerEvent", with(&[5, 0], 6), true),
            ("ClientCutText", with(&[6, 0, 0, 0, 0, 0, 0, 3], 11), true),
            (
                "extended clipboard",
                with(&[6, 0, 0, 0, 255, 255, 255, 252], 12),
                true,
            ),
            ("QEMU key", with(&[255, 0], 12), true),
        ];
        for (name, bytes, expected) in cases {
            let mut input = greeted();
            assert_eq!(input.take(bytes), *expected, "{name}");
            assert!(
                !input.take(&with(&[3], 10)),
                "{name}: the next message is seen as it is"
            );
            let mut cut = greeted();
            let counted = bytes.iter().filter(|b| cut.take(&[**b])).count();
            assert_eq!(counted > 0, *expected, "{name}, byte by byte");
            assert!(!cut.take(&with(&[3], 10)), "{name}, byte by byte");
        }
    }

    #[test]
    fn after_an_unknown_message_everything_counts() {
        let mut input = greeted();
        assert!(input.take(&[77]));
        assert!(input.take(&with(&[3], 10)));
        assert!(!input.take(&[]));
    }

    #[test]
    fn every_handshake_is_followed_or_given_up() {
        for (hello, lost) in [
            (&b"RFB 003.003\n\x01"[..], false),
            (b"RFB 003.007\n\x01\x00", false),
            (b"RFB 003.008\n\x020123456789abcdef\x01", false),
            (b"RFB 003.008\n\x13", true),
            (b"RFB 004.001\n", true),
            (b"GET / HTTP/1", true),
        ] {
            let mut input = RfbInput::default();
            assert_eq!(input.take(hello), lost, "{hello:?}");
            assert_eq!(input.take(&with(&[3], 10)), lost, "{hello:?}");
        }
    }
}
