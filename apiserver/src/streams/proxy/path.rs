//! Which part of a request's path is the guest's, and under which prefix its client sees it. Pure.
//!
//! The guest gets the bytes that were received, never what they decode to: `a%2Fb` and `a/b` are two
//! paths. Dot segments are refused, however they are written, since whoever resolves them (a browser, a
//! proxy in between, the guest) would not agree about what they mean.

use apiserver_generic::ApiError;
use http::{Uri, uri::PathAndQuery};
use percent_encoding::percent_decode_str;

/// `apis`, the group, the version, `namespaces`, a namespace, `workspaces`, a name, `proxy`.
const OURS: usize = 8;

/// Why a path is not passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PathError {
    /// It climbs.
    #[error(
        "the path has a dot segment (\".\" or \"..\", also as %2e): ask for the path that it leads to"
    )]
    Dots,
    /// It is none that HTTP/1.1 can ask for.
    #[error("the path cannot be passed on: percent-encode what is no letter, digit or mark in it")]
    Malformed,
}

impl From<PathError> for ApiError {
    fn from(error: PathError) -> Self {
        Self::bad_request(error.to_string())
    }
}

/// What the guest is asked for: what follows `proxy` in the path, and the query. Nothing is `/`.
///
/// # Errors
/// Dot segments.
pub(super) fn target(uri: &Uri) -> Result<PathAndQuery, PathError> {
    let path = behind(uri.path()).ok_or(PathError::Malformed)?;
    if has_dots(path) {
        return Err(PathError::Dots);
    }
    let path = if path.is_empty() { "/" } else { path };
    let target = match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    target.try_into().map_err(|_| PathError::Malformed)
}

/// What follows our own segments, with its slash.
fn behind(path: &str) -> Option<&str> {
    let mut rest = path.trim_start_matches('/');
    for _ in 1..OURS {
        rest = rest.split_once('/')?.1;
    }
    Some(rest.find('/').map_or("", |at| &rest[at..]))
}

/// Also behind encoded slashes, backslashes and parameters, which some servers decode or cut first.
fn has_dots(path: &str) -> bool {
    path.split('/').any(|segment| {
        let decoded: Vec<u8> = percent_decode_str(segment).collect();
        decoded
            .split(|byte| matches!(byte, b'/' | b'\\'))
            .any(|piece| {
                let name = piece.split(|byte| *byte == b';').next();
                matches!(name, Some(b"." | b".."))
            })
    })
}

/// The path under which a client sees the guest's root, without the slash at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Prefix(String);

impl Prefix {
    /// Of what was asked for as `workspaces/NAME`, a port's name included.
    pub(super) fn new(namespace: &str, name: &str) -> Self {
        Self(format!(
            "/apis/kubeworkspaces.io/v1alpha1/namespaces/{namespace}/workspaces/{name}/proxy"
        ))
    }

    /// Without the slash at its end.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Where the client finds a path of the guest's. A guest that knows the prefix (it is told, by
    /// `X-Forwarded-Prefix`) may have put it there already.
    pub(super) fn join(&self, path: &str) -> String {
        match self.covers(path.as_bytes()) {
            true => path.to_owned(),
            false => format!("{}{path}", self.0),
        }
    }

    /// Whether a path begins with the prefix.
    pub(super) fn covers(&self, path: &[u8]) -> bool {
        let rest = path.strip_prefix(self.0.as_bytes());
        rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'/' | b'?' | b'#')))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = "/apis/kubeworkspaces.io/v1alpha1/namespaces/t1/workspaces/w1";

    fn of(rest: &str) -> Result<String, PathError> {
        let uri: Uri = format!("{BASE}{rest}").parse().unwrap();
        target(&uri).map(|target| target.as_str().to_owned())
    }

    #[test]
    fn s_21_path_and_query_reach_the_guest_byte_for_byte() {
        for (rest, expected) in [
            ("/proxy", "/"),
            ("/proxy/", "/"),
            ("/proxy?a=1", "/?a=1"),
            ("/proxy/?", "/?"),
            ("/proxy/a/b/", "/a/b/"),
            ("/proxy/a%2Fb?q=1&q=2%20x", "/a%2Fb?q=1&q=2%20x"),
            ("/proxy//x", "//x"),
            ("/proxy///", "///"),
            ("/proxy/%7Euser/a;v=1", "/%7Euser/a;v=1"),
            ("/proxy/a?x=../..&y=/;z", "/a?x=../..&y=/;z"),
            ("/proxy/proxy/proxy", "/proxy/proxy"),
            ("/proxy/...", "/..."),
            ("/proxy/.well-known/x..", "/.well-known/x.."),
            ("/proxy/%252e%252e/x", "/%252e%252e/x"),
            ("/proxy/%E4%F6", "/%E4%F6"),
        ] {
            assert_eq!(of(rest).as_deref(), Ok(expected), "{rest}");
        }
    }

    #[test]
    fn s_21_dot_segments_are_refused_however_they_are_written() {
        for rest in [
            "/proxy/../../secrets",
            "/proxy/.",
            "/proxy/a/..",
            "/proxy/%2e%2E/x",
            "/proxy/.%2e/x",
            "/proxy/a%2f..%2fb",
            "/proxy/a%5C..%5Cb",
            "/proxy/..;x=1/manager",
            "/proxy/%2e;/x",
        ] {
            assert_eq!(of(rest), Err(PathError::Dots), "{rest}");
        }
    }

    #[test]
    fn our_own_segments_are_counted_and_not_read() {
        let uri: Uri = "//apis/g/v/namespaces/proxy/workspaces/proxy/proxy/x"
            .parse()
            .unwrap();
        assert_eq!(target(&uri).unwrap().as_str(), "/x");
        let short: Uri = "/apis/g/v/namespaces/a/workspaces/b".parse().unwrap();
        assert_eq!(target(&short), Err(PathError::Malformed));
    }

    #[test]
    fn a_prefix_is_added_once() {
        let prefix = Prefix::new("t1", "w1:http");
        let own = format!("{BASE}:http/proxy");
        assert_eq!(prefix.as_str(), own);
        for (path, expected) in [
            ("/login?x", format!("{own}/login?x")),
            ("/", format!("{own}/")),
            (&format!("{own}/a"), format!("{own}/a")),
            (&own, own.clone()),
            (&format!("{own}x"), format!("{own}{own}x")),
        ] {
            assert_eq!(prefix.join(path), expected, "{path}");
        }
    }
}
