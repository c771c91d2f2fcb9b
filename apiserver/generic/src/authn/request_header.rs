//! Authentication by the front proxy's word
//! (`k8s.io/apiserver/pkg/authentication/request/headerrequest/requestheader.go`).
//!
//! The headers count only beside a certificate of the request-header CA whose name is allowed.
//! Unlike Go's server, a certificate of that CA with identity headers and a name that is not allowed
//! ends in 401: falling through to client certificates would run the request as the proxy itself,
//! where one CA signs both.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;
use rustls::pki_types::{CertificateDer, UnixTime};

use super::{AuthnError, CaBundle, Trust, UserInfo, leaf::Subject};

/// Whom to believe, and where it says who is calling.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestHeader {
    /// Signs the front proxies' client certificates.
    pub ca: CaBundle,
    /// Their common names; empty means any.
    pub allowed_names: Vec<String>,
    /// Headers with the user's name; the first that is not empty counts.
    pub username_headers: Vec<HeaderName>,
    /// Headers with the user's UID; the first that is not empty counts.
    pub uid_headers: Vec<HeaderName>,
    /// Headers with groups, one each line.
    pub group_headers: Vec<HeaderName>,
    /// Prefixes of headers with extra attributes, in lower case.
    pub extra_prefixes: Vec<String>,
}

/// What is always removed, whatever is configured.
const STANDARD: [&str; 3] = ["x-remote-user", "x-remote-uid", "x-remote-group"];
const STANDARD_PREFIX: &str = "x-remote-extra-";

impl RequestHeader {
    /// The user whom the front proxy names; `None` when there is no certificate or no name.
    pub(super) fn identify(
        &self,
        headers: &HeaderMap,
        chain: &[CertificateDer<'static>],
        now: UnixTime,
    ) -> Result<Option<UserInfo>, AuthnError> {
        let Some(leaf) = chain.first() else {
            return Ok(None);
        };
        let proxy = Subject::of(leaf).common_name;
        self.ca
            .verify(chain, now)
            .map_err(|e| AuthnError::Certificate {
                subject: format!("{proxy:?}"),
                reason: format!("as a front proxy's: {e}"),
            })?;
        let Some(name) = first_value(headers, &self.username_headers) else {
            return Ok(None);
        };
        if !self.allowed_names.is_empty() && !self.allowed_names.contains(&proxy) {
            return Err(AuthnError::NameNotAllowed {
                name: proxy,
                allowed: self.allowed_names.clone(),
            });
        }
        Ok(Some(UserInfo {
            name,
            uid: first_value(headers, &self.uid_headers).unwrap_or_default(),
            groups: all_values(headers, &self.group_headers),
            extra: self.extra(headers),
        }))
    }

    fn extra(&self, headers: &HeaderMap) -> BTreeMap<String, Vec<String>> {
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, value) in headers {
            for prefix in &self.extra_prefixes {
                if let Some(key) = name.as_str().strip_prefix(prefix.as_str()) {
                    extra.entry(unescape(key)).or_default().push(text(value));
                }
            }
        }
        extra
    }
}

/// Removes every header that could be taken for an identity.
pub(super) fn strip(trust: &Trust, headers: &mut HeaderMap) {
    let configured = trust.request_header.as_deref();
    let named = |name: &HeaderName| {
        STANDARD.contains(&name.as_str())
            || name.as_str().starts_with(STANDARD_PREFIX)
            || configured.is_some_and(|c| {
                let lists = [&c.username_headers, &c.uid_headers, &c.group_headers];
                lists.into_iter().flatten().any(|h| h == name)
                    || c.extra_prefixes
                        .iter()
                        .any(|p| name.as_str().starts_with(p))
            })
    };
    let doomed: Vec<HeaderName> = headers.keys().filter(|name| named(name)).cloned().collect();
    for name in doomed {
        headers.remove(name);
    }
}

fn first_value(headers: &HeaderMap, names: &[HeaderName]) -> Option<String> {
    let first = |name| {
        headers
            .get(name)
            .map(text)
            .filter(|value| !value.is_empty())
    };
    names.iter().find_map(first)
}

/// Every value that is not empty. A comma separates nothing: group names may contain one.
fn all_values(headers: &HeaderMap, names: &[HeaderName]) -> Vec<String> {
    names
        .iter()
        .flat_map(|name| headers.get_all(name))
        .map(text)
        .filter(|value| !value.is_empty())
        .collect()
}

/// The rest of an extra header's name: percent-decoded, or as it is when that fails. Header names
/// arrive in lower case; the decoded key is made lower case too.
fn unescape(key: &str) -> String {
    let valid = key.split('%').skip(1).all(|rest| {
        let digits = rest.as_bytes();
        digits.len() >= 2 && digits[0].is_ascii_hexdigit() && digits[1].is_ascii_hexdigit()
    });
    match percent_decode_str(key).decode_utf8() {
        Ok(decoded) if valid => decoded.into_owned(),
        _ => key.to_owned(),
    }
}

fn text(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extra_keys_are_decoded_once_and_kept_raw_when_they_do_not_decode() {
        for (key, expected) in [
            ("scopes", "scopes"),
            (
                "authentication.kubernetes.io%2fcredential-id",
                "authentication.kubernetes.io/credential-id",
            ),
            ("a%3Ab", "a:b"),
            ("100%25", "100%"),
            ("%c3%a4", "ä"),
            ("%252f", "%2f"),
            ("50%", "50%"),
            ("%zz", "%zz"),
            ("%ff", "%ff"),
        ] {
            assert_eq!(unescape(key), expected, "{key}");
        }
    }
}
