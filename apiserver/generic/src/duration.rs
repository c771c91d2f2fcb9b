//! Durations as Go writes them: `1h2m3.5s`, `150ms`, `0` (`time.ParseDuration`).

use std::time::Duration;

/// Reads a duration that is not negative; `None` when it is none.
pub fn parse(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    if text.is_empty() {
        return None;
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| c.is_ascii_digit() || c == '.');
        let (unit, tail) = tail.split_at(letters.unwrap_or(tail.len()));
        seconds += number.parse::<f64>().ok()? * seconds_of(unit)?;
        rest = tail;
    }
    Duration::try_from_secs_f64(seconds).ok()
}

fn seconds_of(unit: &str) -> Option<f64> {
    Some(match unit {
        "h" => 3_600.0,
        "m" => 60.0,
        "s" => 1.0,
        "ms" => 1e-3,
        "us" | "µs" | "μs" => 1e-6,
        "ns" => 1e-9,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, millis) in [
            ("0", Some(0)),
            ("30s", Some(30_000)),
            ("1m30s", Some(90_000)),
            ("1.5s", Some(1_500)),
            ("+1s500ms", Some(1_500)),
            ("", None),
            ("32", None),
            ("-1s", None),
            ("s", None),
            ("1x", None),
            ("99999999999999999999h", None),
        ] {
            assert_eq!(parse(text).map(|d| d.as_millis()), millis, "{text}");
        }
    }
}
