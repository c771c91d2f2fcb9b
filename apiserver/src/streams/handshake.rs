//! The opening handshake as the server sees it (RFC 6455 §4.2), decided over headers alone.

use apiserver_generic::{ApiError, Body, Reason, call::full};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::negotiate::{Subprotocol, negotiate};

/// What a request to a streaming subresource wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// No upgrade: tell who holds the stream.
    Facts,
    /// A WebSocket of a version that we do not speak.
    OtherVersion,
    /// A WebSocket.
    Stream(Opening),
}

/// A handshake that can be accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    key: String,
    /// What will be spoken.
    pub subprotocol: Subprotocol,
}

/// Reads the request's headers, for a mode that speaks `known`.
///
/// # Errors
/// 400 for an upgrade that is none we speak, with what to send instead.
pub fn read(headers: &HeaderMap, known: &[Subprotocol]) -> Result<Wanted, ApiError> {
    if !headers.contains_key(header::UPGRADE) {
        return Ok(Wanted::Facts);
    }
    if !has_token(headers, header::UPGRADE, "websocket") {
        return Err(ApiError::bad_request(
            "only an upgrade to websocket is served here; SPDY is not",
        ));
    }
    if !has_token(headers, header::CONNECTION, "upgrade") {
        return Err(ApiError::bad_request(
            "an upgrade needs the header Connection: Upgrade; a proxy in between may have removed it",
        ));
    }
    if text(headers, header::SEC_WEBSOCKET_VERSION) != Some("13") {
        return Ok(Wanted::OtherVersion);
    }
    let key = text(headers, header::SEC_WEBSOCKET_KEY)
        .filter(|key| STANDARD.decode(key).is_ok_and(|raw| raw.len() == 16))
        .ok_or_else(|| {
            ApiError::bad_request("Sec-WebSocket-Key must be 16 bytes in base64 (RFC 6455 4.1)")
        })?;
    let offered = headers
        .get_all(header::SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok());
    Ok(Wanted::Stream(Opening {
        key: key.to_owned(),
        subprotocol: negotiate(offered, known)?,
    }))
}

/// Refuses pages of foreign origins: a browser behind `kubectl proxy` acts with its owner's rights.
///
/// # Errors
/// 403 for an `Origin` that is not listed.
pub fn check_origin(headers: &HeaderMap, allowed: &[String]) -> Result<(), ApiError> {
    for origin in headers.get_all(header::ORIGIN) {
        let known = origin
            .to_str()
            .is_ok_and(|origin| allowed.iter().any(|a| a.eq_ignore_ascii_case(origin)));
        if !known {
            return Err(ApiError::new(
                Reason::Forbidden,
                "streams are not opened for web pages of this origin; an operator can list it in --allowed-origins",
            ));
        }
    }
    Ok(())
}

/// The `426` that names the version we speak (RFC 6455 §4.2.2).
pub fn other_version() -> Response<Body> {
    let error =
        ApiError::bad_request("only WebSocket version 13 is supported (Sec-WebSocket-Version: 13)");
    let mut status = error.to_status();
    status["code"] = StatusCode::UPGRADE_REQUIRED.as_u16().into();
    let mut response = Response::new(full(status.to_string()));
    *response.status_mut() = StatusCode::UPGRADE_REQUIRED;
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, "application/json"),
        (header::UPGRADE, "websocket"),
        (header::SEC_WEBSOCKET_VERSION, "13"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// The `101` that accepts.
pub fn accept(opening: &Opening) -> Response<Body> {
    let mut response = Response::new(full(""));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(accept) = HeaderValue::from_str(&derive_accept_key(opening.key.as_bytes())) {
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    }
    if let Some(name) = opening.subprotocol.name() {
        headers.insert(
            header::SEC_WEBSOCKET_PROTOCOL,
            HeaderValue::from_static(name),
        );
    }
    response
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

fn has_token(headers: &HeaderMap, name: header::HeaderName, token: &str) -> bool {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|item| item.trim().eq_ignore_ascii_case(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, HeaderValue::from_static(value));
        }
        map
    }

    const KNOWN: [Subprotocol; 2] = [Subprotocol::Plain, Subprotocol::Binary];

    const GOOD: [(&str, &str); 4] = [
        ("connection", "keep-alive, Upgrade"),
        ("upgrade", "WebSocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];

    #[test]
    fn the_sample_of_the_rfc_is_accepted() {
        let Ok(Wanted::Stream(opening)) = read(&headers(&GOOD), &KNOWN) else {
            panic!("refused");
        };
        let response = accept(&opening);
        assert_eq!(response.status(), 101);
        assert_eq!(
            response.headers()["sec-websocket-accept"],
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        );
        assert!(!response.headers().contains_key("sec-websocket-protocol"));
    }

    #[test]
    fn without_an_upgrade_it_is_a_question() {
        assert_eq!(read(&HeaderMap::new(), &KNOWN).ok(), Some(Wanted::Facts));
    }

    #[test]
    fn an_upgrade_is_never_taken_for_a_question() {
        for (index, value) in [(0, "close"), (1, "SPDY/3.1"), (3, "short")] {
            let mut pairs = GOOD;
            pairs[index].1 = value;
            let error = read(&headers(&pairs), &KNOWN).unwrap_err();
            assert_eq!(error.reason.code(), 400, "{value}");
        }
    }

    #[test]
    fn another_version_is_told_which_one_is_spoken() {
        let mut pairs = GOOD;
        pairs[2].1 = "7";
        assert_eq!(
            read(&headers(&pairs), &KNOWN).ok(),
            Some(Wanted::OtherVersion)
        );
        let response = other_version();
        assert_eq!(response.status(), 426);
        assert_eq!(response.headers()["sec-websocket-version"], "13");
    }

    #[test]
    fn foreign_origins_are_refused_and_listed_ones_are_not() {
        let allowed = vec!["https://desk.example.org".to_owned()];
        assert!(check_origin(&HeaderMap::new(), &[]).is_ok());
        let own = headers(&[("origin", "https://desk.example.org")]);
        assert!(check_origin(&own, &allowed).is_ok());
        assert!(check_origin(&own, &[]).is_err());
        let both = headers(&[
            ("origin", "https://desk.example.org"),
            ("origin", "https://evil.example.org"),
        ]);
        assert_eq!(
            check_origin(&both, &allowed).unwrap_err().reason.code(),
            403
        );
    }
}
