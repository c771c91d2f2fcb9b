//! Cookies of a guest, kept apart from everybody else's at the same origin. Pure.
//!
//! A browser has one jar for kube-apiserver's address (with `kubectl proxy`, for the whole machine), and
//! a request does not say where its cookies were set. So a guest's cookie gets a name of its own on its
//! way out, `kw-<hash of workspace and port>-NAME`, and loses it on its way in; no other cookie passes,
//! and no guest can set one that somebody else would read.

use std::fmt::Write as _;

use http::HeaderValue;
use sha2::{Digest as _, Sha256};

use super::path::Prefix;

/// What the names of one guest's cookies begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tag(String);

impl Tag {
    /// Of a port of the workspace with this UID: one that is made anew gets no cookies of the old one.
    pub(super) fn new(workspace_uid: &str, port: u16) -> Self {
        let hash = Sha256::digest(format!("{port} {workspace_uid}"));
        let mut tag = "kw-".to_owned();
        for byte in &hash[..8] {
            let _ = write!(tag, "{byte:02x}");
        }
        tag.push('-');
        Self(tag)
    }
}

/// The guest's own cookies among those of a request, under the names that it gave them.
pub(super) fn to_guest<'a>(
    received: impl IntoIterator<Item = &'a HeaderValue>,
    tag: &Tag,
) -> Option<HeaderValue> {
    let own: Vec<&[u8]> = received
        .into_iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b';'))
        .filter_map(|pair| pair.trim_ascii().strip_prefix(tag.0.as_bytes()))
        .collect();
    match own.is_empty() {
        true => None,
        false => HeaderValue::from_bytes(&own.join(&b"; "[..])).ok(),
    }
}

/// A guest's `Set-Cookie` for its client: renamed, for nobody's host but the one that was asked, and for
/// the paths under the prefix only. `None` for a cookie without a name.
pub(super) fn from_guest(value: &HeaderValue, tag: &Tag, prefix: &Prefix) -> Option<HeaderValue> {
    let mut parts = value.as_bytes().split(|byte| *byte == b';');
    let pair = parts.next()?.trim_ascii();
    let name = pair.split(|byte| *byte == b'=').next()?;
    if name.trim_ascii().is_empty() || name.len() == pair.len() {
        return None;
    }
    let mut cookie = [tag.0.as_bytes(), pair].concat();
    let kept = parts.map(<[u8]>::trim_ascii).filter(|part| {
        let name = part.split(|byte| *byte == b'=').next().unwrap_or_default();
        let name = name.trim_ascii();
        !name.is_empty()
            && !name.eq_ignore_ascii_case(b"path")
            && !name.eq_ignore_ascii_case(b"domain")
    });
    for part in kept {
        cookie.extend_from_slice(b"; ");
        cookie.extend_from_slice(part);
    }
    cookie.extend_from_slice(b"; Path=");
    cookie.extend_from_slice(prefix.as_str().as_bytes());
    cookie.push(b'/');
    HeaderValue::from_bytes(&cookie).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> HeaderValue {
        HeaderValue::from_str(text).unwrap()
    }

    fn set(text: &str) -> Option<String> {
        let tag = Tag("kw-1-".into());
        let set = from_guest(&value(text), &tag, &Prefix::new("t1", "w1"));
        set.map(|set| set.to_str().unwrap().to_owned())
    }

    #[test]
    fn a_guests_cookie_is_renamed_and_kept_under_the_prefix() {
        let path = "Path=/apis/kubeworkspaces.io/v1alpha1/namespaces/t1/workspaces/w1/proxy/";
        for (given, expected) in [
            ("sid=a", "kw-1-sid=a"),
            (
                "sid=a=b; path=/; Domain=example.org; HttpOnly; SameSite=Lax",
                "kw-1-sid=a=b; HttpOnly; SameSite=Lax",
            ),
            ("sid=; PATH = /x; Max-Age=0", "kw-1-sid=; Max-Age=0"),
            ("__Host-s=1; Secure;;", "kw-1-__Host-s=1; Secure"),
        ] {
            assert_eq!(set(given), Some(format!("{expected}; {path}")), "{given}");
        }
        for nameless in ["", "x", "=x", "  =x; Path=/", "; a=b"] {
            assert_eq!(set(nameless), None, "{nameless:?}");
        }
    }

    #[test]
    fn a_guest_gets_back_what_it_set_and_nothing_else() {
        let tag = Tag::new("uid", 8080);
        let prefix = Prefix::new("t1", "w1");
        let set = from_guest(&value("sid=a"), &tag, &prefix).unwrap();
        let set = set.to_str().unwrap().split(';').next().unwrap().to_owned();
        let foreign = Tag::new("uid", 8081);
        let theirs = from_guest(&value("sid=theirs"), &foreign, &prefix).unwrap();
        let lines = [
            value(&format!("token=secret; {set}")),
            value(theirs.to_str().unwrap()),
            value(&format!("sid=other;{set}2; xkw-{set}")),
        ];
        let got = to_guest(&lines, &tag).unwrap();
        assert_eq!(got.to_str().unwrap(), "sid=a; sid=a2");
        assert_eq!(to_guest(&lines[..0], &tag), None);
        assert_eq!(to_guest([&value("sid=a; token=secret")], &tag), None);
    }

    #[test]
    fn each_port_of_each_workspace_has_its_own() {
        let tag = Tag::new("a", 80);
        assert_eq!(tag, Tag::new("a", 80));
        assert_eq!(tag.0.len(), 20);
        assert!(![Tag::new("a", 81), Tag::new("b", 80)].contains(&tag));
    }
}
