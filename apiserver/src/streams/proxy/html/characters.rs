//! The characters of a link as a browser sees them: references are read (HTML standard §13.2.5.72 ff.), and
//! tabs and line ends are none (URL standard §4.4). Only what may begin a link or its origin is read: ASCII.
//!
//! Template engines escape: mustache and handlebars write `/` as `&#x2F;`.

/// The longest reference that is read: `&colon;`, `&#x002F;` has one more.
pub(super) const LONGEST_REFERENCE: usize = 8;

/// The marks of URLs that have names, each with its semicolon.
const NAMED: [(&[u8], u8); 6] = [
    (b"sol;", b'/'),
    (b"bsol;", b'\\'),
    (b"colon;", b':'),
    (b"period;", b'.'),
    (b"quest;", b'?'),
    (b"num;", b'#'),
];

/// Characters, each with where it ends in what was written.
pub(super) struct Characters<'a> {
    written: &'a [u8],
    at: usize,
}

impl<'a> Characters<'a> {
    /// Of a link.
    pub(super) fn of(written: &'a [u8]) -> Self {
        Self { written, at: 0 }
    }
}

impl Iterator for Characters<'_> {
    type Item = (u8, usize);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let rest = self.written.get(self.at..)?;
            let (character, length) = match rest {
                [] => return None,
                [b'&', reference @ ..] => match read(reference) {
                    Some((character, length)) => (character, 1 + length),
                    None => (b'&', 1),
                },
                [byte, ..] => (*byte, 1),
            };
            self.at += length;
            if !matches!(character, b'\t' | b'\n' | b'\r') {
                return Some((character, self.at));
            }
        }
    }
}

/// The character that a reference stands for, and its length behind the `&`.
fn read(reference: &[u8]) -> Option<(u8, usize)> {
    let (digits, radix, before) = match reference {
        [b'#', b'x' | b'X', digits @ ..] => (digits, 16, 2),
        [b'#', digits @ ..] => (digits, 10, 1),
        name => {
            let (name, character) = NAMED.iter().find(|(known, _)| name.starts_with(known))?;
            return Some((*character, name.len()));
        }
    };
    let digit = |byte: &u8| char::from(*byte).is_digit(radix);
    let count = digits.iter().take_while(|byte| digit(byte)).count();
    let number = std::str::from_utf8(&digits[..count]).ok()?;
    let character = u8::from_str_radix(number, radix).ok()?;
    // It may be left out.
    let semicolon = usize::from(digits.get(count) == Some(&b';'));
    character
        .is_ascii()
        .then_some((character, before + count + semicolon))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_read_and_line_ends_are_not() {
        for (written, read) in [
            ("/a", "/a"),
            ("&#x2F;a", "/a"),
            ("&#X2f;&#47;&#047", "///"),
            ("&sol;&bsol;&colon;", "/\\:"),
            ("&sol &amp;x", "&sol &amp;x"),
            ("&#;&#x;&#xzz&", "&#;&#x;&#xzz&"),
            ("&#x2F2F;&#233;", "&#x2F2F;&#233;"),
            ("/\t&#10;/", "//"),
        ] {
            let got: Vec<u8> = Characters::of(written.as_bytes()).map(|(c, _)| c).collect();
            assert_eq!(String::from_utf8_lossy(&got), read, "{written}");
        }
        let ends: Vec<usize> = Characters::of(b"a&#x2F;b").map(|(_, end)| end).collect();
        assert_eq!(ends, [1, 7, 8]);
    }
}
