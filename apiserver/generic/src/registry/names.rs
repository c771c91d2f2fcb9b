//! Rules for names, labels and qualified names (`k8s.io/apimachinery/pkg/util/validation/validation.go`
//! and `k8s.io/apimachinery/pkg/api/validate/content`), whose words differ a little.

/// Longest name of an object.
const NAME: usize = 253;
/// Longest label value, and longest name part of a qualified name.
const LABEL: usize = 63;
/// Longest base of a generated name; five random letters follow.
const BASE: usize = 58;

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const KEY: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// What is wrong with a DNS-1123 subdomain, if anything; the first thing.
pub fn subdomain_fault(name: &str) -> Option<String> {
    subdomain_faults(name, "characters").into_iter().next()
}

/// Everything that is wrong with it; lengths are told in `unit`.
pub(super) fn subdomain_faults(name: &str, unit: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if name.len() > NAME {
        faults.push(format!("must be no more than {NAME} {unit}"));
    }
    let part = |p: &str| {
        bounded(
            p,
            |c| c.is_ascii_lowercase() || c.is_ascii_digit(),
            |c| c == '-',
        )
    };
    if !name.split('.').all(part) {
        faults.push(SUBDOMAIN.to_owned());
    }
    faults
}

/// Everything that is wrong with a label key, annotation key or finalizer.
pub fn label_key_faults(key: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let name = match key.split('/').collect::<Vec<_>>().as_slice() {
        [name] => *name,
        [prefix, name] => {
            match *prefix {
                "" => faults.push("prefix part must be non-empty".to_owned()),
                prefix => {
                    let of_prefix = subdomain_faults(prefix, "bytes").into_iter();
                    faults.extend(of_prefix.map(|why| format!("prefix part {why}")));
                }
            }
            *name
        }
        _ => {
            return vec![format!(
                "a valid label key {KEY} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL {
        faults.push(format!("name part must be no more than {LABEL} bytes"));
    }
    if !label_form(name) {
        faults.push(format!("name part {KEY}"));
    }
    faults
}

/// Everything that is wrong with a label value.
pub fn label_value_faults(value: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if value.len() > LABEL {
        faults.push(format!("must be no more than {LABEL} bytes"));
    }
    if !value.is_empty() && !label_form(value) {
        faults.push(VALUE.to_owned());
    }
    faults
}

fn label_form(text: &str) -> bool {
    bounded(text, |c| c.is_ascii_alphanumeric(), |c| "-_.".contains(c))
}

/// Not empty, begins and ends with an `edge`, has only edges and `inner`s.
fn bounded(text: &str, edge: impl Fn(char) -> bool, inner: impl Fn(char) -> bool) -> bool {
    text.starts_with(&edge) && text.ends_with(&edge) && text.chars().all(|c| edge(c) || inner(c))
}

/// The name that `generateName` leads to.
pub(super) fn generated(base: &str, suffix: &str) -> String {
    let end = base.floor_char_boundary(BASE);
    format!("{}{suffix}", &base[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subdomains() {
        for good in ["a", "a-b", "rhel9.arm64", "0a", &"a".repeat(253)] {
            assert_eq!(subdomain_fault(good), None, "{good}");
        }
        for bad in [
            "",
            "A",
            "-a",
            "a-",
            "a..b",
            ".a",
            "a_b",
            "ä",
            &"a".repeat(254),
        ] {
            assert!(subdomain_fault(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn qualified_names() {
        for good in ["a", "example.com/A_b.c", "foregroundDeletion"] {
            assert!(label_key_faults(good).is_empty(), "{good}");
        }
        let (long, prefix) = ("a".repeat(64), format!("{}/a", "a".repeat(254)));
        for (bad, faults) in [
            (
                "",
                &["name part must be non-empty", "name part must consist"][..],
            ),
            ("/a", &["prefix part must be non-empty"]),
            (
                "a/",
                &["name part must be non-empty", "name part must consist"],
            ),
            ("a/b/c", &["a valid label key must consist"]),
            ("A.com/b", &["prefix part a lowercase RFC 1123 subdomain"]),
            ("-a", &["name part must consist"]),
            ("/-", &["prefix part must be", "name part must consist"]),
            (&long, &["name part must be no more than 63 bytes"]),
            (&prefix, &["prefix part must be no more than 253 bytes"]),
        ] {
            let found = label_key_faults(bad);
            assert_eq!(found.len(), faults.len(), "{bad}: {found:?}");
            for (found, expected) in found.iter().zip(faults) {
                assert!(found.starts_with(expected), "{bad}: {found}");
            }
        }
    }

    #[test]
    fn values() {
        assert!(label_value_faults("").is_empty());
        assert!(label_value_faults("A_b.1").is_empty());
        assert_eq!(label_value_faults("a b"), [VALUE]);
        let long = "a".repeat(64);
        assert_eq!(label_value_faults(&long), ["must be no more than 63 bytes"]);
        assert_eq!(label_value_faults(&format!("{long}-")).len(), 2);
    }

    #[test]
    fn a_generated_name_is_cut_to_a_label() {
        assert_eq!(generated("w-", "bcdfg"), "w-bcdfg");
        assert_eq!(generated(&"x".repeat(80), "bcdfg").len(), 63);
    }
}
