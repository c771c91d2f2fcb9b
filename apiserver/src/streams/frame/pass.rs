//! Data frames straight from one side to the other, their payload as it is (RFC 6455 §5.2 to §5.4).
//!
//! Towards an upstream we are the client, so that what a client has masked is masked already, with a key that its
//! sender chose (§5.3); what an upstream sends is masked by nobody. Payload is therefore copied once, and neither
//! unmasked nor looked at. Frames that are in hand as a whole go on as they stand, many at once, apart from their first
//! byte: each becomes a message of its own, so that ours fit between any two. A longer one goes on as a message for each
//! part that is in hand: its end may never come, and pings must not wait for it.

use bytes::{Buf as _, BufMut as _, BytesMut};

use super::{
    Opcode,
    decode::{Decoder, Head, Rest, parse_head},
    encode::put_head,
};

/// The first byte of a binary message of one frame.
const WHOLE: u8 = 0x82;

/// Which messages may go on without being looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passing {
    /// All: text is bytes too.
    Everything,
    /// All but text, which may mean something.
    Binary,
}

impl Decoder {
    /// Moves what is in hand to the end of `out`, until that is as long as `limit` or something comes that has to be
    /// looked at: a control frame, a violation, text; [`Decoder::event`] yields that. Tells how many bytes of payload
    /// were moved.
    pub fn pass(&mut self, out: &mut BytesMut, limit: usize, passing: Passing) -> usize {
        let mut moved = 0;
        while out.len() < limit {
            let step = match self.rest {
                Some(_) => self.pass_part(out, passing),
                None => self.pass_whole(out, limit - out.len(), passing),
            };
            match step {
                0 => break,
                step => moved += step,
            }
        }
        moved
    }

    /// Whole frames, as they stand; then begins one that is longer than what is in hand.
    fn pass_whole(&mut self, out: &mut BytesMut, room: usize, passing: Passing) -> usize {
        let (mut run, mut payload) = (0, 0);
        while run < room
            && let Ok(Some((head, used))) = parse_head(&self.buffer[run..])
            && self.may_pass(&head, passing)
        {
            let length = usize::try_from(head.length).unwrap_or(usize::MAX);
            if length > self.buffer.len() - run - used || !is_shortest(used, &head) {
                out.extend_from_slice(&self.buffer[..run]);
                self.buffer.advance(run + used);
                self.begin(head);
                return payload + self.pass_part(out, passing);
            }
            self.buffer[run] = WHOLE;
            self.note(&head);
            (run, payload) = (run + used + length, payload + length);
        }
        out.extend_from_slice(&self.buffer[..run]);
        self.buffer.advance(run);
        payload
    }

    /// What is in hand of a long frame, as a message; a masked frame that is cut at k goes on with its key rotated by k.
    fn pass_part(&mut self, out: &mut BytesMut, passing: Passing) -> usize {
        let text = self.message == Some(true);
        let Some(rest) = self
            .rest
            .filter(|_| !text || passing == Passing::Everything)
        else {
            return 0;
        };
        let left = rest.head.length - rest.taken;
        let part = usize::try_from(left).map_or(self.buffer.len(), |l| l.min(self.buffer.len()));
        if part == 0 {
            return 0;
        }
        let mask = rest.head.mask.map(|mut mask| {
            mask.rotate_left((rest.taken % 4) as usize);
            mask
        });
        put_head(out, Opcode::Binary, mask, part);
        out.put_slice(&self.buffer[..part]);
        self.buffer.advance(part);
        let taken = rest.taken + part as u64;
        let ends = taken == rest.head.length;
        if ends && rest.head.fin {
            self.message = None;
        }
        self.rest = (!ends).then_some(Rest {
            taken,
            first: false,
            ..rest
        });
        part
    }

    /// Whether a frame is data that nobody has to look at. Empty ones mean nothing, and do not go on.
    fn may_pass(&self, head: &Head, passing: Passing) -> bool {
        let text = match head.opcode {
            Opcode::Text => true,
            Opcode::Continuation => self.message == Some(true),
            _ => false,
        };
        !head.opcode.is_control()
            && head.length > 0
            && !(text && passing == Passing::Binary)
            && self.check(head).is_ok()
    }
}

/// Whether a length is written in as few bytes as it must be (§5.2); we send no other.
fn is_shortest(used: usize, head: &Head) -> bool {
    let masked = if head.mask.is_some() { 4 } else { 0 };
    let expected = match head.length {
        0..=125 => 2,
        126..=0xffff => 4,
        _ => 10,
    };
    used == expected + masked
}
