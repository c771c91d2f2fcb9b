//! Terminal sizes in the two spellings that clients use.
//!
//! In raw modes a size is a whole text message `{"type":"resize","cols":…,"rows":…}`. Everything
//! else that is sent as text is bytes, at once: only a message that begins like a size is held,
//! and never more than [`LONGEST`] bytes of it.

use bytes::{Bytes, BytesMut};
use serde::Deserialize;

use super::{Input, Size};
use crate::streams::frame::Piece;

/// The longest message that can be a size.
pub(super) const LONGEST: usize = 128;

const BEGINNING: &[u8] = br#"{"type":"resize","#;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    #[serde(rename = "type")]
    kind: String,
    cols: u16,
    rows: u16,
}

/// `TerminalSize` of Kubernetes, on channel 4.
#[derive(Deserialize)]
struct Terminal {
    #[serde(rename = "Width")]
    width: u16,
    #[serde(rename = "Height")]
    height: u16,
}

/// A size as channel 4 spells it.
pub(super) fn parse_terminal(bytes: &[u8]) -> Option<Size> {
    let size: Terminal = serde_json::from_slice(bytes).ok()?;
    Some(Size {
        cols: size.width,
        rows: size.height,
    })
}

/// The same, to send.
pub(super) fn terminal(size: Size) -> String {
    format!(r#"{{"Width":{},"Height":{}}}"#, size.cols, size.rows)
}

fn parse_raw(bytes: &[u8]) -> Option<Size> {
    let size: Raw = serde_json::from_slice(bytes).ok()?;
    (size.kind == "resize").then_some(Size {
        cols: size.cols,
        rows: size.rows,
    })
}

/// Reads sizes where text is for nothing else.
#[derive(Debug, Default)]
pub struct SizeReader(BytesMut);

impl SizeReader {
    /// # Errors
    /// A text message that is no size.
    pub(super) fn take(&mut self, piece: Piece) -> Result<Option<Input>, &'static str> {
        if !piece.text {
            return Ok((!piece.payload.is_empty()).then_some(Input::Data(piece.payload)));
        }
        if piece.first {
            self.0.clear();
        }
        if self.0.len() + piece.payload.len() > LONGEST {
            return Err(NO_SIZE);
        }
        self.0.extend_from_slice(&piece.payload);
        if !piece.last {
            return Ok(None);
        }
        let size = parse_raw(&self.0).filter(|size| size.cols > 0 && size.rows > 0);
        size.map(|size| Some(Input::Resize(size))).ok_or(NO_SIZE)
    }
}

const NO_SIZE: &str =
    "after the first message, text must be {\"type\":\"resize\",\"cols\":80,\"rows\":24}";

/// Tells sizes from bytes in the text messages of raw modes.
#[derive(Debug, Default)]
pub(super) struct TextGate {
    held: BytesMut,
    /// The current message was found to be bytes.
    passing: bool,
}

impl TextGate {
    /// Takes the next piece of a message.
    pub(super) fn take(&mut self, piece: Piece) -> Option<Input> {
        if piece.first {
            self.held.clear();
            self.passing = !piece.text;
        }
        if self.passing {
            return (!piece.payload.is_empty()).then_some(Input::Data(piece.payload));
        }
        self.held.extend_from_slice(&piece.payload);
        if !self.may_be_a_size() {
            self.passing = true;
            return self.release();
        }
        if !piece.last {
            return None;
        }
        match parse_raw(&self.held) {
            Some(size) => {
                self.held.clear();
                Some(Input::Resize(size))
            }
            None => self.release(),
        }
    }

    fn may_be_a_size(&self) -> bool {
        let common = self.held.len().min(BEGINNING.len());
        self.held.len() <= LONGEST && self.held[..common] == BEGINNING[..common]
    }

    fn release(&mut self) -> Option<Input> {
        let held: Bytes = self.held.split().freeze();
        (!held.is_empty()).then_some(Input::Data(held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(text: bool, parts: &[&str]) -> Vec<Piece> {
        let last = parts.len() - 1;
        let piece = |(i, part): (usize, &&str)| Piece {
            text,
            first: i == 0,
            last: i == last,
            payload: Bytes::copy_from_slice(part.as_bytes()),
        };
        parts.iter().enumerate().map(piece).collect()
    }

    fn run(text: bool, parts: &[&str]) -> Vec<Input> {
        let mut gate = TextGate::default();
        let taken = pieces(text, parts).into_iter().filter_map(|p| gate.take(p));
        taken.collect()
    }

    fn data(text: &str) -> Input {
        Input::Data(Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn where_text_is_sizes_other_text_is_refused() {
        let take = |text: bool, parts: &[&str]| {
            let mut reader = SizeReader::default();
            let taken = pieces(text, parts).into_iter().map(|p| reader.take(p));
            taken.collect::<Vec<_>>()
        };
        let size = |cols, rows| Ok(Some(Input::Resize(Size { cols, rows })));
        let whole = r#" {"type": "resize", "rows": 50, "cols": 200} "#;
        assert_eq!(take(true, &[whole]), [size(200, 50)]);
        let (head, tail) = whole.split_at(9);
        assert_eq!(take(true, &[head, tail]), [Ok(None), size(200, 50)]);
        assert_eq!(take(false, &[whole]), [Ok(Some(data(whole)))]);
        for other in [
            "ls",
            r#"{"type":"ssh","user":"u","privateKey":"k"}"#,
            r#"{"type":"resize","cols":0,"rows":1}"#,
            &" ".repeat(200),
        ] {
            assert_eq!(take(true, &[other]), [Err(NO_SIZE)], "{other}");
        }
    }

    #[test]
    fn a_whole_text_message_is_a_size() {
        let size = Input::Resize(Size {
            cols: 200,
            rows: 50,
        });
        let whole = r#"{"type":"resize","cols":200,"rows":50}"#;
        let inputs = run(true, &[whole]);
        assert_eq!(inputs.as_slice(), std::slice::from_ref(&size));
        assert_eq!(
            run(true, &[r#"{"type":"re"#, r#"size","cols":200,"rows":50}"#]),
            [size]
        );
        assert_eq!(run(false, &[whole]), [data(whole)], "binary is bytes");
    }

    #[test]
    fn what_only_looks_like_a_size_is_bytes() {
        for text in [
            "ls\r",
            "{",
            r#"{"type":"resize","cols":200,"rows":50} "x"#,
            r#"{"type":"resize","cols":200,"rows":50,"x":1}"#,
            r#"{"type":"resize","cols":-1,"rows":50}"#,
            r#" {"type":"resize","cols":1,"rows":50}"#,
        ] {
            assert_eq!(run(true, &[text]), [data(text)], "{text}");
        }
    }

    #[test]
    fn typing_is_not_held_back() {
        let mut gate = TextGate::default();
        let mut parts = pieces(true, &["l", "s", "\r"]).into_iter();
        assert_eq!(parts.next().and_then(|p| gate.take(p)), Some(data("l")));
        assert_eq!(parts.next().and_then(|p| gate.take(p)), Some(data("s")));
    }

    #[test]
    fn a_long_message_that_begins_like_a_size_is_released() {
        let long = format!(r#"{{"type":"resize","{}"#, "x".repeat(LONGEST));
        assert_eq!(run(true, &[&long, "tail"]), [data(&long), data("tail")]);
    }
}
