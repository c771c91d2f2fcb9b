//! How long a request may take: the server's limit, or less if the caller says so by `timeout`
//! (`k8s.io/apiserver/pkg/endpoints/filters/request_deadline.go`).

use std::time::Duration;

use crate::{ApiError, Reason, duration, request};

/// The most that one write may take, less than the server's limit, so that the caller hears from
/// the handler that knows the request and not from a proxy on the way
/// (`requestTimeoutUpperBound` in `k8s.io/apiserver/pkg/endpoints/handlers/rest.go`).
const WRITE: Duration = Duration::from_secs(34);

/// How long a request may take, and what its caller hears then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Deadline {
    /// From now.
    pub(super) after: Duration,
    writes: bool,
}

impl Deadline {
    /// Of a request with this verb and query, when the server's limit is `most`.
    ///
    /// # Errors
    /// 400 when `timeout` is no duration.
    pub(super) fn of(verb: &str, query: &str, most: Duration) -> Result<Self, ApiError> {
        let asked = asked(query, most)?;
        let writes = matches!(verb, "create" | "update" | "patch" | "delete");
        Ok(Self {
            after: if writes { asked.min(WRITE) } else { asked },
            writes,
        })
    }

    /// 504, in kube-apiserver's words.
    pub(super) fn passed(self) -> ApiError {
        ApiError::new(
            Reason::Timeout,
            match self.writes {
                true => {
                    "Timeout: request did not complete within requested timeout - context deadline exceeded"
                }
                false => "Timeout: request did not complete within the allotted timeout",
            },
        )
    }
}

fn asked(query: &str, most: Duration) -> Result<Duration, ApiError> {
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
            let got = Deadline::of("list", query, most);
            let got = got.map(|d| d.after.as_millis()).ok();
            assert_eq!(got, expected, "{query}");
        }
    }

    #[test]
    fn a_write_ends_before_the_servers_limit_does() {
        for (verb, query, most, expected) in [
            ("create", "", 60, 34),
            ("update", "timeout=50s", 60, 34),
            ("patch", "timeout=5s", 60, 5),
            ("delete", "", 20, 20),
            ("deletecollection", "", 60, 60),
            ("get", "", 60, 60),
        ] {
            let deadline = Deadline::of(verb, query, Duration::from_secs(most)).unwrap();
            assert_eq!(deadline.after.as_secs(), expected, "{verb} {query}");
            let words = deadline.passed().message;
            let by_handler = words.contains("context deadline exceeded");
            assert_eq!(by_handler, !["get", "deletecollection"].contains(&verb));
        }
    }
}
