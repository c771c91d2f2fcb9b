//! Gives the prefix to the absolute links of a page while it streams by.
//!
//! Behind kube-apiserver a page's `/static/x.js` would be asked of kube-apiserver. This reads HTML as
//! far as it has to (the tokenizer of the HTML standard, §13.2.5: tags, attributes, comments, raw text)
//! and inserts the prefix before what begins with a slash in an attribute that holds a URL; every other
//! byte passes as it is. Scripts and style sheets are not read: what they ask for by absolute paths is
//! not found, and `docs/streams.md` says so.
//!
//! It is our own because of what it leaves out: a rewriter with selectors and a parser of all of HTML
//! (lol_html) is larger than the rest of this server's streams, and nothing here depends on a page
//! being understood rightly: who may ask for what is decided by path, origin and cookie.
//!
//! Memory is bounded by the beginning of one link ([`Links::longest`]). Entry point: [`Rewriter`].

mod characters;
mod links;
#[cfg(test)]
mod tests;

use links::Kind;
pub(super) use links::Links;

/// Has no end tag: it is the last element of its page.
const PLAINTEXT: &[u8] = b"plaintext";

/// Elements whose content is text up to their end tag.
const RAW: [&[u8]; 9] = [
    b"script",
    b"style",
    b"textarea",
    b"title",
    b"iframe",
    b"xmp",
    b"noembed",
    b"noframes",
    PLAINTEXT,
];

/// The longest name that means something here, and one more: what is longer is nothing.
const LONGEST_NAME: usize = 16;

/// A name in lower case, as far as it can matter.
#[derive(Clone, Debug, Default)]
struct Name(Vec<u8>);

impl Name {
    fn begin(&mut self, byte: u8) {
        self.0.clear();
        self.push(byte);
    }

    fn push(&mut self, byte: u8) {
        if self.0.len() <= LONGEST_NAME {
            self.0.push(byte.to_ascii_lowercase());
        }
    }
}

/// Where a byte stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Between tags.
    Text,
    /// After `<`.
    Open,
    /// After `</`.
    OpenEnd,
    /// After `<!`, with so many dashes seen.
    Bang(u8),
    /// In a comment, after so many dashes; 3 is `--!`.
    Comment(u8),
    /// In something that ends at the next `>`.
    Bogus,
    /// In the content of a raw element, with so much of its end tag seen.
    Raw(usize),
    Tag,
    BeforeAttribute,
    Attribute,
    AfterAttribute,
    BeforeValue,
    Value(Value),
}

/// The value of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Value {
    /// What ends it: a quote, or else a space or `>`.
    quote: Option<u8>,
    /// What it holds, if that matters.
    kind: Option<Kind>,
    at: At,
}

/// Where in a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Before the first byte of a link that is not a space.
    Start,
    /// In the beginning of a link, which is held back.
    Held,
    /// Behind what matters of a link; in a list, whether the last byte was a comma.
    Link(bool),
    /// Behind a link of a list, where a comma begins the next.
    Descriptor,
}

/// Rewrites one page.
#[derive(Debug)]
pub(super) struct Rewriter {
    links: Links,
    state: State,
    tag: Name,
    /// Whether the tag is an end tag, whose attributes mean nothing.
    is_end: bool,
    attribute: Name,
    held: Vec<u8>,
}

impl Rewriter {
    /// For a page whose links are these.
    pub(super) fn new(links: Links) -> Self {
        Self {
            links,
            state: State::Text,
            tag: Name::default(),
            is_end: false,
            attribute: Name::default(),
            held: Vec::new(),
        }
    }

    /// Takes the next bytes of the page; what they become is added to `out`.
    pub(super) fn feed(&mut self, mut input: &[u8], out: &mut Vec<u8>) {
        out.reserve(input.len());
        while let Some((first, rest)) = input.split_first() {
            if self.state == State::Text {
                let tag = input.iter().position(|byte| *byte == b'<');
                let (text, tags) = input.split_at(tag.unwrap_or(input.len()));
                if !text.is_empty() {
                    out.extend_from_slice(text);
                    input = tags;
                    continue;
                }
            }
            self.take(*first, out);
            input = rest;
        }
    }

    /// The page has ended; what was held back is added to `out`.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        if let State::Value(value) = self.state
            && value.at == At::Held
        {
            self.settle(value, out);
        }
    }

    fn take(&mut self, byte: u8, out: &mut Vec<u8>) {
        if let State::Value(value) = self.state {
            return self.value(value, byte, out);
        }
        out.push(byte);
        self.state = match self.state {
            State::Text if byte == b'<' => State::Open,
            State::Text => State::Text,
            State::Open => self.open(byte),
            State::OpenEnd => self.open_end(byte),
            State::Bang(dashes) => bang(dashes, byte),
            State::Comment(dashes) => comment(dashes, byte),
            State::Bogus if byte == b'>' => State::Text,
            State::Bogus => State::Bogus,
            State::Raw(seen) => self.raw(seen, byte),
            State::Tag => self.in_tag(byte),
            State::BeforeAttribute => self.before_attribute(byte),
            State::Attribute => self.in_attribute(byte),
            State::AfterAttribute => self.after_attribute(byte),
            State::BeforeValue => self.before_value(byte, out),
            State::Value(value) => State::Value(value),
        };
    }

    fn open(&mut self, byte: u8) -> State {
        match byte {
            b'/' => State::OpenEnd,
            b'!' => State::Bang(0),
            b'?' => State::Bogus,
            b'<' => State::Open,
            byte if byte.is_ascii_alphabetic() => self.begin_tag(byte, false),
            _ => State::Text,
        }
    }

    fn open_end(&mut self, byte: u8) -> State {
        match byte {
            b'>' => State::Text,
            byte if byte.is_ascii_alphabetic() => self.begin_tag(byte, true),
            _ => State::Bogus,
        }
    }

    fn begin_tag(&mut self, byte: u8, is_end: bool) -> State {
        self.tag.begin(byte);
        self.is_end = is_end;
        State::Tag
    }

    fn in_tag(&mut self, byte: u8) -> State {
        match byte {
            b'>' => self.end_tag(),
            b'/' => State::BeforeAttribute,
            byte if is_space(byte) => State::BeforeAttribute,
            byte => {
                self.tag.push(byte);
                State::Tag
            }
        }
    }

    /// After the `>` of a tag.
    fn end_tag(&self) -> State {
        match !self.is_end && RAW.contains(&&*self.tag.0) {
            true => State::Raw(0),
            false => State::Text,
        }
    }

    /// Looks for `</`, the element's name, and what ends a name.
    fn raw(&mut self, seen: usize, byte: u8) -> State {
        let name = &self.tag.0;
        if name == PLAINTEXT {
            return State::Raw(0);
        }
        let expected = match seen {
            0 => Some(b'<'),
            1 => Some(b'/'),
            seen => name.get(seen - 2).copied(),
        };
        match (expected, byte) {
            (Some(expected), byte) if byte.to_ascii_lowercase() == expected => State::Raw(seen + 1),
            (None, b'>') => State::Text,
            (None, byte) if byte == b'/' || is_space(byte) => {
                self.is_end = true;
                State::BeforeAttribute
            }
            (_, b'<') => State::Raw(1),
            _ => State::Raw(0),
        }
    }

    fn before_attribute(&mut self, byte: u8) -> State {
        match byte {
            b'>' => self.end_tag(),
            b'/' => State::BeforeAttribute,
            byte if is_space(byte) => State::BeforeAttribute,
            // An attribute may even begin with `=`.
            byte => {
                self.attribute.begin(byte);
                State::Attribute
            }
        }
    }

    fn in_attribute(&mut self, byte: u8) -> State {
        match byte {
            b'=' => State::BeforeValue,
            b'>' => self.end_tag(),
            b'/' => State::BeforeAttribute,
            byte if is_space(byte) => State::AfterAttribute,
            byte => {
                self.attribute.push(byte);
                State::Attribute
            }
        }
    }

    fn after_attribute(&mut self, byte: u8) -> State {
        match byte {
            b'=' => State::BeforeValue,
            byte if is_space(byte) => State::AfterAttribute,
            byte => self.before_attribute(byte),
        }
    }

    fn before_value(&mut self, byte: u8, out: &mut Vec<u8>) -> State {
        let kind = match self.is_end {
            true => None,
            false => links::kind(&self.tag.0, &self.attribute.0),
        };
        let begin = |quote| Value {
            quote,
            kind,
            at: At::Start,
        };
        match byte {
            byte if is_space(byte) => State::BeforeValue,
            b'>' => self.end_tag(),
            b'"' | b'\'' => State::Value(begin(Some(byte))),
            byte => {
                // It is the first of the value itself.
                out.pop();
                self.value(begin(None), byte, out);
                self.state
            }
        }
    }

    fn value(&mut self, value: Value, byte: u8, out: &mut Vec<u8>) {
        let ends = match value.quote {
            Some(quote) => byte == quote,
            None => byte == b'>' || is_space(byte),
        };
        if ends {
            if value.at == At::Held {
                self.settle(value, out);
            }
            out.push(byte);
            self.state = match (value.quote, byte) {
                (None, b'>') => self.end_tag(),
                _ => State::BeforeAttribute,
            };
            return;
        }
        let at = match value.kind {
            None => {
                out.push(byte);
                value.at
            }
            Some(kind) => self.link(value, kind, byte, out),
        };
        self.state = State::Value(Value { at, ..value });
    }

    fn link(&mut self, value: Value, kind: Kind, byte: u8, out: &mut Vec<u8>) -> At {
        let is_list = kind == Kind::List;
        match value.at {
            At::Start if is_space(byte) || is_list && byte == b',' => {
                out.push(byte);
                At::Start
            }
            At::Start | At::Held => {
                if is_list && is_space(byte) {
                    let comma = self.held.last() == Some(&b',');
                    self.settle(value, out);
                    out.push(byte);
                    return if comma { At::Start } else { At::Descriptor };
                }
                self.held.push(byte);
                match self.held.len() < self.links.longest(kind) {
                    true => At::Held,
                    false => {
                        self.settle(value, out);
                        At::Link(byte == b',')
                    }
                }
            }
            At::Link(comma) => {
                out.push(byte);
                match is_list && is_space(byte) {
                    true if comma => At::Start,
                    true => At::Descriptor,
                    false => At::Link(byte == b','),
                }
            }
            At::Descriptor => {
                out.push(byte);
                match byte {
                    b',' => At::Start,
                    _ => At::Descriptor,
                }
            }
        }
    }

    /// Lets go of what was held back.
    fn settle(&mut self, value: Value, out: &mut Vec<u8>) {
        if let Some(kind) = value.kind {
            self.links.write(kind, &self.held, out);
        }
        self.held.clear();
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b'\x0c')
}

fn bang(dashes: u8, byte: u8) -> State {
    match (dashes, byte) {
        (0, b'-') => State::Bang(1),
        // `<!-->` is a whole comment.
        (1, b'-') => State::Comment(2),
        (_, b'>') => State::Text,
        _ => State::Bogus,
    }
}

fn comment(dashes: u8, byte: u8) -> State {
    match (dashes, byte) {
        (2 | 3, b'>') => State::Text,
        (2, b'!') => State::Comment(3),
        (0 | 3, b'-') => State::Comment(1),
        (_, b'-') => State::Comment(2),
        _ => State::Comment(0),
    }
}
