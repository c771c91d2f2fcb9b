//! Headers that concern one connection and not the message: removed in both directions (RFC 9110
//! §7.6.1). Pure.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, header};
use http_body::Frame;

/// What is removed even if `Connection` does not name it. `Trailer` stays: trailers are passed on.
const HOP_BY_HOP: [HeaderName; 10] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("proxy-authentication-info"),
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("http2-settings"),
];

/// Removes them, and those that `Connection` names.
pub(super) fn strip(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = tokens(headers, &header::CONNECTION)
        .filter_map(|token| token.parse().ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// Removes those that are refused.
pub(super) fn remove(headers: &mut HeaderMap, refused: impl Fn(&HeaderName) -> bool) {
    let names: Vec<HeaderName> = headers.keys().filter(|n| refused(n)).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// What must not pass in a head does not pass behind the body either.
pub(super) fn trailers(frame: Frame<Bytes>, refused: impl Fn(&HeaderName) -> bool) -> Frame<Bytes> {
    match frame.into_trailers() {
        Ok(mut trailers) => {
            strip(&mut trailers);
            remove(&mut trailers, refused);
            Frame::trailers(trailers)
        }
        Err(data) => data,
    }
}

/// Whether a list of tokens has this one, in any case.
pub(super) fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    tokens(headers, name).any(|item| item.eq_ignore_ascii_case(token))
}

fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    headers
        .get_all(name)
        .into_iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn what_concerns_one_connection_stays_there() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-Hop"),
            ("connection", "x-other,,not a name"),
            ("x-hop", "1"),
            ("x-other", "1"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("proxy-authorization", "Basic x"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("http2-settings", "x"),
            ("trailer", "x-sum"),
            ("x-end", "1"),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        strip(&mut headers);
        let left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(left, ["trailer", "x-end"]);
    }
}
