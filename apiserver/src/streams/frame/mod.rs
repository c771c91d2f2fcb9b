//! WebSocket frames (RFC 6455 §5) for a relay: payload is handed on as it arrives.
//!
//! A message library would hold a message until its end; a client may send one of any length, and
//! a relay with a bound must not. [`Decoder`] therefore yields pieces of messages, and [`encode`] writes
//! whole short frames, so that pings and closes always fit between.

mod decode;
mod encode;
mod pass;
#[cfg(test)]
mod tests;

pub use decode::{Decoder, Peer};
pub(in crate::streams) use decode::{Head, parse_head, unmask};
pub use encode::{Masks, encode, encode_close};
pub use pass::Passing;

use bytes::Bytes;

/// Opcodes of RFC 6455 §11.8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    /// More of a message.
    Continuation,
    /// Text.
    Text,
    /// Bytes.
    Binary,
    /// The end.
    Close,
    /// Are you there?
    Ping,
    /// Yes.
    Pong,
}

impl Opcode {
    fn parse(bits: u8) -> Option<Self> {
        Some(match bits {
            0 => Self::Continuation,
            1 => Self::Text,
            2 => Self::Binary,
            8 => Self::Close,
            9 => Self::Ping,
            10 => Self::Pong,
            _ => return None,
        })
    }

    fn bits(self) -> u8 {
        match self {
            Self::Continuation => 0,
            Self::Text => 1,
            Self::Binary => 2,
            Self::Close => 8,
            Self::Ping => 9,
            Self::Pong => 10,
        }
    }

    fn is_control(self) -> bool {
        self.bits() >= 8
    }
}

/// A part of a data message, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Whether the message was sent as text.
    pub text: bool,
    /// Whether the message begins here.
    pub first: bool,
    /// Whether the message ends here.
    pub last: bool,
    /// The bytes, unmasked.
    pub payload: Bytes,
}

/// What a peer sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Data.
    Piece(Piece),
    /// A ping to be answered with the same bytes.
    Ping(Bytes),
    /// A sign of life.
    Pong,
    /// The end, with a code and a reason unless the peer gave none.
    Close(Option<(u16, String)>),
}

/// A violation of RFC 6455: the connection ends with 1002.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Violation(pub &'static str);
