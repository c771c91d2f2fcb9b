//! Go's durations, as far as people type them. Entry point: [`parse`].

use std::time::Duration;

/// `90`, `90s`, `1m30s`, `2h`, `500ms`. A number alone is seconds.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a time such as 30s, 2m or 1h");
    if let Ok(seconds) = text.parse::<u32>() {
        return Ok(Duration::from_secs(seconds.into()));
    }
    let (mut total, mut rest) = (Duration::ZERO, text);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let number: u32 = rest[..digits].parse().map_err(|_| wrong())?;
        let unit = rest[digits..]
            .find(|c: char| c.is_ascii_digit())
            .map_or(rest.len(), |end| digits + end);
        let one = match &rest[digits..unit] {
            "ms" => Duration::from_millis(1),
            "s" => Duration::from_secs(1),
            "m" => Duration::from_secs(60),
            "h" => Duration::from_secs(3600),
            _ => return Err(wrong()),
        };
        total = one
            .checked_mul(number)
            .and_then(|part| total.checked_add(part))
            .ok_or_else(wrong)?;
        rest = &rest[unit..];
    }
    if text.is_empty() {
        Err(wrong())
    } else {
        Ok(total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_gos() {
        let cases = [
            ("90", 90_000),
            ("90s", 90_000),
            ("1m30s", 90_000),
            ("2h", 7_200_000),
            ("500ms", 500),
            ("0", 0),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text), Ok(Duration::from_millis(expected)), "{text}");
        }
        for text in [
            "",
            "x",
            "1x",
            "s",
            "1m3",
            "-1s",
            "99999999999",
            "4294967296h",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
