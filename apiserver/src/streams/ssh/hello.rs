//! The first message of a terminal: who logs in to the guest, and with which key.
//!
//! `{"type":"ssh","user":"…","privateKey":"…"}`, as the bridges before us had it, and optionally
//! `cols`, `rows` and `term`. Other fields are ignored. Pure.

use std::{fmt, ops::Range};

use zeroize::Zeroizing;

use super::json::{NotJson, Reader};
use crate::streams::wire::Size;

/// The longest first message.
pub const LONGEST: usize = 16 * 1024;
/// The longest name of a user; Linux has 32 characters, directories more.
const LONGEST_USER: usize = 256;
/// The longest name of a terminal type.
const LONGEST_TERM: usize = 64;

/// Why a first message is not understood, in the caller's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misread {
    /// No JSON, or not this object.
    #[error(
        "the first message must be one text frame with {{\"type\":\"ssh\",\"user\":…,\"privateKey\":…}}"
    )]
    Shape,
    /// Another type than `ssh`.
    #[error("the first message must have the type ssh")]
    Type,
    /// No user.
    #[error("the first message names no user: user is empty or missing")]
    NoUser,
    /// A name that no guest can have.
    #[error("user must be at most 256 bytes without control characters")]
    User,
    /// No key.
    #[error("the first message has no key: privateKey is empty or missing")]
    NoKey,
    /// A field given twice.
    #[error("the first message gives a field twice")]
    Twice,
    /// A size that no terminal has.
    #[error("cols and rows must be whole numbers from 1 to 65535")]
    Size,
    /// A terminal type that is none.
    #[error("term must be at most 64 letters, digits or any of + - . _")]
    Term,
}

impl From<NotJson> for Misread {
    fn from(_: NotJson) -> Self {
        Self::Shape
    }
}

/// A first message. The key stays where it was received, and is wiped when this is dropped.
pub struct Hello {
    /// The user in the guest.
    pub user: String,
    /// The size of the client's terminal, if it said one.
    pub size: Option<Size>,
    /// The type of the client's terminal, if it said one.
    pub term: Option<String>,
    message: Zeroizing<Vec<u8>>,
    key: Range<usize>,
}

/// Never the key.
impl fmt::Debug for Hello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { user, size, .. } = self;
        write!(f, "Hello {{ user: {user:?}, size: {size:?}, .. }}")
    }
}

#[derive(Default)]
struct Fields {
    kind: Option<Range<usize>>,
    user: Option<Range<usize>>,
    key: Option<Range<usize>>,
    term: Option<Range<usize>>,
    cols: Option<u32>,
    rows: Option<u32>,
}

impl Hello {
    /// Reads a whole message, in place.
    ///
    /// # Errors
    /// What the message lacks.
    pub fn read(mut message: Zeroizing<Vec<u8>>) -> Result<Self, Misread> {
        let mut reader = Reader::new(&mut message);
        let fields = Fields::read(&mut reader)?;
        let text = |range: &Option<Range<usize>>| range.as_ref().map(|range| reader.text(range));
        if text(&fields.kind) != Some("ssh") {
            return Err(Misread::Type);
        }
        let user = user(text(&fields.user).unwrap_or_default())?;
        let term = text(&fields.term).map(term).transpose()?;
        let size = size(fields.cols, fields.rows)?;
        let key = fields.key.filter(|key| !reader.text(key).trim().is_empty());
        Ok(Self {
            user,
            size,
            term,
            key: key.ok_or(Misread::NoKey)?,
            message,
        })
    }

    /// The private key as it was sent.
    pub(super) fn private_key(&self) -> &str {
        let bytes = self.message.get(self.key.clone()).unwrap_or_default();
        std::str::from_utf8(bytes).unwrap_or_default()
    }
}

impl Fields {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Misread> {
        let mut fields = Self::default();
        reader.expect(b'{')?;
        if reader.peek()? == b'}' {
            return Ok(fields);
        }
        loop {
            fields.take(reader)?;
            if !reader.another(b'}')? {
                break;
            }
        }
        if reader.ends() {
            Ok(fields)
        } else {
            Err(Misread::Shape)
        }
    }

    fn take(&mut self, reader: &mut Reader<'_>) -> Result<(), Misread> {
        let name = reader.string()?;
        reader.expect(b':')?;
        let (text, number) = match reader.text(&name) {
            "type" => (Some(&mut self.kind), None),
            "user" => (Some(&mut self.user), None),
            "privateKey" => (Some(&mut self.key), None),
            "term" => (Some(&mut self.term), None),
            "cols" => (None, Some(&mut self.cols)),
            "rows" => (None, Some(&mut self.rows)),
            _ => return Ok(reader.skip()?),
        };
        if let Some(field) = text {
            once(field, reader.string()?)?;
        }
        if let Some(field) = number {
            once(field, reader.number().map_err(|_| Misread::Size)?)?;
        }
        Ok(())
    }
}

fn once<T>(field: &mut Option<T>, value: T) -> Result<(), Misread> {
    match field.replace(value) {
        None => Ok(()),
        Some(_) => Err(Misread::Twice),
    }
}

fn user(name: &str) -> Result<String, Misread> {
    match name {
        "" => Err(Misread::NoUser),
        _ if name.len() > LONGEST_USER || name.chars().any(char::is_control) => Err(Misread::User),
        _ => Ok(name.to_owned()),
    }
}

fn term(name: &str) -> Result<String, Misread> {
    let known = |c: char| c.is_ascii_alphanumeric() || "+-._".contains(c);
    if name.is_empty() || name.len() > LONGEST_TERM || !name.chars().all(known) {
        return Err(Misread::Term);
    }
    Ok(name.to_owned())
}

/// Half a size is none.
fn size(cols: Option<u32>, rows: Option<u32>) -> Result<Option<Size>, Misread> {
    let (Some(cols), Some(rows)) = (cols, rows) else {
        return Ok(None);
    };
    let fit = |n: u32| u16::try_from(n).ok().filter(|n| *n > 0);
    match (fit(cols), fit(rows)) {
        (Some(cols), Some(rows)) => Ok(Some(Size { cols, rows })),
        _ => Err(Misread::Size),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Hello, Misread> {
        Hello::read(Zeroizing::new(text.as_bytes().to_vec()))
    }

    #[test]
    fn a_first_message_is_read_with_its_escapes() {
        let hello = read(
            r#" {"type":"ssh", "user":"jos\u00e9", "extra":{"a":[1]}, "privateKey":"-----BEGIN\nab\/c\n",
                "cols":200,"rows":50,"term":"screen-256color"} "#,
        )
        .unwrap();
        assert_eq!(hello.user, "josé");
        assert_eq!(hello.private_key(), "-----BEGIN\nab/c\n");
        assert_eq!(
            hello.size,
            Some(Size {
                cols: 200,
                rows: 50
            })
        );
        assert_eq!(hello.term.as_deref(), Some("screen-256color"));
        let small = read(r#"{"privateKey":"k","user":"u","type":"ssh","cols":80}"#).unwrap();
        assert_eq!((small.size, small.term.as_deref()), (None, None));
    }

    #[test]
    fn what_is_missing_is_named() {
        let with = |rest: &str| format!(r#"{{"type":"ssh","user":"u","privateKey":"k"{rest}}}"#);
        let cases = [
            ("", Misread::Shape),
            ("ls", Misread::Shape),
            ("[]", Misread::Shape),
            ("{}", Misread::Type),
            (r#"{"type":"ssh"}"#, Misread::NoUser),
            (r#"{"type":"resize","cols":1,"rows":1}"#, Misread::Type),
            (
                r#"{"type":"ssh","user":"","privateKey":"k"}"#,
                Misread::NoUser,
            ),
            (
                r#"{"type":"ssh","user":"a\n","privateKey":"k"}"#,
                Misread::User,
            ),
            (r#"{"type":"ssh","user":"u"}"#, Misread::NoKey),
            (
                r#"{"type":"ssh","user":"u","privateKey":" \n"}"#,
                Misread::NoKey,
            ),
            (
                r#"{"type":"ssh","user":5,"privateKey":"k"}"#,
                Misread::Shape,
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(read(text).unwrap_err(), expected, "{text}");
        }
        let long = format!(r#","user":"{}""#, "x".repeat(300));
        for (rest, expected) in [
            (r#","cols":0,"rows":1"#, Misread::Size),
            (r#","cols":1,"rows":70000"#, Misread::Size),
            (r#","cols":"80","rows":1"#, Misread::Size),
            (r#","term":"x y""#, Misread::Term),
            (r#","user":"v""#, Misread::Twice),
            (long.as_str(), Misread::Twice),
            ("} x", Misread::Shape),
        ] {
            assert_eq!(read(&with(rest)).unwrap_err(), expected, "{rest}");
        }
    }

    #[test]
    fn a_first_message_never_prints_its_key() {
        let hello = read(r#"{"type":"ssh","user":"u","privateKey":"topsecret"}"#).unwrap();
        assert!(!format!("{hello:?}").contains("topsecret"));
    }
}
