//! `v1.tunnel.kubeworkspaces.io`: bytes with an end of each direction, which WebSocket itself lacks.
//!
//! The first byte of a message says what it is: [`DATA`], or [`END`] of the sender's data. After an
//! end the other direction goes on.

use bytes::Buf as _;

use super::Input;
use crate::streams::frame::Piece;

/// The rest of the message is data.
pub(super) const DATA: u8 = 0;
/// The sender has no more data; the message has one byte.
pub(super) const END: u8 = 1;

/// Reader of a client's messages.
#[derive(Debug, Default)]
pub struct TunnelReader {
    /// What the message under way is.
    current: Option<u8>,
    ended: bool,
}

impl TunnelReader {
    /// The meaning of the next piece, if it has one; empty messages have none.
    pub(super) fn take(&mut self, mut piece: Piece) -> Result<Option<Input>, &'static str> {
        if piece.first {
            self.current = None;
        }
        let mut begins = false;
        if self.current.is_none() && !piece.payload.is_empty() {
            self.current = Some(piece.payload.get_u8());
            begins = true;
        }
        match self.current {
            None => Ok(None),
            Some(DATA) if piece.payload.is_empty() => Ok(None),
            Some(DATA) if self.ended => Err("data after the end of data"),
            Some(DATA) => Ok(Some(Input::Data(piece.payload))),
            Some(END) if !piece.payload.is_empty() => Err("an end of data that carries data"),
            Some(END) if self.ended && begins => Err("a second end of data"),
            Some(END) if begins => {
                self.ended = true;
                Ok(Some(Input::Eof))
            }
            Some(END) => Ok(None),
            Some(_) => Err("a tunnel message begins with 0 (data) or 1 (end of data)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn take(messages: &[&[&'static [u8]]]) -> Result<Vec<Input>, &'static str> {
        let mut reader = TunnelReader::default();
        let mut inputs = Vec::new();
        for message in messages {
            let last = message.len() - 1;
            for (i, part) in message.iter().enumerate() {
                let piece = Piece {
                    text: false,
                    first: i == 0,
                    last: i == last,
                    payload: Bytes::from_static(part),
                };
                inputs.extend(reader.take(piece)?);
            }
        }
        Ok(inputs)
    }

    fn data(bytes: &'static [u8]) -> Input {
        Input::Data(Bytes::from_static(bytes))
    }

    #[test]
    fn the_first_byte_of_a_message_says_what_it_is_however_it_is_cut() {
        let cut = take(&[
            &[b"", b"\x00", b"a\x01", b"\x00"],
            &[b""],
            &[b"\x00"],
            &[b"\x01", b""],
        ]);
        assert_eq!(cut, Ok(vec![data(b"a\x01"), data(b"\x00"), Input::Eof]));
    }

    #[test]
    fn what_breaks_the_protocol_is_named() {
        for (messages, expected) in [
            (vec![&[&b"\x02x"[..]][..]], "begins with"),
            (vec![&[&b"\x01x"[..]][..]], "carries data"),
            (
                vec![&[&b"\x01"[..]][..], &[&b"\x00x"[..]][..]],
                "after the end",
            ),
            (vec![&[&b"\x01"[..]][..], &[&b"\x01"[..]][..]], "second end"),
        ] {
            let error = take(&messages).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
