//! The client's dialect: raw bytes, or Kubernetes channels.

use bytes::{Buf as _, BytesMut};
use serde_json::Value;

use super::{
    Input, Output, channel,
    resize::{LONGEST, TextGate, parse_terminal},
};
use crate::streams::{frame::Piece, negotiate::Subprotocol};

/// Reads and writes the messages of one client.
#[derive(Debug)]
pub enum ClientWire {
    /// `plain.kubevirt.io`, `binary`, or nothing named.
    Raw(RawReader),
    /// `v4.channel.k8s.io` and `v5.channel.k8s.io`.
    Channels(ChannelReader),
}

/// Reader of raw modes.
#[derive(Debug, Default)]
pub struct RawReader(TextGate);

/// Reader of channel modes.
#[derive(Debug, Default)]
pub struct ChannelReader {
    /// v5 has a message that ends a channel.
    closes: bool,
    /// The channel of the message under way.
    current: Option<u8>,
    /// A control message under way, at most [`LONGEST`] bytes.
    control: BytesMut,
}

impl ClientWire {
    /// For what was negotiated.
    pub fn new(subprotocol: Subprotocol) -> Self {
        match subprotocol {
            Subprotocol::Plain | Subprotocol::Binary | Subprotocol::Unnamed => {
                Self::Raw(RawReader::default())
            }
            Subprotocol::ChannelV4 | Subprotocol::ChannelV5 => Self::Channels(ChannelReader {
                closes: subprotocol == Subprotocol::ChannelV5,
                ..ChannelReader::default()
            }),
        }
    }

    /// The meaning of the next piece, if it completes one.
    pub fn read(&mut self, piece: Piece) -> Option<Input> {
        match self {
            Self::Raw(RawReader(gate)) => gate.take(piece),
            Self::Channels(reader) => reader.take(piece),
        }
    }

    /// The channel byte (none in raw modes) and the bytes of a message that says this.
    pub fn data<'a>(&self, output: &'a Output) -> Option<(&'static [u8], &'a [u8])> {
        let (number, bytes): (&'static [u8], _) = match output {
            Output::Data(bytes) => (&[channel::STDOUT], bytes),
            Output::Errors(bytes) => (&[channel::STDERR], bytes),
            Output::Exit(_) => return None,
        };
        match self {
            Self::Raw(_) => Some((&[], bytes)),
            Self::Channels(_) => Some((number, bytes)),
        }
    }

    /// The message with a Status, for dialects that have one.
    pub fn status(&self, status: &Value) -> Option<Vec<u8>> {
        match self {
            Self::Raw(_) => None,
            Self::Channels(_) => {
                let mut message = vec![channel::STATUS];
                message.extend_from_slice(status.to_string().as_bytes());
                Some(message)
            }
        }
    }
}

impl ChannelReader {
    fn take(&mut self, mut piece: Piece) -> Option<Input> {
        if piece.first {
            self.current = None;
            self.control.clear();
        }
        if self.current.is_none() && !piece.payload.is_empty() {
            self.current = Some(piece.payload.get_u8());
        }
        match self.current? {
            channel::STDIN => (!piece.payload.is_empty()).then_some(Input::Data(piece.payload)),
            channel::RESIZE => {
                self.collect(&piece);
                let size = piece.last.then(|| parse_terminal(&self.control))??;
                Some(Input::Resize(size))
            }
            channel::CLOSE if self.closes => {
                self.collect(&piece);
                (piece.last && self.control.as_ref() == [channel::STDIN]).then_some(Input::Eof)
            }
            _ => None,
        }
    }

    fn collect(&mut self, piece: &Piece) {
        let room = LONGEST.saturating_sub(self.control.len());
        let take = piece.payload.len().min(room);
        self.control.extend_from_slice(&piece.payload[..take]);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::streams::wire::Size;

    fn whole(payload: &'static [u8]) -> Piece {
        Piece {
            text: false,
            first: true,
            last: true,
            payload: Bytes::from_static(payload),
        }
    }

    #[test]
    fn channels_mean_what_kubernetes_says() {
        let cases: &[(&'static [u8], Option<Input>)] = &[
            (b"\x00ls\r", Some(Input::Data(Bytes::from_static(b"ls\r")))),
            (b"\x00", None),
            (b"", None),
            (
                b"\x04{\"Width\":200,\"Height\":50}",
                Some(Input::Resize(Size {
                    cols: 200,
                    rows: 50,
                })),
            ),
            (b"\x04garbage", None),
            (b"\xff\x00", Some(Input::Eof)),
            (b"\xff\x01", None),
            (b"\x01not for clients", None),
        ];
        for (message, expected) in cases {
            let mut wire = ClientWire::new(Subprotocol::ChannelV5);
            assert_eq!(&wire.read(whole(message)), expected, "{message:?}");
        }
        let mut v4 = ClientWire::new(Subprotocol::ChannelV4);
        assert_eq!(v4.read(whole(b"\xff\x00")), None, "v4 has no close");
    }

    #[test]
    fn a_fragmented_message_has_one_channel_byte() {
        let mut wire = ClientWire::new(Subprotocol::ChannelV4);
        let piece = |first, last, payload: &'static [u8]| Piece {
            text: false,
            first,
            last,
            payload: Bytes::from_static(payload),
        };
        assert_eq!(wire.read(piece(true, false, b"")), None);
        let data = |bytes| Some(Input::Data(Bytes::from_static(bytes)));
        assert_eq!(wire.read(piece(false, false, b"\x00\x04")), data(b"\x04"));
        assert_eq!(
            wire.read(piece(false, true, b"\xff\x00")),
            data(b"\xff\x00")
        );
    }

    #[test]
    fn output_wears_the_clients_dress() {
        let output = Output::Data(Bytes::from_static(b"\xff\xfe"));
        let raw = ClientWire::new(Subprotocol::Binary);
        assert_eq!(raw.data(&output), Some((&[][..], &b"\xff\xfe"[..])));
        assert_eq!(raw.status(&Value::Null), None);
        let channels = ClientWire::new(Subprotocol::ChannelV5);
        assert_eq!(channels.data(&output), Some((&[1][..], &b"\xff\xfe"[..])));
        assert_eq!(channels.status(&Value::Null).unwrap(), b"\x03null");
    }
}
