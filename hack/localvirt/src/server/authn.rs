//! Who calls: the front proxy's headers, believed because its certificate was.
//!
//! The certificate is checked in the TLS handshake ([`super::trust`]), so here it is there or not.
//! Mirrors `pkg/virt-api/rest/authorizer.go`: groups are demanded, the UID header is not read.

use std::collections::BTreeMap;

use http::HeaderMap;
use k8s_openapi::api::authorization::v1::SubjectAccessReviewSpec;
use percent_encoding::percent_decode_str;

/// Names of the headers, from `kube-system/extension-apiserver-authentication`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderNames {
    /// Headers with the user's name; the first one that is there counts.
    pub user: Vec<String>,
    /// Headers with groups.
    pub groups: Vec<String>,
    /// Prefixes of headers with extra attributes.
    pub extra_prefixes: Vec<String>,
}

impl Default for HeaderNames {
    fn default() -> Self {
        Self {
            user: vec!["X-Remote-User".into()],
            groups: vec!["X-Remote-Group".into()],
            extra_prefixes: vec!["X-Remote-Extra-".into()],
        }
    }
}

/// Why nobody is believed: 401 with this text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unauthenticated {
    /// No front-proxy certificate.
    #[error("request is not authenticated")]
    NoCertificate,
    /// No name.
    #[error("a valid user header is required for authorization")]
    NoUser,
    /// No groups.
    #[error("a valid group header is required for authorization")]
    NoGroups,
}

/// A caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// Name.
    pub user: String,
    /// Groups.
    pub groups: Vec<String>,
    /// Extra attributes.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl Caller {
    /// The part of a review that says who.
    pub fn review(self) -> SubjectAccessReviewSpec {
        SubjectAccessReviewSpec {
            user: Some(self.user),
            groups: Some(self.groups),
            extra: Some(self.extra),
            ..SubjectAccessReviewSpec::default()
        }
    }
}

/// Reads the caller from the headers.
///
/// # Errors
/// When there is no certificate or a header is missing.
pub fn caller(
    has_certificate: bool,
    headers: &HeaderMap,
    names: &HeaderNames,
) -> Result<Caller, Unauthenticated> {
    if !has_certificate {
        return Err(Unauthenticated::NoCertificate);
    }
    let user = values(headers, &names.user)
        .next()
        .ok_or(Unauthenticated::NoUser)?;
    let groups: Vec<String> = values(headers, &names.groups).collect();
    if groups.is_empty() {
        return Err(Unauthenticated::NoGroups);
    }
    Ok(Caller {
        user,
        groups,
        extra: extra(headers, &names.extra_prefixes),
    })
}

fn values<'a>(headers: &'a HeaderMap, names: &'a [String]) -> impl Iterator<Item = String> + 'a {
    let all = names
        .iter()
        .flat_map(move |name| headers.get_all(name.as_str()));
    // Header values are bytes to HTTP; names of users may well be UTF-8.
    all.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        .filter(|value| !value.is_empty())
}

fn extra(headers: &HeaderMap, prefixes: &[String]) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers {
        let rest = |p: &String| name.as_str().strip_prefix(&p.to_ascii_lowercase());
        let Some(key) = prefixes.iter().find_map(rest) else {
            continue;
        };
        let decoded = percent_decode_str(key).decode_utf8();
        let key = decoded.map_or_else(|_| key.to_owned(), std::borrow::Cow::into_owned);
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        found.entry(key).or_default().push(value);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in list {
            let name = http::HeaderName::from_bytes(name.as_bytes()).unwrap();
            map.append(name, value.parse().unwrap());
        }
        map
    }

    #[test]
    fn a_caller_needs_a_certificate_a_name_and_groups() {
        let names = HeaderNames::default();
        let all = headers(&[
            ("X-Remote-User", "jane"),
            ("X-Remote-Group", "a"),
            ("X-Remote-Group", "b"),
        ]);
        assert_eq!(
            caller(false, &all, &names),
            Err(Unauthenticated::NoCertificate)
        );
        let jane = caller(true, &all, &names).unwrap();
        assert_eq!(jane.user, "jane");
        assert_eq!(jane.groups, ["a", "b"]);
        let cases = [
            (headers(&[("X-Remote-Group", "a")]), Unauthenticated::NoUser),
            (
                headers(&[("X-Remote-User", ""), ("X-Remote-Group", "a")]),
                Unauthenticated::NoUser,
            ),
            (
                headers(&[("X-Remote-User", "jane")]),
                Unauthenticated::NoGroups,
            ),
        ];
        for (headers, want) in cases {
            assert_eq!(caller(true, &headers, &names), Err(want));
        }
    }

    #[test]
    fn extra_keys_are_lower_case_and_unescaped() {
        let all = headers(&[
            ("X-Remote-User", "jane"),
            ("X-Remote-Group", "a"),
            (
                "X-Remote-Extra-Authentication.kubernetes.io%2fcredential-Id",
                "X509",
            ),
        ]);
        let jane = caller(true, &all, &HeaderNames::default()).unwrap();
        assert_eq!(
            jane.extra["authentication.kubernetes.io/credential-id"],
            ["X509"]
        );
    }
}
