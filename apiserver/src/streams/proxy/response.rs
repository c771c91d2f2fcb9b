//! The head of a guest's answer on its way to the client. Pure.
//!
//! The guest's pages have kube-apiserver's origin. Its answers therefore get a policy that takes the
//! origin away from them, and lose the headers by which they would speak for all of it.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use super::{
    cookies::{self, Tag},
    hops,
    html::Links,
    location::{self, Own, Target},
    path::Prefix,
};

/// Pages get an origin of their own, and no way to their opener.
pub(super) const SANDBOX: HeaderValue =
    HeaderValue::from_static("sandbox allow-scripts allow-forms allow-popups");
/// Where a redirect leads that is not followed.
pub(super) const LOCATION: HeaderName = HeaderName::from_static("x-kubeworkspaces-location");

/// Headers that speak for the whole origin: to its workers, stores, transports, reports, log-ins.
const FOR_THE_ORIGIN: [HeaderName; 11] = [
    HeaderName::from_static("service-worker-allowed"),
    HeaderName::from_static("clear-site-data"),
    header::STRICT_TRANSPORT_SECURITY,
    HeaderName::from_static("public-key-pins"),
    header::ALT_SVC,
    HeaderName::from_static("nel"),
    HeaderName::from_static("report-to"),
    HeaderName::from_static("reporting-endpoints"),
    HeaderName::from_static("set-login"),
    header::WWW_AUTHENTICATE,
    LOCATION,
];

/// What is refused, or made anew, in a head, and therefore has no place behind a body.
pub(super) fn is_for_heads(name: &HeaderName) -> bool {
    let anew = [
        header::SET_COOKIE,
        header::LOCATION,
        header::REFRESH,
        header::CONTENT_TYPE,
        header::CONTENT_SECURITY_POLICY,
    ];
    FOR_THE_ORIGIN.contains(name) || anew.contains(name)
}

/// What an answer depends on beside what the guest sent.
#[derive(Clone, Debug)]
pub(super) struct Return {
    /// Under which path the client sees the guest.
    pub(super) prefix: Prefix,
    /// What the guest's cookies are called.
    pub(super) tag: Tag,
    /// What the guest is called.
    pub(super) own: Own,
    /// Path and query that the guest was asked for.
    pub(super) asked: String,
    /// Whether kube-apiserver is in between, which lets no redirect through and rewrites pages.
    pub(super) proxied: bool,
    /// Whether somebody looks at a page.
    pub(super) navigation: bool,
}

/// What stands for a redirect that does not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Redirect {
    /// A page that leads on.
    Page(Target),
    /// An error that says where it leads.
    Refused(Target),
}

/// Both ways at once to say how long an answer is: somebody between would believe the other one (RFC
/// 9112 §6.1).
pub(super) fn is_ambiguous(received: &HeaderMap) -> bool {
    received.contains_key(header::TRANSFER_ENCODING)
        && received.contains_key(header::CONTENT_LENGTH)
}

impl Return {
    /// Where the answer leads, if it has a `Location`.
    fn location(&self, received: &HeaderMap) -> Option<Target> {
        let location = received.get(header::LOCATION)?;
        let Self {
            asked, own, prefix, ..
        } = self;
        Some(location::resolve(location.as_bytes(), asked, own, prefix))
    }

    /// What stands for the answer if it is a redirect that does not pass.
    pub(super) fn redirect(&self, status: StatusCode, received: &HeaderMap) -> Option<Redirect> {
        // What has not changed leads nowhere, whatever `Location` it repeats.
        let leads = status.is_redirection() && status != StatusCode::NOT_MODIFIED;
        if !self.proxied || !leads {
            return None;
        }
        let target = self.location(received)?;
        Some(match self.navigation {
            true => Redirect::Page(target),
            false => Redirect::Refused(target),
        })
    }

    /// The cookies that an answer sets.
    pub(super) fn cookies(&self, received: &HeaderMap) -> Vec<HeaderValue> {
        received
            .get_all(header::SET_COOKIE)
            .iter()
            .filter_map(|value| cookies::from_guest(value, &self.tag, &self.prefix))
            .collect()
    }

    /// The headers for the client; `rewritten` is whether the body will be another.
    pub(super) fn headers(&self, received: &HeaderMap, rewritten: bool) -> HeaderMap {
        let mut headers = received.clone();
        hops::strip(&mut headers);
        for name in &FOR_THE_ORIGIN {
            headers.remove(name);
        }
        headers.remove(header::SET_COOKIE);
        for cookie in self.cookies(received) {
            headers.append(header::SET_COOKIE, cookie);
        }
        if let Some(target) = self.location(received)
            && let Ok(target) = HeaderValue::from_str(target.as_str())
        {
            headers.insert(header::LOCATION, target);
        }
        if let Some(refresh) = received.get(header::REFRESH) {
            let mut led = Vec::new();
            Links::new(self.prefix.clone(), &self.own).refresh(refresh.as_bytes(), &mut led);
            if let Ok(led) = HeaderValue::from_bytes(&led) {
                headers.insert(header::REFRESH, led);
            }
        }
        if self.proxied {
            respell(&mut headers);
        }
        if rewritten {
            forget_the_bytes(&mut headers);
        }
        headers.append(header::CONTENT_SECURITY_POLICY, SANDBOX);
        headers
    }

    /// Whether the body is a page whose links are to get the prefix: one that can be read.
    pub(super) fn is_rewritten(&self, status: StatusCode, received: &HeaderMap) -> bool {
        let readable = received
            .get_all(header::CONTENT_ENCODING)
            .iter()
            .all(|coding| coding.as_bytes().eq_ignore_ascii_case(b"identity"));
        self.proxied
            && status != StatusCode::PARTIAL_CONTENT
            && readable
            && html(received).is_some_and(|parameters| {
                let parameters = parameters.to_ascii_lowercase();
                !["utf-16", "utf-32", "utf-7"]
                    .iter()
                    .any(|wide| find(&parameters, wide.as_bytes()))
            })
    }
}

fn find(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|window| window == word)
}

/// The parameters of `text/html`, if that is what it is.
fn html(headers: &HeaderMap) -> Option<&[u8]> {
    let kind = headers.get(header::CONTENT_TYPE)?.as_bytes();
    let end = kind.iter().position(|byte| *byte == b';');
    let (essence, parameters) = kind.split_at(end.unwrap_or(kind.len()));
    let is_html = essence.trim_ascii().eq_ignore_ascii_case(b"text/html");
    is_html.then_some(parameters)
}

/// `Text/HTML` means the same, and kube-apiserver, which compares bytes, leaves it alone.
fn respell(headers: &mut HeaderMap) {
    let spelled =
        html(headers).and_then(|rest| HeaderValue::from_bytes(&[b"Text/HTML", rest].concat()).ok());
    if let Some(spelled) = spelled {
        headers.insert(header::CONTENT_TYPE, spelled);
    }
}

/// What is true of the guest's bytes is not of those that the client gets.
fn forget_the_bytes(headers: &mut HeaderMap) {
    for name in [
        "content-length",
        "accept-ranges",
        "content-md5",
        "digest",
        "content-digest",
        "repr-digest",
    ] {
        headers.remove(name);
    }
    let weak = headers
        .get(header::ETAG)
        .filter(|tag| !tag.as_bytes().starts_with(b"W/"))
        .and_then(|tag| HeaderValue::from_bytes(&[b"W/", tag.as_bytes()].concat()).ok());
    if let Some(weak) = weak {
        headers.insert(header::ETAG, weak);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFIX: &str = "/apis/kubeworkspaces.io/v1alpha1/namespaces/t1/workspaces/w1/proxy";

    fn back(proxied: bool, navigation: bool) -> Return {
        Return {
            prefix: Prefix::new("t1", "w1"),
            tag: Tag::new("uid", 8080),
            own: Own::new(8080, None),
            asked: "/a/b".into(),
            proxied,
            navigation,
        }
    }

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, HeaderValue::from_static(value));
        }
        map
    }

    fn lines(headers: &HeaderMap) -> Vec<String> {
        let line = |(name, value): (&HeaderName, &HeaderValue)| {
            format!("{name}: {}", value.to_str().unwrap())
        };
        let mut lines: Vec<_> = headers.iter().map(line).collect();
        lines.sort();
        lines
    }

    #[test]
    fn a_guest_does_not_speak_for_the_origin() {
        let received = map(&[
            ("content-security-policy", "default-src 'self'"),
            ("service-worker-allowed", "/"),
            ("clear-site-data", "\"*\""),
            ("strict-transport-security", "max-age=1"),
            ("alt-svc", "h3=\":1\""),
            ("report-to", "{}"),
            ("www-authenticate", "Basic"),
            ("x-kubeworkspaces-location", "https://evil.example"),
            ("connection", "keep-alive, x-hop"),
            ("x-hop", "1"),
            ("transfer-encoding", "chunked"),
            ("content-type", "text/html; charset=utf-8"),
            ("etag", "\"1\""),
            ("set-cookie", "=x"),
            ("x-app", "1"),
        ]);
        let expected = [
            "content-security-policy: default-src 'self'",
            "content-security-policy: sandbox allow-scripts allow-forms allow-popups",
            "content-type: text/html; charset=utf-8",
            "etag: \"1\"",
            "x-app: 1",
        ];
        assert_eq!(
            lines(&back(false, true).headers(&received, false)),
            expected
        );
    }

    #[test]
    fn a_page_behind_the_front_proxy_is_spelled_so_that_it_passes() {
        let received = map(&[
            ("content-type", "TEXT/html;charset=UTF-8"),
            ("content-length", "10"),
            ("etag", "\"1\""),
            ("accept-ranges", "bytes"),
            ("digest", "x"),
        ]);
        let back = back(true, true);
        assert!(back.is_rewritten(StatusCode::OK, &received));
        let expected = [
            "content-security-policy: sandbox allow-scripts allow-forms allow-popups",
            "content-type: Text/HTML;charset=UTF-8",
            "etag: W/\"1\"",
        ];
        assert_eq!(lines(&back.headers(&received, true)), expected);
    }

    #[test]
    fn only_pages_that_can_be_read_are_rewritten() {
        let of = |proxied, status: u16, pairs: &[_]| {
            let status = StatusCode::from_u16(status).unwrap();
            back(proxied, true).is_rewritten(status, &map(pairs))
        };
        let html = ("content-type", "text/html");
        assert!(of(true, 200, &[html]));
        assert!(of(true, 404, &[html, ("content-encoding", "identity")]));
        assert!(!of(false, 200, &[html]), "byte for byte");
        assert!(!of(true, 206, &[html]));
        assert!(!of(true, 200, &[html, ("content-encoding", "gzip")]));
        assert!(!of(
            true,
            200,
            &[("content-type", "text/html; charset=UTF-16LE")]
        ));
        assert!(!of(true, 200, &[("content-type", "application/json")]));
        assert!(!of(true, 200, &[("content-type", "text/htmlx")]));
        assert!(!of(true, 200, &[]));
    }

    #[test]
    fn s_21_redirects_keep_the_prefix_and_pass_where_they_can() {
        let received = map(&[("location", "/login"), ("set-cookie", "a=1")]);
        let inside = Target::Inside(format!("{PREFIX}/login"));
        for (proxied, navigation, status, expected) in [
            (false, true, 302, None),
            (true, true, 302, Some(Redirect::Page(inside.clone()))),
            (true, false, 307, Some(Redirect::Refused(inside.clone()))),
            (true, true, 201, None),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let got = back(proxied, navigation).redirect(status, &received);
            assert_eq!(got, expected, "{proxied} {navigation} {status}");
        }
        let headers = back(false, true).headers(&received, false);
        assert_eq!(headers["location"], format!("{PREFIX}/login"));
        for received in [map(&[]), received.clone()] {
            let none = back(true, true).redirect(StatusCode::NOT_MODIFIED, &received);
            assert_eq!(none, None);
        }
        let refresh = map(&[("refresh", "3; url=/next")]);
        let headers = back(false, true).headers(&refresh, false);
        assert_eq!(headers["refresh"], format!("3; url={PREFIX}/next"));
    }

    #[test]
    fn an_answer_has_one_length() {
        let chunked = ("transfer-encoding", "chunked");
        assert!(is_ambiguous(&map(&[chunked, ("content-length", "5")])));
        assert!(!is_ambiguous(&map(&[chunked])));
        assert!(!is_ambiguous(&map(&[("content-length", "5")])));
    }
}
