//! The upstream's dialect: a serial line, display or port of KubeVirt, a command in or a port of a pod.

use std::borrow::Cow;

use super::{
    Input, Output, Stdio, channel, exec::ExecReader, port, port::PortReader, resize::terminal,
};
use crate::streams::frame::Piece;

/// What ends input on a terminal, as Ctrl-D does. Closing the stream instead (v5 could) makes the
/// container runtime end the terminal at once, and what the shell still writes is lost.
const END_KEY: &[u8] = b"\x04";
/// A close that says that all went well (RFC 6455 §7.4.1).
const NORMAL: u16 = 1000;

/// Reads and writes the messages of one upstream.
#[derive(Debug)]
pub enum UpstreamWire {
    /// Bytes both ways; a serial line has no size and no end of input.
    Serial,
    /// Bytes both ways, RFB.
    Display,
    /// A port of a guest, through KubeVirt: bytes both ways, which end together.
    GuestPort,
    /// A port of a pod, through its kubelet: the same in channels.
    PodPort(PortReader),
    /// Kubernetes channels.
    Exec(Stdio, ExecReader),
}

impl UpstreamWire {
    /// For a command in a pod.
    pub fn exec(stdio: Stdio) -> Self {
        Self::Exec(stdio, ExecReader::default())
    }

    /// For a port of a pod.
    pub fn pod_port() -> Self {
        Self::PodPort(PortReader::default())
    }

    /// Whether the end of one direction can only be told by ending both.
    pub fn ends_both(&self) -> bool {
        matches!(self, Self::GuestPort | Self::PodPort(_))
    }

    /// Whether this is how a port's connection ends when nothing is wrong: `None` is the end of the
    /// WebSocket's own connection. A kubelet says why a port failed on a channel, and goodbye in any
    /// case (`golang.org/x/net/websocket`); virt-api hangs up.
    pub fn is_ordinary_end(&self, close: Option<&Option<(u16, String)>>) -> bool {
        match (self, close) {
            (Self::GuestPort, None) => true,
            (Self::GuestPort | Self::PodPort(_), Some(None)) => true,
            (Self::GuestPort | Self::PodPort(_), Some(Some((code, _)))) => *code == NORMAL,
            _ => false,
        }
    }

    /// Whether the upstream wants pongs that nobody asked for: virt-api renews its deadline of 60 s by
    /// nothing else, and its pings are not read while the client takes no data.
    pub fn wants_pongs(&self) -> bool {
        matches!(self, Self::GuestPort)
    }

    /// Whether messages are bare bytes, and nothing else.
    pub fn is_bare(&self) -> bool {
        matches!(self, Self::Serial | Self::Display | Self::GuestPort)
    }

    /// What to say once more while the command runs on although its input has ended. A key is an
    /// event that the program before the last may have read, or a shell that was setting up its
    /// terminal may have lost; the end of input is a state.
    pub fn end_again(&self) -> Option<Input> {
        matches!(self, Self::Exec(Stdio::Terminal, _)).then_some(Input::Eof)
    }

    /// The message for this input: a prefix and bytes. `None`: the upstream cannot be told.
    pub fn write<'a>(&self, input: &'a Input) -> Option<(&'static [u8], Cow<'a, [u8]>)> {
        match (self, input) {
            (Self::Serial | Self::Display | Self::GuestPort, Input::Data(bytes)) => {
                Some((&[], Cow::Borrowed(bytes)))
            }
            (Self::PodPort(_), Input::Data(bytes)) => Some((&[port::DATA], Cow::Borrowed(bytes))),
            (Self::Exec(..), Input::Data(bytes)) => Some((&[channel::STDIN], Cow::Borrowed(bytes))),
            (Self::Exec(Stdio::Terminal, _), Input::Resize(size)) => {
                Some((&[channel::RESIZE], terminal(*size).into_bytes().into()))
            }
            (Self::Exec(Stdio::Terminal, _), Input::Eof) => {
                Some((&[channel::STDIN], Cow::Borrowed(END_KEY)))
            }
            (Self::Exec(Stdio::Pipes, _), Input::Eof) => {
                Some((&[channel::CLOSE], Cow::Borrowed(&[channel::STDIN])))
            }
            (_, Input::Resize(_) | Input::Eof) => None,
        }
    }

    /// The meaning of the next piece, if it has one.
    pub fn read(&mut self, piece: Piece) -> Option<Output> {
        match self {
            Self::Serial | Self::Display | Self::GuestPort => {
                (!piece.payload.is_empty()).then_some(Output::Data(piece.payload))
            }
            Self::PodPort(reader) => reader.take(piece),
            Self::Exec(_, reader) => reader.take(piece),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::streams::wire::Size;

    const SIZE: Input = Input::Resize(Size { cols: 80, rows: 24 });

    #[test]
    fn a_serial_line_gets_bytes_and_nothing_else() {
        let data = Input::Data(Bytes::from_static(b"x"));
        assert_eq!(
            UpstreamWire::Serial.write(&data),
            Some((&[][..], Cow::Borrowed(&b"x"[..])))
        );
        assert_eq!(UpstreamWire::Serial.write(&SIZE), None);
        assert_eq!(UpstreamWire::Serial.write(&Input::Eof), None);
    }

    #[test]
    fn only_ports_end_without_a_word() {
        let said = |code| Some((code, String::new()));
        let cases = [
            (UpstreamWire::GuestPort, [true, true, true, false]),
            (UpstreamWire::pod_port(), [false, true, true, false]),
            (UpstreamWire::Serial, [false; 4]),
            (UpstreamWire::Display, [false; 4]),
            (UpstreamWire::exec(Stdio::Terminal), [false; 4]),
        ];
        for (wire, expected) in cases {
            let got = [None, Some(&None), Some(&said(1000)), Some(&said(1011))];
            assert_eq!(
                got.map(|end| wire.is_ordinary_end(end)),
                expected,
                "{wire:?}"
            );
        }
    }

    #[test]
    fn a_command_gets_sizes_and_the_end_of_input() {
        let terminal = UpstreamWire::exec(Stdio::Terminal);
        assert_eq!(
            terminal.write(&SIZE),
            Some((&[4][..], Cow::Borrowed(&br#"{"Width":80,"Height":24}"#[..])))
        );
        assert_eq!(
            terminal.write(&Input::Eof),
            Some((&[0][..], Cow::Borrowed(&b"\x04"[..])))
        );
        assert_eq!(terminal.end_again(), Some(Input::Eof));
        let pipes = UpstreamWire::exec(Stdio::Pipes);
        assert_eq!(pipes.write(&SIZE), None);
        assert_eq!(
            pipes.write(&Input::Eof),
            Some((&[255][..], Cow::Borrowed(&[0][..])))
        );
        for once in [pipes, UpstreamWire::Serial] {
            assert_eq!(once.end_again(), None);
        }
    }
}
