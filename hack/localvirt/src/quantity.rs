//! Kubernetes quantities as whole numbers (`k8s.io/apimachinery/pkg/api/resource`), rounded up.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Suffixes with their factor as (mantissa, power of ten in the denominator).
const SUFFIXES: [(&str, f64); 14] = [
    ("Ki", 1024.0),
    ("Mi", 1_048_576.0),
    ("Gi", 1_073_741_824.0),
    ("Ti", 1_099_511_627_776.0),
    ("Pi", 1_125_899_906_842_624.0),
    ("n", 1e-9),
    ("u", 1e-6),
    ("m", 1e-3),
    ("k", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("T", 1e12),
    ("P", 1e15),
    ("", 1.0),
];

/// The value times `scale`, rounded up; `None` if it is no quantity or negative.
///
/// A double is exact up to 2^53, far beyond the memory of any guest.
fn scaled(quantity: &Quantity, scale: f64) -> Option<u64> {
    let text = quantity.0.trim();
    let (number, factor) = SUFFIXES
        .iter()
        .find_map(|(suffix, factor)| Some((text.strip_suffix(suffix)?, *factor)))?;
    let value: f64 = number.parse().ok()?;
    let result = (value * factor * scale).ceil();
    let in_range = result.is_finite() && (0.0..9e15).contains(&result);
    // The range is checked, so the cast neither wraps nor loses anything.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    in_range.then_some(result as u64)
}

/// A quantity of bytes.
pub fn bytes(quantity: &Quantity) -> Option<u64> {
    scaled(quantity, 1.0)
}

/// A quantity of CPUs, in thousandths.
pub fn milli(quantity: &Quantity) -> Option<u64> {
    scaled(quantity, 1000.0)
}

/// Bytes as a quantity.
pub fn of_bytes(bytes: u64) -> Quantity {
    if bytes.is_multiple_of(1 << 20) {
        Quantity(format!("{}Mi", bytes >> 20))
    } else {
        Quantity(bytes.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_kubernetes_reads_them() {
        let cases = [
            ("128Mi", Some(134_217_728)),
            ("2Gi", Some(2_147_483_648)),
            ("1.5G", Some(1_500_000_000)),
            ("1e3", Some(1000)),
            ("1E3", Some(1000)),
            ("500m", Some(1)),
            ("0", Some(0)),
            ("-1", None),
            ("many", None),
            ("", None),
        ];
        for (text, want) in cases {
            assert_eq!(bytes(&Quantity(text.into())), want, "{text}");
        }
        assert_eq!(milli(&Quantity("1500m".into())), Some(1500));
        assert_eq!(milli(&Quantity("2".into())), Some(2000));
    }

    #[test]
    fn bytes_are_written_in_mebibytes_when_they_are_whole() {
        assert_eq!(of_bytes(256 << 20).0, "256Mi");
        assert_eq!(of_bytes(1000).0, "1000");
    }
}
