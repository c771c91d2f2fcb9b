//! A command in a pod: Kubernetes channels, and the Status at their end.

use bytes::{Buf as _, BytesMut};
use serde_json::Value;

use super::{Exit, Output, channel};
use crate::streams::frame::Piece;

/// The longest Status that is read from a kubelet.
const LONGEST_STATUS: usize = 16 * 1024;

/// Reader of channels.
#[derive(Debug, Default)]
pub struct ExecReader {
    current: Option<u8>,
    status: BytesMut,
}

impl ExecReader {
    /// The meaning of the next piece, if it has one.
    pub(super) fn take(&mut self, mut piece: Piece) -> Option<Output> {
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
    use super::*;

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
            let mut wire = ExecReader::default();
            let (head, tail) = status.split_at(5);
            let piece = |first, last, payload: Vec<u8>| Piece {
                text: false,
                first,
                last,
                payload: payload.into(),
            };
            let head = [&[3], head.as_bytes()].concat();
            assert_eq!(wire.take(piece(true, false, head)), None);
            let exit = wire.take(piece(false, true, tail.into()));
            assert_eq!(exit, Some(Output::Exit(expected.clone())));
        }
    }
}
