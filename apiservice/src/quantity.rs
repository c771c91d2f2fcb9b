//! Kubernetes quantities, read for comparing and rounding; their text stays the author's.
//!
//! Grammar: `k8s.io/apimachinery/pkg/api/resource/quantity.go`.

use serde_json::Value;

const NANOS: i128 = 1_000_000_000;

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

fn parse(text: &str) -> Option<i128> {
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-')))
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (negative, digits) = match number.as_bytes().first()? {
        b'-' => (true, &number[1..]),
        b'+' => (false, &number[1..]),
        _ => (false, number),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all = format!("{whole}{fraction}");
    if !all.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let mantissa: i128 = all.parse().ok()?;
    let (factor, divisor) = scale(suffix)?;
    let divisor = divisor.checked_mul(power(10, fraction.len())?)?;
    let scaled = mantissa.checked_mul(NANOS)?.checked_mul(factor)?;
    let nanos = scaled / divisor + i128::from(scaled % divisor != 0);
    Some(if negative { -nanos } else { nanos })
}

/// Factor and divisor of a suffix.
fn scale(suffix: &str) -> Option<(i128, i128)> {
    let times = |base, exponent| Some((power(base, exponent)?, 1));
    match suffix {
        "" => Some((1, 1)),
        "n" => Some((1, NANOS)),
        "u" => Some((1, 1_000_000)),
        "m" => Some((1, 1_000)),
        "k" => times(10, 3),
        "M" => times(10, 6),
        "G" => times(10, 9),
        "T" => times(10, 12),
        "P" => times(10, 15),
        "E" => times(10, 18),
        "Ki" => times(1024, 1),
        "Mi" => times(1024, 2),
        "Gi" => times(1024, 3),
        "Ti" => times(1024, 4),
        "Pi" => times(1024, 5),
        "Ei" => times(1024, 6),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            let size = power(10, usize::try_from(exponent.unsigned_abs()).ok()?)?;
            Some(if exponent < 0 { (1, size) } else { (size, 1) })
        }
    }
}

fn power(base: i128, exponent: usize) -> Option<i128> {
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
        ] {
            assert_eq!(Quantity::read(&value).unwrap().ceil(), whole, "{value}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for value in [
            json!(""),
            json!("Gi"),
            json!("1 Gi"),
            json!("1.2.3"),
            json!("--1"),
            json!("1e"),
            json!("1e99"),
            json!(null),
            json!([1]),
        ] {
            assert_eq!(Quantity::read(&value), None, "{value}");
        }
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
