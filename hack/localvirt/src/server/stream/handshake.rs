//! The server's half of a WebSocket handshake (RFC 6455 §4.2), with gorilla/websocket's refusals.

use http::{
    HeaderMap, HeaderValue, Method, StatusCode,
    header::{
        CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
        SEC_WEBSOCKET_VERSION, UPGRADE,
    },
};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::server::reply::{self, Failure, Reply};

/// The one subprotocol.
pub const PROTOCOL: &str = "plain.kubevirt.io";

/// A request that is no upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejection {
    code: StatusCode,
    text: &'static str,
}

impl Rejection {
    /// The library's words, then the caller's Status behind them, as text: nobody can parse it, and so it is.
    pub fn reply(self) -> Reply {
        let mut body =
            format!("{}\n", self.code.canonical_reason().unwrap_or_default()).into_bytes();
        let failure = Failure::BadRequest(self.text.to_owned());
        body.extend(reply::indented(&failure.status()));
        let mut reply = reply::bytes(self.code, "text/plain; charset=utf-8", body);
        let version = HeaderValue::from_static("13");
        reply.headers_mut().insert(SEC_WEBSOCKET_VERSION, version);
        reply
    }
}

/// The 101, or why there is none. The order of the checks is gorilla's.
///
/// # Errors
/// When the request is no WebSocket upgrade of version 13.
pub fn accept(method: &Method, headers: &HeaderMap) -> Result<Reply, Rejection> {
    let reject = |code, text| Err(Rejection { code, text });
    if !has_token(headers, CONNECTION.as_str(), "upgrade") {
        let text = "websocket: the client is not using the websocket protocol: 'upgrade' token not found in 'Connection' header";
        return reject(StatusCode::BAD_REQUEST, text);
    }
    if !has_token(headers, UPGRADE.as_str(), "websocket") {
        let text = "websocket: the client is not using the websocket protocol: 'websocket' token not found in 'Upgrade' header";
        return reject(StatusCode::UPGRADE_REQUIRED, text);
    }
    if method != Method::GET {
        return reject(
            StatusCode::METHOD_NOT_ALLOWED,
            "websocket: request method is not GET",
        );
    }
    if !has_token(headers, SEC_WEBSOCKET_VERSION.as_str(), "13") {
        let text = "websocket: unsupported version: 13 not found in 'Sec-Websocket-Version' header";
        return reject(StatusCode::BAD_REQUEST, text);
    }
    match headers.get(SEC_WEBSOCKET_KEY).filter(|key| is_key(key)) {
        Some(key) => Ok(switching(key, headers)),
        None => reject(
            StatusCode::BAD_REQUEST,
            "websocket: not a websocket handshake: 'Sec-WebSocket-Key' header must be Base64 encoded value of 16-byte in length",
        ),
    }
}

fn switching(key: &HeaderValue, headers: &HeaderMap) -> Reply {
    let mut reply = reply::empty(StatusCode::SWITCHING_PROTOCOLS);
    let out = reply.headers_mut();
    // gorilla writes the head itself, without the headers that were set on the response.
    out.clear();
    out.insert(UPGRADE, HeaderValue::from_static("websocket"));
    out.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    if let Ok(value) = HeaderValue::from_str(&derive_accept_key(key.as_bytes())) {
        out.insert(SEC_WEBSOCKET_ACCEPT, value);
    }
    // Chosen if it is offered anywhere; else there is no header, and the upgrade goes on.
    if has_token(headers, SEC_WEBSOCKET_PROTOCOL.as_str(), PROTOCOL) {
        out.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL));
    }
    reply
}

fn has_token(headers: &HeaderMap, name: &str, token: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|v| v.to_str().ok());
    values
        .flat_map(|v| v.split(','))
        .any(|t| t.trim().eq_ignore_ascii_case(token))
}

fn is_key(value: &HeaderValue) -> bool {
    use base64::Engine as _;
    let decoded = base64::engine::general_purpose::STANDARD.decode(value.as_bytes());
    decoded.is_ok_and(|key| key.len() == 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key and the answer of RFC 6455 §1.3.
    const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        list.iter()
            .map(|(k, v)| (http::HeaderName::from_static(k), v.parse().unwrap()))
            .collect()
    }

    fn valid(protocol: Option<&str>) -> HeaderMap {
        let mut all = headers(&[
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "WebSocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", KEY),
        ]);
        if let Some(protocol) = protocol {
            all.insert(SEC_WEBSOCKET_PROTOCOL, protocol.parse().unwrap());
        }
        all
    }

    #[test]
    fn the_subprotocol_is_chosen_wherever_it_is_offered_and_never_otherwise() {
        let cases = [
            (None, None),
            (Some("plain.kubevirt.io"), Some("plain.kubevirt.io")),
            (Some("binary, plain.kubevirt.io"), Some("plain.kubevirt.io")),
            (Some("binary"), None),
        ];
        for (offered, chosen) in cases {
            let reply = accept(&Method::GET, &valid(offered)).unwrap();
            assert_eq!(reply.status(), 101);
            assert_eq!(
                reply.headers()[SEC_WEBSOCKET_ACCEPT],
                "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
            );
            let got = reply
                .headers()
                .get(SEC_WEBSOCKET_PROTOCOL)
                .map(|v| v.to_str().unwrap());
            assert_eq!(got, chosen, "{offered:?}");
        }
    }

    #[test]
    fn what_is_no_upgrade_is_refused_as_gorilla_does() {
        let without = |name: &str| {
            let mut all = valid(None);
            all.remove(name);
            all
        };
        let cases = [
            (Method::GET, without("connection"), 400),
            (Method::GET, without("upgrade"), 426),
            (Method::POST, valid(None), 405),
            (Method::GET, without("sec-websocket-version"), 400),
            (Method::GET, without("sec-websocket-key"), 400),
        ];
        for (method, headers, code) in cases {
            let reply = accept(&method, &headers).unwrap_err().reply();
            assert_eq!(reply.status(), code, "{headers:?}");
        }
    }
}
