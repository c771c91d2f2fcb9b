//! How long a request may take: the server's limit, or less if the caller says so by `timeout`
//! (`k8s.io/apiserver/pkg/endpoints/filters/request_deadline.go`).

use std::time::Duration;

use crate::{ApiError, Reason, duration, request};

/// The time for a request with this query.
///
/// # Errors
/// 400 when `timeout` is no duration.
pub(super) fn of(query: &str, most: Duration) -> Result<Duration, ApiError> {
    let Some(text) = request::first(query, "timeout").filter(|text| !text.is_empty()) else {
        return Ok(most);
    };
    match duration::parse(&text) {
        None => Err(ApiError::bad_request(format!(
            "invalid timeout {text:?} in the request URL: it must be a duration such as 30s"
        ))),
        Some(asked) if asked.is_zero() => Ok(most),
        Some(asked) => Ok(asked.min(most)),
    }
}

/// 504, in kube-apiserver's words.
pub(super) fn passed() -> ApiError {
    ApiError::new(
        Reason::Timeout,
        "Timeout: request did not complete within the allotted timeout",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_may_shorten_but_not_lengthen() {
        let most = Duration::from_secs(60);
        for (query, expected) in [
            ("", Some(60_000)),
            ("timeout=", Some(60_000)),
            ("timeout=30s", Some(30_000)),
            ("timeout=1h", Some(60_000)),
            ("timeout=0", Some(60_000)),
            ("timeout=0s", Some(60_000)),
            ("timeout=1.5s", Some(1_500)),
            ("timeout=%2B1s500ms", Some(1_500)),
            ("timeout=32", None),
            ("timeout=-1s", None),
        ] {
            let got = of(query, most).map(|d| d.as_millis()).ok();
            assert_eq!(got, expected, "{query}");
        }
    }
}
