//! JSON read where it stands (RFC 8259): strings are unescaped in place, so that a secret in them is
//! never copied into a buffer that nobody wipes.
//!
//! Entry point: [`Reader`]. Pure.

use std::ops::Range;

/// How deep values may nest that are skipped.
const DEEPEST: usize = 16;

/// The text is no JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotJson;

type Result<T> = std::result::Result<T, NotJson>;

/// A cursor over a text.
pub(super) struct Reader<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// At the start of the text.
    pub(super) fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// What a range that [`Reader::string`] gave holds.
    pub(super) fn text(&self, range: &Range<usize>) -> &str {
        let bytes = self.bytes.get(range.clone()).unwrap_or_default();
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    /// Takes this character, after any space.
    pub(super) fn expect(&mut self, wanted: u8) -> Result<()> {
        match self.peek()? {
            found if found == wanted => {
                self.at += 1;
                Ok(())
            }
            _ => Err(NotJson),
        }
    }

    /// The next character that is no space.
    pub(super) fn peek(&mut self) -> Result<u8> {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.bytes.get(self.at) {
            self.at += 1;
        }
        self.bytes.get(self.at).copied().ok_or(NotJson)
    }

    /// Whether nothing but space is left.
    pub(super) fn ends(&mut self) -> bool {
        self.peek().is_err()
    }

    /// Whether an object or array goes on with another member; takes the comma or the end.
    pub(super) fn another(&mut self, end: u8) -> Result<bool> {
        let found = self.peek()?;
        self.at += 1;
        match found {
            b',' => Ok(true),
            found if found == end => Ok(false),
            _ => Err(NotJson),
        }
    }

    /// A string, unescaped: where it now stands.
    pub(super) fn string(&mut self) -> Result<Range<usize>> {
        self.expect(b'"')?;
        let start = self.at;
        let mut end = start;
        loop {
            match self.next()? {
                b'"' => break,
                b'\\' => self.escape(&mut end)?,
                0..0x20 => return Err(NotJson),
                byte => self.put(&mut end, byte),
            }
        }
        match std::str::from_utf8(&self.bytes[start..end]) {
            Ok(_) => Ok(start..end),
            Err(_) => Err(NotJson),
        }
    }

    /// A whole number of at most five digits.
    pub(super) fn number(&mut self) -> Result<u32> {
        self.peek()?;
        let digits = self.bytes[self.at..]
            .iter()
            .take(6)
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        if !(1..=5).contains(&digits) {
            return Err(NotJson);
        }
        let (start, end) = (self.at, self.at + digits);
        self.at = end;
        let number = self.bytes[start..end]
            .iter()
            .fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'));
        Ok(number)
    }

    /// Passes over any value.
    pub(super) fn skip(&mut self) -> Result<()> {
        self.skip_within(DEEPEST)
    }

    fn skip_within(&mut self, depth: usize) -> Result<()> {
        let deeper = depth.checked_sub(1).ok_or(NotJson);
        match self.peek()? {
            b'"' => self.string().map(drop),
            b'{' => self.skip_members(b'}', deeper?),
            b'[' => self.skip_members(b']', deeper?),
            _ => self.skip_word(),
        }
    }

    fn skip_members(&mut self, end: u8, depth: usize) -> Result<()> {
        self.at += 1;
        if self.peek()? == end {
            self.at += 1;
            return Ok(());
        }
        loop {
            if end == b'}' {
                self.string()?;
                self.expect(b':')?;
            }
            self.skip_within(depth)?;
            if !self.another(end)? {
                return Ok(());
            }
        }
    }

    /// A number, `true`, `false` or `null`: what exactly does not matter to anybody.
    fn skip_word(&mut self) -> Result<()> {
        let word = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
        let length = self.bytes[self.at..].iter().take_while(|b| word(b)).count();
        self.at += length;
        if length == 0 { Err(NotJson) } else { Ok(()) }
    }

    fn next(&mut self) -> Result<u8> {
        let byte = self.bytes.get(self.at).copied().ok_or(NotJson)?;
        self.at += 1;
        Ok(byte)
    }

    /// Writes behind the cursor, which an escape never overtakes.
    fn put(&mut self, end: &mut usize, byte: u8) {
        self.bytes[*end] = byte;
        *end += 1;
    }

    fn escape(&mut self, end: &mut usize) -> Result<()> {
        let byte = match self.next()? {
            byte @ (b'"' | b'\\' | b'/') => byte,
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => return self.unicode(end),
            _ => return Err(NotJson),
        };
        self.put(end, byte);
        Ok(())
    }

    fn unicode(&mut self, end: &mut usize) -> Result<()> {
        let first = self.hex()?;
        let code = if (0xd800..0xdc00).contains(&first) {
            let low = match (self.next()?, self.next()?) {
                (b'\\', b'u') => self.hex()?,
                _ => return Err(NotJson),
            };
            let low = low.checked_sub(0xdc00).filter(|low| *low < 0x400);
            0x10000 + ((first - 0xd800) << 10) + low.ok_or(NotJson)?
        } else {
            first
        };
        let mut buffer = [0; 4];
        let character = char::from_u32(code).ok_or(NotJson)?;
        for byte in character.encode_utf8(&mut buffer).bytes() {
            self.put(end, byte);
        }
        Ok(())
    }

    fn hex(&mut self) -> Result<u32> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = char::from(self.next()?).to_digit(16).ok_or(NotJson)?;
            code = code << 4 | digit;
        }
        Ok(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn string(text: &str) -> Option<String> {
        let mut bytes = text.as_bytes().to_vec();
        let mut reader = Reader::new(&mut bytes);
        let range = reader.string().ok()?;
        Some(reader.text(&range).to_owned()).filter(|_| reader.ends())
    }

    #[test]
    fn strings_mean_what_serde_says_they_mean() {
        for text in [
            r#""""#,
            r#""plain ü""#,
            r#"" \" \\ \/ \b \f \n \r \t ""#,
            r#""\u0041\u00fc\u20ac\ud83d\ude00x""#,
            r#""\ud83d""#,
            r#""\ud83d\u0041""#,
            r#""\ude00""#,
            r#""\u12""#,
            r#""\x""#,
            "\"a\nb\"",
            r#""open"#,
            r#"bare"#,
            r#""two" "x""#,
        ] {
            let expected = serde_json::from_str::<String>(text).ok();
            assert_eq!(string(text), expected, "{text}");
        }
    }

    #[test]
    fn text_that_is_not_utf_8_is_no_string() {
        let mut bytes = b"\"\xff\"".to_vec();
        assert_eq!(Reader::new(&mut bytes).string(), Err(NotJson));
    }

    #[test]
    fn values_are_passed_over_whole() {
        for (text, whole) in [
            ("1", true),
            ("-1.5e+3", true),
            ("null", true),
            ("[]", true),
            ("{}", true),
            (r#"{"a": [1, "]", {"b": {}}], "c": "}"}"#, true),
            ("[1 2]", false),
            (r#"{"a" 1}"#, false),
            ("[1,]", false),
            ("", false),
            ("]", false),
        ] {
            let mut bytes = text.as_bytes().to_vec();
            let mut reader = Reader::new(&mut bytes);
            assert_eq!(reader.skip().is_ok() && reader.ends(), whole, "{text}");
        }
        let deep = format!("{}{}", "[".repeat(17), "]".repeat(17));
        assert_eq!(Reader::new(&mut deep.into_bytes()).skip(), Err(NotJson));
    }

    #[test]
    fn numbers_have_an_end() {
        for (text, number) in [
            ("0", Ok(0)),
            ("65535", Ok(65_535)),
            ("123456", Err(NotJson)),
            ("-1", Err(NotJson)),
            ("", Err(NotJson)),
        ] {
            let mut bytes = text.as_bytes().to_vec();
            assert_eq!(Reader::new(&mut bytes).number(), number, "{text}");
        }
    }
}
