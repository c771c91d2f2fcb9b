//! How much a peer may send, and how long it may take.
//!
//! A user with 1,000 groups arrives from kube-apiserver with 1,000 header lines, which is more than
//! most HTTP servers expect. hyper is therefore told to accept more than we allow, so that what is
//! over the limit is answered with a Status instead of a closed connection.

use std::time::Duration;

use http::HeaderMap;

use crate::{ApiError, Reason};

/// Header lines of one request.
pub const MAX_HEADERS: usize = 5_000;
/// Bytes of all header lines of one request.
pub const MAX_HEADER_BYTES: usize = 1 << 20;
/// Bytes of one body, as kube-apiserver's `MaxRequestBodyBytes`.
pub const MAX_BODY_BYTES: usize = 3 << 20;
/// HTTP/2 streams of one connection: kube-apiserver sends all users' requests over few connections.
pub const MAX_STREAMS: u32 = 1_000;
/// TCP connections at a time.
pub const MAX_CONNECTIONS: usize = 20_000;
/// For a TLS handshake.
pub const HANDSHAKE: Duration = Duration::from_secs(10);
/// For a request's head, and for an idle HTTP/1.1 connection.
pub const REQUEST_HEAD: Duration = Duration::from_secs(32);
/// Between HTTP/2 pings on a quiet connection.
pub const PING_EVERY: Duration = Duration::from_secs(30);
/// For the answer to an HTTP/2 ping.
pub const PING_ANSWER: Duration = Duration::from_secs(15);

/// For bytes that a peer does not acknowledge: a hop that died without a word.
pub const UNACKNOWLEDGED: Duration = Duration::from_secs(45);

/// What hyper itself takes; beyond that it answers 431 without a Status.
pub(super) const PARSER_HEADERS: usize = 2 * MAX_HEADERS;
/// As [`PARSER_HEADERS`], in bytes.
pub(super) const PARSER_HEADER_BYTES: usize = 2 * MAX_HEADER_BYTES;

/// Refuses a request whose headers are too many or too long.
///
/// # Errors
/// 431.
pub fn check_headers(headers: &HeaderMap) -> Result<(), ApiError> {
    let lines = headers.len();
    // Each line is counted with the four bytes of `: ` and CRLF.
    let bytes: usize = headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + 4)
        .sum();
    if lines <= MAX_HEADERS && bytes <= MAX_HEADER_BYTES {
        return Ok(());
    }
    let text = format!(
        "the request has {lines} header lines of {bytes} bytes; \
         at most {MAX_HEADERS} lines of {MAX_HEADER_BYTES} bytes are taken"
    );
    Err(ApiError::new(Reason::RequestHeaderFieldsTooLarge, text))
}

/// 413, in kube-apiserver's words.
pub fn body_too_large() -> ApiError {
    ApiError::new(
        Reason::RequestEntityTooLarge,
        format!("Request entity too large: limit is {MAX_BODY_BYTES}"),
    )
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn headers(lines: usize, value: usize) -> HeaderMap {
        let value = HeaderValue::from_str(&"x".repeat(value)).unwrap();
        let mut headers = HeaderMap::new();
        for _ in 0..lines {
            headers.append(HeaderName::from_static("x-remote-group"), value.clone());
        }
        headers
    }

    #[test]
    fn headers_are_bounded_in_number_and_in_bytes() {
        for (lines, value, fits) in [
            (1_000, 20, true),
            (5_000, 1, true),
            (5_001, 1, false),
            (1, MAX_HEADER_BYTES - 18, true),
            (1, MAX_HEADER_BYTES - 17, false),
        ] {
            let result = check_headers(&headers(lines, value));
            assert_eq!(result.is_ok(), fits, "{lines} lines of {value}");
        }
    }
}
