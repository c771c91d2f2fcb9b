//! Kubernetes quantities, read for comparing and rounding; their text stays the author's.
//!
//! Grammar: `k8s.io/apimachinery/pkg/api/resource/quantity.go`.

use serde_json::Value;

const NANOS: i128 = 1_000_000_000;
/// Whatever is more counts as this, as kube-apiserver has it.
const MOST: i128 = i64::MAX as i128 * NANOS;
/// Digits that count: so many times `Ei` is still an `i128`.
const DIGITS: usize = 20;

/// A quantity with its value in billionths, so that `500m` and `1n` are exact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quantity {
    text: String,
    nanos: i128,
}

impl Quantity {
    /// Reads a string or a bare number; `None` for anything that is no quantity.
    pub fn read(value: &Value) -> Option<Self> {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => return None,
        };
        let nanos = parse(&text)?;
        Some(Self { text, nanos })
    }

    /// So many gibibytes.
    pub fn gibibytes(count: u16) -> Self {
        Self {
            text: format!("{count}Gi"),
            nanos: i128::from(count) * (1 << 30) * NANOS,
        }
    }

    /// As its author wrote it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Rounded up to a whole number, as `Quantity.Value()` does.
    pub fn ceil(&self) -> i128 {
        self.nanos.div_euclid(NANOS) + i128::from(self.nanos.rem_euclid(NANOS) != 0)
    }

    /// Whether this is below zero.
    pub fn is_negative(&self) -> bool {
        self.nanos < 0
    }

    /// Whether this is zero.
    pub fn is_zero(&self) -> bool {
        self.nanos == 0
    }

    /// Whether this is less than the other.
    pub fn is_less(&self, other: &Self) -> bool {
        self.nanos < other.nanos
    }
}

/// What the value is made of: significant digits times `factor` times a power of ten.
struct Scaled {
    digits: i128,
    /// Whether more digits followed that are not zero.
    more: bool,
    exponent: i64,
    factor: i128,
}

fn parse(text: &str) -> Option<i128> {
    let text = text.trim();
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-')))
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (negative, digits) = match number.as_bytes().first() {
        Some(b'-') => (true, &number[1..]),
        Some(b'+') => (false, &number[1..]),
        _ => (false, number),
    };
    if text.is_empty() || text.len() == number.len() && digits.is_empty() {
        return None;
    }
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let (factor, exponent) = scale(suffix)?;
    let scaled = Scaled::read(whole, fraction, factor, exponent)?;
    let nanos = scaled.nanos();
    Some(if negative { -nanos } else { nanos })
}

impl Scaled {
    /// No digits are zero, as kube-apiserver has it.
    fn read(whole: &str, fraction: &str, factor: i128, exponent: i64) -> Option<Self> {
        let all = format!("{whole}{fraction}");
        if !all.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let significant = all.trim_start_matches('0');
        let (first, rest) = significant.split_at(significant.len().min(DIGITS));
        let dropped = i64::try_from(rest.len()).ok()?;
        Some(Self {
            digits: match first {
                "" => 0,
                first => first.parse().ok()?,
            },
            more: rest.bytes().any(|digit| digit != b'0'),
            exponent: exponent - i64::try_from(fraction.len()).ok()? + dropped,
            factor,
        })
    }

    /// Rounded up, and no more than the most.
    fn nanos(&self) -> i128 {
        let product = self.digits * self.factor;
        let places = self.exponent + 9;
        let size = power(10, places.unsigned_abs());
        let nanos = match (product, size) {
            (0, _) => 0,
            (_, None) if places > 0 => MOST,
            (_, None) => 1,
            (_, Some(size)) if places > 0 => product.checked_mul(size).unwrap_or(MOST),
            (_, Some(size)) => product / size + i128::from(self.more || product % size != 0),
        };
        nanos.min(MOST)
    }
}

/// Factor and power of ten of a suffix.
fn scale(suffix: &str) -> Option<(i128, i64)> {
    let binary = |exponent| Some((power(1024, exponent)?, 0));
    match suffix {
        "" => Some((1, 0)),
        "n" => Some((1, -9)),
        "u" => Some((1, -6)),
        "m" => Some((1, -3)),
        "k" => Some((1, 3)),
        "M" => Some((1, 6)),
        "G" => Some((1, 9)),
        "T" => Some((1, 12)),
        "P" => Some((1, 15)),
        "E" => Some((1, 18)),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        _ => {
            // kube-apiserver would calculate for minutes with a larger one.
            let exponent: i16 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            Some((1, exponent.into()))
        }
    }
}

fn power(base: i128, exponent: u64) -> Option<i128> {
    base.checked_pow(u32::try_from(exponent).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn quantities_round_up_to_whole_numbers() {
        for (value, whole) in [
            (json!("500m"), 1),
            (json!("1500m"), 2),
            (json!("1000m"), 1),
            (json!(1), 1),
            (json!(0.5), 1),
            (json!("0"), 0),
            (json!("1Ki"), 1024),
            (json!("1.5Gi"), 1_610_612_736),
            (json!("1G"), 1_000_000_000),
            (json!("2e3"), 2_000),
            (json!("12E-1"), 2),
            (json!("1E"), 1_000_000_000_000_000_000),
            (json!("+.5"), 1),
            (json!("128m"), 1),
            (json!(" 1Ki "), 1024),
            (json!("1."), 1),
            (json!("."), 0),
            (json!("Ki"), 0),
            (json!("1e+3"), 1_000),
            (json!("0.0000000000000000000000000000000000000000001"), 1),
            (json!("1e-5000"), 1),
            (json!("0e5000"), 0),
            (
                json!("1000000000000000000000000000000000000000000000e-45"),
                1,
            ),
            (json!("1.00000000000000000000000000000000000000001"), 2),
        ] {
            assert_eq!(Quantity::read(&value).unwrap().ceil(), whole, "{value}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for value in [
            json!(""),
            json!(" "),
            json!("Gb"),
            json!("1 Gi"),
            json!("1.2.3"),
            json!("--1"),
            json!("1e"),
            json!("1e99999999999"),
            json!("+"),
            json!("1K"),
            json!("1e3Ki"),
            json!("1_0"),
            json!(true),
            json!(null),
            json!([1]),
        ] {
            assert_eq!(Quantity::read(&value), None, "{value}");
        }
    }

    #[test]
    fn more_than_can_be_counted_is_the_most() {
        for text in [
            "1e99",
            "100E",
            "1000000Ei",
            "100000000000000000000000000000000000000000000",
        ] {
            let read = Quantity::read(&json!(text)).unwrap();
            assert_eq!(read.ceil(), i128::from(i64::MAX), "{text}");
        }
        let least = Quantity::read(&json!("-1e99")).unwrap();
        assert_eq!(least.ceil(), -i128::from(i64::MAX));
    }

    #[test]
    fn text_is_the_authors_and_order_is_by_value() {
        let a = Quantity::read(&json!("1G")).unwrap();
        let b = Quantity::read(&json!("1024Mi")).unwrap();
        assert!(a.is_less(&b) && !b.is_less(&a));
        assert_eq!(b.text(), "1024Mi");
        assert_eq!(Quantity::read(&json!("2Gi")), Some(Quantity::gibibytes(2)));
        let sign = |text: &str| {
            let read = Quantity::read(&json!(text)).unwrap();
            (read.is_negative(), read.is_zero())
        };
        assert_eq!(sign("-1n"), (true, false));
        assert_eq!(sign("-0"), (false, true));
        assert_eq!(sign("1n"), (false, false));
    }
}
