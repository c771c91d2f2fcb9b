//! The head of a request on its way to the guest. Pure.
//!
//! What identifies the caller to us and to kube-apiserver never passes, nor do cookies that the guest
//! did not set. What proxies say of the way so far is said anew: only the front proxy is believed, and
//! it knows the client's address alone.

use std::borrow::Cow;

use apiserver_generic::ApiError;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};

use super::{
    cookies::{self, Tag},
    hops,
    location::Own,
    path::Prefix,
};

/// With which item a browser hands its token over, in `Sec-WebSocket-Protocol`.
const BEARER: &str = "base64url.bearer.authorization.k8s.io.";

/// What a request wants of the connection to the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wants {
    /// An answer.
    Answer,
    /// A WebSocket.
    WebSocket,
}

/// Reads what a request wants.
///
/// # Errors
/// 400 for another upgrade, or one that cannot be.
pub(super) fn wants(method: &Method, headers: &HeaderMap) -> Result<Wants, ApiError> {
    if !headers.contains_key(header::UPGRADE) {
        return Ok(Wants::Answer);
    }
    let websocket = |value: &HeaderValue| {
        let value = value.as_bytes().trim_ascii();
        value.eq_ignore_ascii_case(b"websocket")
    };
    if !headers.get_all(header::UPGRADE).iter().all(websocket) {
        return Err(ApiError::bad_request(
            "only an upgrade to websocket is passed on; leave the header Upgrade out, or use kubectl workspace port-forward",
        ));
    }
    if *method != Method::GET {
        return Err(ApiError::bad_request(
            "a WebSocket is opened with GET (RFC 6455 4.1)",
        ));
    }
    if !hops::has_token(headers, &header::CONNECTION, "upgrade") {
        return Err(ApiError::bad_request(
            "an upgrade needs the header Connection: Upgrade; a proxy in between may have removed it",
        ));
    }
    Ok(Wants::WebSocket)
}

/// What the head for the guest depends on beside what was received.
#[derive(Clone, Debug)]
pub(super) struct Passage<'a> {
    /// Under which path the client sees the guest.
    pub(super) prefix: &'a Prefix,
    /// Whose cookies pass.
    pub(super) tag: &'a Tag,
    /// What the guest is called.
    pub(super) own: &'a Own,
    /// The client's address.
    pub(super) client: &'a str,
    /// What the client called us, if that is known.
    pub(super) host: Option<&'a str>,
    /// Whether answers have to be read, so that they must not be compressed.
    pub(super) plain: bool,
    /// What is wanted.
    pub(super) wants: Wants,
}

/// The headers for the guest. The body's length is not among them.
pub(super) fn headers(received: &HeaderMap, passage: &Passage<'_>) -> HeaderMap {
    let mut headers = received.clone();
    let trailers = hops::has_token(received, &header::TE, "trailers");
    hops::strip(&mut headers);
    hops::remove(&mut headers, is_private);
    if let Some(own) = cookies::to_guest(received.get_all(header::COOKIE), passage.tag) {
        headers.insert(header::COOKIE, own);
    }
    set_subprotocols(&mut headers, received);
    set_connection(&mut headers, passage.wants, trailers);
    if passage.plain {
        let identity = HeaderValue::from_static("identity");
        headers.insert(header::ACCEPT_ENCODING, identity);
    }
    let host = passage.own.host();
    for (name, value) in [
        ("host", Some(host.as_str())),
        ("x-forwarded-for", Some(passage.client)),
        ("x-forwarded-host", passage.host),
        ("x-forwarded-prefix", Some(passage.prefix.as_str())),
        ("x-forwarded-proto", Some("https")),
    ] {
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    headers
}

/// What the guest must not see, or is told anew. Servers that hand headers on as variables take `_`
/// for `-`.
pub(super) fn is_private(name: &HeaderName) -> bool {
    let name = match name.as_str() {
        plain if !plain.contains('_') => Cow::Borrowed(plain),
        odd => Cow::Owned(odd.replace('_', "-")),
    };
    let prefixes = ["x-remote-", "impersonate-", "x-forwarded-"];
    let names = [
        "authorization",
        "cookie",
        "host",
        "forwarded",
        "x-real-ip",
        "audit-id",
        "expect",
        "content-length",
        "sec-websocket-protocol",
    ];
    prefixes.iter().any(|prefix| name.starts_with(prefix)) || names.contains(&&*name)
}

/// All but the token. Authentication has removed it already; nobody else's mistake may show it.
fn set_subprotocols(headers: &mut HeaderMap, received: &HeaderMap) {
    let offered: Vec<&str> = received
        .get_all(header::SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|item| !item.is_empty() && !item.starts_with(BEARER))
        .collect();
    if let Ok(offered) = HeaderValue::from_str(&offered.join(", "))
        && !offered.is_empty()
    {
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, offered);
    }
}

/// Each connection carries one request.
fn set_connection(headers: &mut HeaderMap, wants: Wants, trailers: bool) {
    let connection = match (wants, trailers) {
        (Wants::WebSocket, _) => "Upgrade",
        (Wants::Answer, true) => "close, TE",
        (Wants::Answer, false) => "close",
    };
    headers.insert(header::CONNECTION, HeaderValue::from_static(connection));
    match wants {
        Wants::WebSocket => {
            headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        }
        Wants::Answer if trailers => {
            headers.insert(header::TE, HeaderValue::from_static("trailers"));
        }
        Wants::Answer => {}
    }
}

/// Whether somebody looks at a page: what follows a redirect by itself, or shows one.
pub(super) fn is_navigation(method: &Method, headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let page = || text("accept").is_some_and(|accept| accept.contains("text/html"));
    *method == Method::GET && text("sec-fetch-mode").map_or_else(page, |mode| mode == "navigate")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, HeaderValue::from_static(value));
        }
        map
    }

    fn to_guest(pairs: &[(&'static str, &'static str)], plain: bool, wants: Wants) -> Vec<String> {
        let (prefix, tag) = (Prefix::new("t1", "w1"), Tag::new("uid", 8080));
        let passage = Passage {
            prefix: &prefix,
            tag: &tag,
            own: &Own::new(8080, None),
            client: "192.0.2.7",
            host: Some("kw.example.org"),
            plain,
            wants,
        };
        let headers = headers(&map(pairs), &passage);
        let line = |(name, value): (&HeaderName, &HeaderValue)| {
            format!("{name}: {}", value.to_str().unwrap())
        };
        let mut lines: Vec<_> = headers.iter().map(line).collect();
        lines.sort();
        lines
    }

    const SAID: [&str; 4] = [
        "x-forwarded-for: 192.0.2.7",
        "x-forwarded-host: kw.example.org",
        "x-forwarded-prefix: /apis/kubeworkspaces.io/v1alpha1/namespaces/t1/workspaces/w1/proxy",
        "x-forwarded-proto: https",
    ];

    #[test]
    fn who_asks_is_nothing_for_the_guest() {
        let lines = to_guest(
            &[
                ("authorization", "Bearer secret"),
                ("x-remote-user", "jane"),
                ("x-remote-extra-scopes", "secret"),
                ("X_Remote_User", "root"),
                ("impersonate-user", "root"),
                ("cookie", "token=secret"),
                ("x-forwarded-for", "10.0.0.1, 10.0.0.2"),
                ("x-forwarded-host", "10.0.0.3:6443"),
                ("x_forwarded_proto", "http"),
                ("x-forwarded-uri", "/apis"),
                ("forwarded", "for=10.0.0.1"),
                ("x-real-ip", "10.0.0.1"),
                ("audit-id", "1"),
                ("host", "kw.example.org"),
                ("connection", "x-secret"),
                ("x-secret", "1"),
                ("te", "trailers, deflate"),
                ("accept-encoding", "gzip"),
                ("x-app", "1"),
            ],
            false,
            Wants::Answer,
        );
        let mut expected = vec![
            "accept-encoding: gzip",
            "connection: close, TE",
            "host: localhost:8080",
            "te: trailers",
            "x-app: 1",
        ];
        expected.extend(SAID);
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_websockets_handshake_passes_without_the_token() {
        let lines = to_guest(
            &[
                ("connection", "keep-alive, Upgrade"),
                ("upgrade", "WebSocket"),
                ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
                ("sec-websocket-version", "13"),
                ("sec-websocket-extensions", "permessage-deflate"),
                (
                    "sec-websocket-protocol",
                    "base64url.bearer.authorization.k8s.io.c2VjcmV0, chat",
                ),
                ("sec-websocket-protocol", "superchat"),
                ("origin", "https://desk.example.org"),
            ],
            true,
            Wants::WebSocket,
        );
        let mut expected = vec![
            "accept-encoding: identity",
            "connection: Upgrade",
            "host: localhost:8080",
            "origin: https://desk.example.org",
            "sec-websocket-extensions: permessage-deflate",
            "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
            "sec-websocket-protocol: chat, superchat",
            "sec-websocket-version: 13",
            "upgrade: websocket",
        ];
        expected.extend(SAID);
        assert_eq!(lines, expected);
    }

    #[test]
    fn of_upgrades_only_a_websocket_is_passed_on() {
        let get = Method::GET;
        let of = |method: &Method, pairs: &[_]| wants(method, &map(pairs)).ok();
        let websocket = ("upgrade", "WebSocket");
        let upgrade = ("connection", "keep-alive, upgrade");
        assert_eq!(of(&get, &[]), Some(Wants::Answer));
        assert_eq!(of(&Method::POST, &[upgrade]), Some(Wants::Answer));
        assert_eq!(of(&get, &[websocket, upgrade]), Some(Wants::WebSocket));
        for (method, pairs) in [
            (&get, &[websocket][..]),
            (&Method::POST, &[websocket, upgrade]),
            (&get, &[("upgrade", "h2c"), upgrade]),
            (&get, &[("upgrade", "websocket, h2c"), upgrade]),
            (&get, &[websocket, ("upgrade", "SPDY/3.1"), upgrade]),
        ] {
            assert_eq!(of(method, pairs), None, "{method} {pairs:?}");
        }
    }

    #[test]
    fn a_navigation_is_a_get_that_shows_a_page() {
        for (method, pairs, expected) in [
            (
                "GET",
                &[("accept", "text/html,application/xhtml+xml")][..],
                true,
            ),
            ("GET", &[("accept", "*/*")], false),
            ("GET", &[], false),
            (
                "GET",
                &[("sec-fetch-mode", "navigate"), ("accept", "*/*")],
                true,
            ),
            (
                "GET",
                &[("sec-fetch-mode", "cors"), ("accept", "text/html")],
                false,
            ),
            ("POST", &[("sec-fetch-mode", "navigate")], false),
            ("HEAD", &[("accept", "text/html")], false),
        ] {
            let method = method.parse().unwrap();
            assert_eq!(is_navigation(&method, &map(pairs)), expected, "{pairs:?}");
        }
    }
}
