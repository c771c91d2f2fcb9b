//! The upstream's dialect: a serial line of KubeVirt, or a command in a pod.

use std::borrow::Cow;

use bytes::{Buf as _, BytesMut};
use serde_json::Value;

use super::{Exit, Input, Output, Stdio, channel, resize::terminal};
use crate::streams::frame::Piece;

/// The longest Status that is read from a kubelet.
const LONGEST_STATUS: usize = 16 * 1024;

/// What ends input on a terminal, as Ctrl-D does. Closing the stream instead (v5 could) makes the
/// container runtime end the terminal at once, and what the shell still writes is lost.
const END_KEY: &[u8] = b"\x04";

/// Reads and writes the messages of one upstream.
#[derive(Debug)]
pub enum UpstreamWire {
    /// Bytes both ways; a serial line has no size and no end of input.
    Serial,
    /// Kubernetes channels.
    Exec(Stdio, ExecReader),
}

/// Reader of channels.
#[derive(Debug, Default)]
pub struct ExecReader {
    current: Option<u8>,
    status: BytesMut,
}

impl UpstreamWire {
    /// For a command in a pod.
    pub fn exec(stdio: Stdio) -> Self {
        Self::Exec(stdio, ExecReader::default())
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
            (Self::Serial, Input::Data(bytes)) => Some((&[], Cow::Borrowed(bytes))),
            (Self::Serial, Input::Resize(_) | Input::Eof) => None,
            (Self::Exec(..), Input::Data(bytes)) => Some((&[channel::STDIN], Cow::Borrowed(bytes))),
            (Self::Exec(Stdio::Terminal, _), Input::Resize(size)) => {
                Some((&[channel::RESIZE], terminal(*size).into_bytes().into()))
            }
            (Self::Exec(Stdio::Pipes, _), Input::Resize(_)) => None,
            (Self::Exec(Stdio::Terminal, _), Input::Eof) => {
                Some((&[channel::STDIN], Cow::Borrowed(END_KEY)))
            }
            (Self::Exec(Stdio::Pipes, _), Input::Eof) => {
                Some((&[channel::CLOSE], Cow::Borrowed(&[channel::STDIN])))
            }
        }
    }

    /// The meaning of the next piece, if it has one.
    pub fn read(&mut self, piece: Piece) -> Option<Output> {
        match self {
            Self::Serial => (!piece.payload.is_empty()).then_some(Output::Data(piece.payload)),
            Self::Exec(_, reader) => reader.take(piece),
        }
    }
}

impl ExecReader {
    fn take(&mut self, mut piece: Piece) -> Option<Output> {
        if piece.first {
            self.current = None;
        }
        if self.current.is_none() && !piece.payload.is_empty() {
            self.current = Some(piece.payload.get_u8());
        }
        match self.current? {
            channel::STATUS => {
                let room = LONGEST_STATUS.saturating_sub(self.status.len());
                let take = piece.payload.len().min(room);
                self.status.extend_from_slice(&piece.payload[..take]);
                (piece.last && !self.status.is_empty())
                    .then(|| Output::Exit(parse_exit(&self.status.split())))
            }
            _ if piece.payload.is_empty() => None,
            channel::STDOUT => Some(Output::Data(piece.payload)),
            channel::STDERR => Some(Output::Errors(piece.payload)),
            _ => None,
        }
    }
}

/// Reads the Status on channel 3 as client-go does (`tools/remotecommand/v4.go`).
fn parse_exit(bytes: &[u8]) -> Exit {
    let Ok(status) = serde_json::from_slice::<Value>(bytes) else {
        return Exit::Failed(String::from_utf8_lossy(bytes).into_owned());
    };
    if status["status"] == "Success" {
        return Exit::Code(0);
    }
    let code = status["details"]["causes"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|cause| cause["reason"] == "ExitCode")
        .and_then(|cause| cause["message"].as_str()?.parse().ok());
    match code {
        Some(code) if status["reason"] == "NonZeroExitCode" => Exit::Code(code),
        _ => Exit::Failed(
            status["message"]
                .as_str()
                .unwrap_or("no reason given")
                .to_owned(),
        ),
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

    #[test]
    fn exit_statuses_are_read() {
        let cases: &[(&str, Exit)] = &[
            (r#"{"status":"Success"}"#, Exit::Code(0)),
            (
                r#"{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"130"}]}}"#,
                Exit::Code(130),
            ),
            (
                r#"{"status":"Failure","reason":"InternalError","message":"no such container"}"#,
                Exit::Failed("no such container".into()),
            ),
            ("plain words", Exit::Failed("plain words".into())),
        ];
        for (status, expected) in cases {
            let mut wire = UpstreamWire::exec(Stdio::Pipes);
            let (head, tail) = status.split_at(5);
            let piece = |first, last, payload: Vec<u8>| Piece {
                text: false,
                first,
                last,
                payload: payload.into(),
            };
            let head = [&[3], head.as_bytes()].concat();
            assert_eq!(wire.read(piece(true, false, head)), None);
            let exit = wire.read(piece(false, true, tail.into()));
            assert_eq!(exit, Some(Output::Exit(expected.clone())));
        }
    }
}
