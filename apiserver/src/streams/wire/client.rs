//! The client's dialect: raw bytes, Kubernetes channels, or a tunnel whose directions end one by one.

use bytes::{Buf as _, BytesMut};
use serde_json::Value;

use super::{
    Input, Output, channel,
    resize::{LONGEST, SizeReader, TextGate, parse_terminal},
    tunnel::{self, TunnelReader},
};
use crate::streams::{
    close::CloseReason,
    frame::{Passing, Piece},
    negotiate::Subprotocol,
    ssh::messages,
};

/// Reads and writes the messages of one client.
#[derive(Debug)]
pub enum ClientWire {
    /// `plain.kubevirt.io`, `binary`, or nothing named: every message is bytes.
    Bytes,
    /// The same on a terminal: a text message may be a size.
    Raw(RawReader),
    /// `v4.channel.k8s.io` and `v5.channel.k8s.io`.
    Channels(ChannelReader),
    /// `v1.tunnel.kubeworkspaces.io`.
    Tunnel(TunnelReader),
    /// A terminal over SSH: binary is bytes, text is JSON.
    Ssh(SizeReader),
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
    /// For what was negotiated, where it means a terminal.
    pub fn terminal(subprotocol: Subprotocol) -> Self {
        match subprotocol {
            Subprotocol::Plain | Subprotocol::Binary | Subprotocol::Unnamed => {
                Self::Raw(RawReader::default())
            }
            other => Self::bytes(other),
        }
    }

    /// For what was negotiated, where it means bytes.
    pub fn bytes(subprotocol: Subprotocol) -> Self {
        match subprotocol {
            Subprotocol::Plain | Subprotocol::Binary | Subprotocol::Unnamed => Self::Bytes,
            Subprotocol::Tunnel => Self::Tunnel(TunnelReader::default()),
            Subprotocol::ChannelV4 | Subprotocol::ChannelV5 => Self::Channels(ChannelReader {
                closes: subprotocol == Subprotocol::ChannelV5,
                ..ChannelReader::default()
            }),
        }
    }

    /// Whether the end of the upstream's data can be told while the client goes on.
    pub fn has_eof(&self) -> bool {
        matches!(self, Self::Tunnel(_))
    }

    /// Which messages are bare bytes, and nothing else; `None`: this dialect has others.
    pub fn passing(&self) -> Option<Passing> {
        match self {
            Self::Bytes => Some(Passing::Everything),
            Self::Raw(_) => Some(Passing::Binary),
            Self::Channels(_) | Self::Tunnel(_) | Self::Ssh(_) => None,
        }
    }

    /// The meaning of the next piece, if it completes one.
    ///
    /// # Errors
    /// The client broke its dialect, and how.
    pub fn read(&mut self, piece: Piece) -> Result<Option<Input>, &'static str> {
        match self {
            Self::Bytes if piece.payload.is_empty() => Ok(None),
            Self::Bytes => Ok(Some(Input::Data(piece.payload))),
            Self::Raw(RawReader(gate)) => Ok(gate.take(piece)),
            Self::Channels(reader) => Ok(reader.take(piece)),
            Self::Tunnel(reader) => reader.take(piece),
            Self::Ssh(reader) => reader.take(piece),
        }
    }

    /// The first byte (none in raw modes) and the bytes of a message that says this.
    pub fn data<'a>(&self, output: &'a Output) -> Option<(&'static [u8], &'a [u8])> {
        let (number, bytes): (&'static [u8], &[u8]) = match output {
            Output::Data(bytes) => (&[channel::STDOUT], bytes),
            Output::Errors(bytes) => (&[channel::STDERR], bytes),
            Output::Eof if self.has_eof() => return Some((&[tunnel::END], &[])),
            Output::Eof | Output::Exit(_) => return None,
        };
        match self {
            Self::Bytes | Self::Raw(_) | Self::Ssh(_) => Some((&[], bytes)),
            Self::Channels(_) => Some((number, bytes)),
            Self::Tunnel(_) => Some((&[tunnel::DATA], bytes)),
        }
    }

    /// The message with a Status, for dialects that have one.
    pub fn status(&self, status: &Value) -> Option<Vec<u8>> {
        match self {
            Self::Bytes | Self::Raw(_) | Self::Tunnel(_) | Self::Ssh(_) => None,
            Self::Channels(_) => {
                let mut message = vec![channel::STATUS];
                message.extend_from_slice(status.to_string().as_bytes());
                Some(message)
            }
        }
    }
}

impl ClientWire {
    /// The last message before the close, for dialects that tell more than a close frame holds.
    pub fn farewell(&self, reason: &CloseReason) -> Option<String> {
        matches!(self, Self::Ssh(_)).then(|| messages::farewell(reason))
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
            let mut wire = ClientWire::terminal(Subprotocol::ChannelV5);
            assert_eq!(
                wire.read(whole(message)).as_ref(),
                Ok(expected),
                "{message:?}"
            );
        }
        let mut v4 = ClientWire::terminal(Subprotocol::ChannelV4);
        assert_eq!(v4.read(whole(b"\xff\x00")), Ok(None), "v4 has no close");
    }

    #[test]
    fn a_fragmented_message_has_one_channel_byte() {
        let mut wire = ClientWire::terminal(Subprotocol::ChannelV4);
        let piece = |first, last, payload: &'static [u8]| Piece {
            text: false,
            first,
            last,
            payload: Bytes::from_static(payload),
        };
        assert_eq!(wire.read(piece(true, false, b"")), Ok(None));
        let data = |bytes| Ok(Some(Input::Data(Bytes::from_static(bytes))));
        assert_eq!(wire.read(piece(false, false, b"\x00\x04")), data(b"\x04"));
        assert_eq!(
            wire.read(piece(false, true, b"\xff\x00")),
            data(b"\xff\x00")
        );
    }

    #[test]
    fn output_wears_the_clients_dress() {
        let output = Output::Data(Bytes::from_static(b"\xff\xfe"));
        let raw = ClientWire::terminal(Subprotocol::Binary);
        assert_eq!(raw.data(&output), Some((&[][..], &b"\xff\xfe"[..])));
        assert_eq!(raw.status(&Value::Null), None);
        let channels = ClientWire::terminal(Subprotocol::ChannelV5);
        assert_eq!(channels.data(&output), Some((&[1][..], &b"\xff\xfe"[..])));
        assert_eq!(channels.status(&Value::Null).unwrap(), b"\x03null");
    }

    #[test]
    fn only_a_terminal_has_sizes_in_text() {
        let size = br#"{"type":"resize","cols":200,"rows":50}"#;
        let text = || Piece {
            text: true,
            ..whole(size)
        };
        let mut terminal = ClientWire::terminal(Subprotocol::Binary);
        assert!(matches!(terminal.read(text()), Ok(Some(Input::Resize(_)))));
        let mut bytes = ClientWire::bytes(Subprotocol::Binary);
        let data = Input::Data(Bytes::from_static(size));
        assert_eq!(bytes.read(text()), Ok(Some(data)));
    }

    #[test]
    fn only_a_tunnel_can_tell_an_end_of_data() {
        for (subprotocol, expected) in [
            (Subprotocol::Binary, None),
            (Subprotocol::ChannelV5, None),
            (Subprotocol::Tunnel, Some((&[1][..], &[][..]))),
        ] {
            let wire = ClientWire::bytes(subprotocol);
            assert_eq!(wire.data(&Output::Eof), expected, "{subprotocol:?}");
        }
    }
}
