//! What a caller reads when a guest gives no answer that can be passed on. Pure.

use std::{error::Error, io, time::Duration};

use apiserver_generic::{ApiError, Reason};

use crate::streams::close::CloseReason;

/// 502, for something that the guest did.
pub(super) fn bad_gateway(port: u16, did: &str, advice: &str) -> ApiError {
    ApiError::new(
        Reason::BadGateway,
        format!("the app on port {port} of the workspace {did}; {advice}"),
    )
}

/// The exchange with the guest failed before its answer began.
pub(super) fn no_answer(port: u16, error: &hyper::Error) -> ApiError {
    if let Some(words) = broken_by(error) {
        return ApiError::new(
            Reason::ServiceUnavailable,
            format!(
                "port {port} of the workspace was lost: {words}; see whether the app there runs, and try again"
            ),
        )
        .retry_after(1);
    }
    let see_log = "see its log";
    let failed = if error.is_parse_too_large() {
        bad_gateway(
            port,
            "answered with more header lines than are passed on",
            see_log,
        )
    } else if error.is_parse() {
        bad_gateway(
            port,
            "gave no answer in HTTP/1.1",
            "if it speaks something else, HTTPS for instance, use kubectl workspace port-forward",
        )
    } else if error.is_user() {
        ApiError::bad_request("the request's body ended before it was whole")
    } else {
        bad_gateway(
            port,
            "ended the connection before it answered",
            "see its log, and try again",
        )
    };
    failed.because(error)
}

/// The words of the connection beneath, if that is what failed.
fn broken_by(error: &hyper::Error) -> Option<String> {
    let mut source = error.source();
    while let Some(error) = source {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return Some(io.to_string());
        }
        source = error.source();
    }
    None
}

/// An answer that says its length in two ways.
pub(super) fn ambiguous(port: u16) -> ApiError {
    bad_gateway(
        port,
        "answered with both Content-Length and Transfer-Encoding",
        "what is meant is not guessed (RFC 9112 6.3)",
    )
}

/// 504.
pub(super) fn late(port: u16, limit: Duration) -> ApiError {
    ApiError::new(
        Reason::Timeout,
        format!(
            "the app on port {port} of the workspace did not begin to answer within {} s \
             (--proxy-response-timeout); see its log, or use kubectl workspace port-forward, which waits for ever",
            limit.as_secs()
        ),
    )
}

/// The exchange was told to end before the answer began.
pub(super) fn told(reason: Option<&CloseReason>) -> ApiError {
    let words = reason.map(CloseReason::text).unwrap_or_default();
    match reason {
        Some(CloseReason::Revoked) => ApiError::new(Reason::Forbidden, words),
        Some(CloseReason::Stopped | CloseReason::Deleted) => ApiError::new(Reason::Conflict, words),
        _ => ApiError::new(
            Reason::ServiceUnavailable,
            format!("the request was ended: {words}; try again"),
        )
        .retry_after(1),
    }
}

/// A redirect that cannot pass.
pub(super) fn redirect(port: u16) -> ApiError {
    bad_gateway(
        port,
        "redirects, which kube-apiserver does not let through",
        "the header X-Kubeworkspaces-Location says where to",
    )
}

/// An upgrade that was answered otherwise.
pub(super) fn no_upgrade(port: u16, status: http::StatusCode) -> ApiError {
    bad_gateway(
        port,
        &format!("answered a WebSocket's handshake with {}", status.as_u16()),
        "ask for a path where it serves WebSockets",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_has_a_code_and_says_what_to_do() {
        let limit = Duration::from_secs(120);
        for (error, code, words) in [
            (ambiguous(80), 502, "not guessed"),
            (late(80, limit), 504, "within 120 s"),
            (told(Some(&CloseReason::Revoked)), 403, "revoked"),
            (told(Some(&CloseReason::Stopped)), 409, "stopped"),
            (told(Some(&CloseReason::Draining)), 503, "try again"),
            (told(None), 503, "try again"),
            (redirect(80), 502, "X-Kubeworkspaces-Location"),
            (no_upgrade(80, http::StatusCode::OK), 502, "with 200"),
        ] {
            assert_eq!(error.reason.code().as_u16(), code, "{error}");
            assert!(error.message.contains(words), "{error}");
        }
    }
}
