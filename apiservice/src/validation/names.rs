//! Names, in the words of `k8s.io/apimachinery/pkg/util/validation`.

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

/// What is wrong with a DNS-1123 label, if anything.
pub fn dns_label(name: &str) -> Option<String> {
    if name.len() > 63 {
        return Some("must be no more than 63 characters".to_owned());
    }
    (!is_label(name)).then(|| LABEL.to_owned())
}

fn is_label(name: &str) -> bool {
    let alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = name.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(first), Some(last)) => {
            alphanumeric(*first)
                && alphanumeric(*last)
                && bytes.iter().all(|b| alphanumeric(*b) || *b == b'-')
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels() {
        for good in ["a", "0", "my-name", "a--b"] {
            assert_eq!(dns_label(good), None, "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a_b", "a.b", "ä", "a/b"] {
            assert!(dns_label(bad).is_some(), "{bad}");
        }
        assert!(dns_label("a.b").is_some());
    }
}
