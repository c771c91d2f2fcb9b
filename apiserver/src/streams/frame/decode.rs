//! Bytes to events, one connection at a time.

use bytes::{Buf as _, Bytes, BytesMut};

use super::{Event, Opcode, Piece, Violation};

/// Who sends what is decoded here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A client: its frames must be masked (§5.1).
    Client,
    /// A server: its frames must not be.
    Server,
}

/// The head of a frame (§5.2).
#[derive(Clone, Copy, Debug)]
pub(in crate::streams) struct Head {
    /// What the frame is.
    pub(in crate::streams) opcode: Opcode,
    /// Whether the message ends with it.
    pub(in crate::streams) fin: bool,
    /// The masking key, in frames of clients.
    pub(in crate::streams) mask: Option<[u8; 4]>,
    /// How long the payload is.
    pub(in crate::streams) length: u64,
}

/// What of the current data frame is still to come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rest {
    pub(super) head: Head,
    /// Bytes of the payload that were handed on.
    pub(super) taken: u64,
    /// Whether the next piece is the first of its message.
    pub(super) first: bool,
}

/// A decoder that holds at most what was read and not yet taken.
#[derive(Debug)]
pub struct Decoder {
    peer: Peer,
    pub(super) buffer: BytesMut,
    pub(super) rest: Option<Rest>,
    /// The kind of the message that is under way: `true` is text.
    pub(super) message: Option<bool>,
}

impl Decoder {
    /// For the frames of this peer.
    pub fn new(peer: Peer) -> Self {
        Self {
            peer,
            buffer: BytesMut::new(),
            rest: None,
            message: None,
        }
    }

    /// Where to read into.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// The next event, or `None` until more is read.
    ///
    /// # Errors
    /// The peer broke the protocol; nothing more can be decoded.
    pub fn event(&mut self) -> Result<Option<Event>, Violation> {
        if self.rest.is_none() {
            let Some((head, used)) = parse_head(&self.buffer)? else {
                return Ok(None);
            };
            self.check(&head)?;
            if head.opcode.is_control() {
                return self.control(&head, used);
            }
            self.buffer.advance(used);
            self.begin(head);
        }
        Ok(self.piece())
    }

    /// A data frame's payload is next.
    pub(super) fn begin(&mut self, head: Head) {
        let first = head.opcode != Opcode::Continuation;
        if first {
            self.message = Some(head.opcode == Opcode::Text);
        }
        self.rest = Some(Rest {
            head,
            taken: 0,
            first,
        });
    }

    /// A data frame is over as a whole.
    pub(super) fn note(&mut self, head: &Head) {
        if head.opcode != Opcode::Continuation {
            self.message = Some(head.opcode == Opcode::Text);
        }
        if head.fin {
            self.message = None;
        }
    }

    pub(super) fn check(&self, head: &Head) -> Result<(), Violation> {
        match (self.peer, head.mask) {
            (Peer::Client, None) => return Err(Violation("frames from a client must be masked")),
            (Peer::Server, Some(_)) => {
                return Err(Violation("frames from a server must not be masked"));
            }
            _ => {}
        }
        match (head.opcode, self.message) {
            (Opcode::Continuation, None) => {
                Err(Violation("a continuation without a message to continue"))
            }
            (Opcode::Text | Opcode::Binary, Some(_)) => {
                Err(Violation("a new message inside a fragmented one"))
            }
            _ => Ok(()),
        }
    }

    fn piece(&mut self) -> Option<Event> {
        let rest = self.rest.as_mut()?;
        let left = rest.head.length - rest.taken;
        if self.buffer.is_empty() && left > 0 {
            return None;
        }
        let take = usize::try_from(left).map_or(self.buffer.len(), |l| l.min(self.buffer.len()));
        let mut payload = self.buffer.split_to(take);
        unmask(&mut payload, rest.head.mask, rest.taken);
        rest.taken += take as u64;
        let ends = rest.taken == rest.head.length;
        let piece = Piece {
            text: self.message.unwrap_or_default(),
            first: std::mem::take(&mut rest.first),
            last: ends && rest.head.fin,
            payload: payload.freeze(),
        };
        if ends {
            self.rest = None;
        }
        if piece.last {
            self.message = None;
        }
        Some(Event::Piece(piece))
    }

    fn control(&mut self, head: &Head, used: usize) -> Result<Option<Event>, Violation> {
        if !head.fin {
            return Err(Violation("a control frame must not be fragmented"));
        }
        let length = match usize::try_from(head.length) {
            Ok(length) if length <= 125 => length,
            _ => return Err(Violation("a control frame is longer than 125 bytes")),
        };
        if self.buffer.len() < used + length {
            return Ok(None);
        }
        self.buffer.advance(used);
        let mut payload = self.buffer.split_to(length);
        unmask(&mut payload, head.mask, 0);
        match head.opcode {
            Opcode::Ping => Ok(Some(Event::Ping(payload.freeze()))),
            Opcode::Close => parse_close(payload.freeze()).map(|c| Some(Event::Close(c))),
            _ => Ok(Some(Event::Pong)),
        }
    }
}

/// The head and its length, once it is complete (§5.2).
pub(in crate::streams) fn parse_head(bytes: &[u8]) -> Result<Option<(Head, usize)>, Violation> {
    let [a, b, ..] = *bytes else { return Ok(None) };
    if a & 0x70 != 0 {
        return Err(Violation(
            "reserved bits are set and no extension was agreed on",
        ));
    }
    let opcode = Opcode::parse(a & 0x0f).ok_or(Violation("an unknown opcode"))?;
    let extra = match b & 0x7f {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    let masked = b & 0x80 != 0;
    let used = 2 + extra + if masked { 4 } else { 0 };
    if bytes.len() < used {
        return Ok(None);
    }
    let length = match extra {
        0 => u64::from(b & 0x7f),
        _ => bytes[2..2 + extra]
            .iter()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
    };
    if length >> 63 != 0 {
        return Err(Violation("a length with its highest bit set"));
    }
    let mask = masked.then(|| {
        let at = 2 + extra;
        [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]
    });
    let head = Head {
        opcode,
        fin: a & 0x80 != 0,
        mask,
        length,
    };
    Ok(Some((head, used)))
}

/// §5.3; `offset` is where in the frame's payload the bytes begin.
pub(in crate::streams) fn unmask(bytes: &mut [u8], mask: Option<[u8; 4]>, offset: u64) {
    let Some(mut mask) = mask else { return };
    mask.rotate_left((offset % 4) as usize);
    super::encode::apply_mask(bytes, mask);
}

fn parse_close(payload: Bytes) -> Result<Option<(u16, String)>, Violation> {
    match *payload {
        [] => Ok(None),
        [_] => Err(Violation("a close frame with half a code")),
        [high, low, ref reason @ ..] => {
            let code = u16::from_be_bytes([high, low]);
            if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) {
                return Err(Violation("a close code that must not be sent"));
            }
            std::str::from_utf8(reason)
                .map(|reason| Some((code, reason.to_owned())))
                .map_err(|_| Violation("a close reason that is not UTF-8"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::encode::{encode, encode_close},
        *,
    };

    fn drain(decoder: &mut Decoder) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = decoder.event().unwrap() {
            events.push(event);
        }
        events
    }

    fn text_of(events: &[Event]) -> Vec<u8> {
        let pieces = events.iter().filter_map(|e| match e {
            Event::Piece(piece) => Some(piece.payload.to_vec()),
            _ => None,
        });
        pieces.flatten().collect()
    }

    #[test]
    fn a_masked_message_comes_out_whole_however_it_is_cut() {
        let payload: Vec<u8> = (0..70_000u32).map(|i| (i % 251) as u8).collect();
        let mut wire = BytesMut::new();
        encode(&mut wire, Opcode::Binary, Some([1, 2, 3, 4]), &[&payload]);
        for step in [1, 2, 3, 5, 1021, 70_014] {
            let mut decoder = Decoder::new(Peer::Client);
            let mut events = Vec::new();
            for chunk in wire.chunks(step) {
                decoder.buffer().extend_from_slice(chunk);
                events.extend(drain(&mut decoder));
            }
            assert_eq!(text_of(&events), payload, "step {step}");
            let firsts = events
                .iter()
                .filter(|e| matches!(e, Event::Piece(p) if p.first));
            assert_eq!(firsts.count(), 1);
            assert!(matches!(events.last(), Some(Event::Piece(p)) if p.last));
        }
    }

    #[test]
    fn control_frames_pass_between_fragments() {
        let mut decoder = Decoder::new(Peer::Server);
        let wire = [
            &[0x01, 2, b'a', b'b'][..],
            &[0x89, 1, b'p'],
            &[0x00, 0],
            &[0x80, 1, b'c'],
        ];
        decoder.buffer().extend_from_slice(&wire.concat());
        let events = drain(&mut decoder);
        assert_eq!(text_of(&events), b"abc");
        assert_eq!(events[1], Event::Ping(Bytes::from_static(b"p")));
        assert!(matches!(&events[3], Event::Piece(p) if p.text && p.last && !p.first));
    }

    #[test]
    fn violations_are_named() {
        let cases: &[(Peer, &[u8], &str)] = &[
            (Peer::Client, &[0x82, 1, 0], "must be masked"),
            (
                Peer::Server,
                &[0x82, 0x81, 0, 0, 0, 0, 0],
                "must not be masked",
            ),
            (Peer::Server, &[0x80, 0], "continuation without"),
            (Peer::Server, &[0x01, 0, 0x82, 0], "inside a fragmented"),
            (Peer::Server, &[0x09, 0], "not be fragmented"),
            (Peer::Server, &[0x89, 126, 0, 200], "longer than 125"),
            (Peer::Server, &[0xc2, 0], "reserved bits"),
            (Peer::Server, &[0x83, 0], "unknown opcode"),
            (Peer::Server, &[0x88, 1, 3], "half a code"),
            (Peer::Server, &[0x88, 2, 3, 0xed], "must not be sent"),
            (Peer::Server, &[0x88, 3, 3, 0xe8, 0xff], "not UTF-8"),
            (
                Peer::Server,
                &[0x82, 127, 0x80, 0, 0, 0, 0, 0, 0, 0],
                "highest bit",
            ),
        ];
        for (peer, wire, expected) in cases {
            let mut decoder = Decoder::new(*peer);
            decoder.buffer().extend_from_slice(wire);
            let error = loop {
                match decoder.event() {
                    Err(error) => break error,
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("no violation in {wire:?}"),
                }
            };
            assert!(error.0.contains(expected), "{error} for {wire:?}");
        }
    }

    #[test]
    fn a_close_carries_its_code_and_reason() {
        let mut wire = BytesMut::new();
        encode_close(&mut wire, None, 4003, "the workspace was stopped");
        let mut decoder = Decoder::new(Peer::Server);
        decoder.buffer().extend_from_slice(&wire);
        let close = Event::Close(Some((4003, "the workspace was stopped".to_owned())));
        assert_eq!(drain(&mut decoder), [close]);
        decoder.buffer().extend_from_slice(&[0x88, 0]);
        assert_eq!(drain(&mut decoder), [Event::Close(None)]);
    }
}
