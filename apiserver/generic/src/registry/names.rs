//! Rules for names, labels and qualified names
//! (`k8s.io/apimachinery/pkg/util/validation/validation.go`).

/// Longest name of an object.
const NAME: usize = 253;
/// Longest label value, and longest name part of a qualified name.
const LABEL: usize = 63;
/// Longest base of a generated name; five random letters follow.
const BASE: usize = 58;

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// What is wrong with a DNS-1123 subdomain, if anything.
pub fn subdomain_fault(name: &str) -> Option<String> {
    if name.len() > NAME {
        return Some(format!("must be no more than {NAME} characters"));
    }
    let part = |p: &str| {
        bounded(
            p,
            |c| c.is_ascii_lowercase() || c.is_ascii_digit(),
            |c| c == '-',
        )
    };
    (!name.split('.').all(part)).then(|| SUBDOMAIN.to_owned())
}

/// What is wrong with a label key, annotation key or finalizer, if anything.
pub fn label_key_fault(key: &str) -> Option<String> {
    let name = match key.split('/').collect::<Vec<_>>().as_slice() {
        [name] => *name,
        ["", _] => return Some("prefix part must be non-empty".to_owned()),
        [prefix, name] => match subdomain_fault(prefix) {
            Some(why) => return Some(format!("prefix part {why}")),
            None => *name,
        },
        _ => {
            return Some(format!(
                "a qualified {QUALIFIED} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ));
        }
    };
    if name.is_empty() {
        return Some("name part must be non-empty".to_owned());
    }
    if name.len() > LABEL {
        return Some(format!("name part must be no more than {LABEL} characters"));
    }
    (!label_form(name)).then(|| QUALIFIED.to_owned())
}

/// What is wrong with a label value, if anything.
pub fn label_value_fault(value: &str) -> Option<String> {
    if value.len() > LABEL {
        return Some(format!("must be no more than {LABEL} characters"));
    }
    (!value.is_empty() && !label_form(value)).then(|| VALUE.to_owned())
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
            assert_eq!(label_key_fault(good), None, "{good}");
        }
        for bad in ["", "/a", "a/", "a/b/c", "A.com/b", "-a", &"a".repeat(64)] {
            assert!(label_key_fault(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn values() {
        assert_eq!(label_value_fault(""), None);
        assert_eq!(label_value_fault("A_b.1"), None);
        assert!(label_value_fault("a b").is_some());
        assert!(label_value_fault(&"a".repeat(64)).is_some());
    }

    #[test]
    fn a_generated_name_is_cut_to_a_label() {
        assert_eq!(generated("w-", "bcdfg"), "w-bcdfg");
        assert_eq!(generated(&"x".repeat(80), "bcdfg").len(), 63);
    }
}
