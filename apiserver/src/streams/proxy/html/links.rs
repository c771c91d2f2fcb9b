//! Which attributes hold links, and which links get the prefix. Pure.

use super::characters::{Characters, LONGEST_REFERENCE};
use crate::streams::proxy::{location::Own, path::Prefix};

/// The most of a `content` that is looked at for the URL of a refresh.
const REFRESH: usize = 64;

/// What the value of an attribute holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A link.
    Link,
    /// Links with descriptors, between commas.
    List,
    /// Perhaps a refresh: seconds and a link.
    Refresh,
}

/// What an attribute of a tag holds, both in lower case.
pub(super) fn kind(tag: &[u8], attribute: &[u8]) -> Option<Kind> {
    match (tag, attribute) {
        (
            _,
            b"href" | b"src" | b"action" | b"formaction" | b"poster" | b"background" | b"manifest"
            | b"xlink:href",
        )
        | (b"object", b"data") => Some(Kind::Link),
        (_, b"srcset" | b"imagesrcset") => Some(Kind::List),
        (b"meta", b"content") => Some(Kind::Refresh),
        _ => None,
    }
}

/// The links of a guest's pages.
#[derive(Clone, Debug)]
pub(in crate::streams::proxy) struct Links {
    prefix: Prefix,
    origins: Vec<String>,
    longest: usize,
}

impl Links {
    /// Under this prefix, of a guest that calls itself so.
    pub(in crate::streams::proxy) fn new(prefix: Prefix, own: &Own) -> Self {
        let origins = own.origins();
        let known = origins.iter().map(String::as_str).chain([prefix.as_str()]);
        // One more tells whether a path or an origin goes on.
        let longest = known.map(written).max().unwrap_or(0) + LONGEST_REFERENCE;
        Self {
            prefix,
            origins,
            longest,
        }
    }

    /// How much of a value has to be known.
    pub(super) fn longest(&self, kind: Kind) -> usize {
        match kind {
            Kind::Link | Kind::List => self.longest,
            Kind::Refresh => REFRESH + self.longest,
        }
    }

    /// Writes the header `Refresh`, with the prefix if it needs it.
    pub(in crate::streams::proxy) fn refresh(&self, value: &[u8], out: &mut Vec<u8>) {
        self.write(Kind::Refresh, value, out);
    }

    /// Writes the beginning of a value, with the prefix if it needs it.
    pub(super) fn write(&self, kind: Kind, held: &[u8], out: &mut Vec<u8>) {
        let at = match kind {
            Kind::Link | Kind::List => Some(0),
            Kind::Refresh => refresh(held),
        };
        let link = at.and_then(|at| {
            let dropped = self.dropped(&held[at..])?;
            Some((at, at + dropped))
        });
        match link {
            None => out.extend_from_slice(held),
            Some((at, rest)) => {
                out.extend_from_slice(&held[..at]);
                out.extend_from_slice(self.prefix.as_str().as_bytes());
                out.extend_from_slice(&held[rest..]);
            }
        }
    }

    /// How much of a link goes for the prefix; `None` if it stays as it is.
    fn dropped(&self, link: &[u8]) -> Option<usize> {
        let (link, ends): (Vec<u8>, Vec<usize>) = Characters::of(link).unzip();
        if let [b'/' | b'\\', rest @ ..] = &link[..] {
            let elsewhere = matches!(rest.first(), Some(b'/' | b'\\'));
            return (!elsewhere && !self.prefix.covers(&link)).then_some(0);
        }
        let length = self.origins.iter().map(String::len).find(|length| {
            let origin = link.get(..*length);
            let own = |origin: &[u8]| {
                self.origins
                    .iter()
                    .any(|own| own.as_bytes().eq_ignore_ascii_case(origin))
            };
            origin.is_some_and(own) && matches!(link.get(*length), None | Some(b'/' | b'?' | b'#'))
        })?;
        ends.get(length - 1).copied()
    }
}

/// How long a link may be when its marks are written as references.
fn written(link: &str) -> usize {
    let marks = link.bytes().filter(u8::is_ascii_punctuation).count();
    link.len() + marks * (LONGEST_REFERENCE - 1)
}

/// Where the URL of a refresh begins (the HTML standard, "shared declarative refresh steps").
fn refresh(content: &[u8]) -> Option<usize> {
    let skip = |at: usize, skipped: fn(u8) -> bool| {
        at + content[at..]
            .iter()
            .take_while(|byte| skipped(**byte))
            .count()
    };
    let space = |byte: u8| byte.is_ascii_whitespace();
    let seconds = skip(0, space);
    let after = skip(seconds, |byte| byte.is_ascii_digit() || byte == b'.');
    let mut at = skip(after, space);
    if after == seconds || !matches!(content.get(at), Some(b';' | b',')) {
        return None;
    }
    at = skip(at + 1, space);
    let word = content.get(at..at + 3);
    if word.is_some_and(|word| word.eq_ignore_ascii_case(b"url")) {
        let equals = skip(at + 3, space);
        if content.get(equals) == Some(&b'=') {
            at = skip(equals + 1, space);
        }
    }
    let quoted = matches!(content.get(at), Some(b'"' | b'\''));
    Some(at + usize::from(quoted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_of_a_refresh_is_found() {
        for (content, link) in [
            ("0;url=/x", Some("/x")),
            (" 1.5 ; URL = '/x'", Some("/x'")),
            ("0,/x", Some("/x")),
            ("0; /x", Some("/x")),
            ("5", None),
            ("width=device-width", None),
            ("/x", None),
            (";url=/x", None),
            ("", None),
        ] {
            let found = refresh(content.as_bytes()).map(|at| &content[at..]);
            assert_eq!(found, link, "{content:?}");
        }
    }
}
