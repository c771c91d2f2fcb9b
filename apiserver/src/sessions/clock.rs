//! Times as objects carry them. They are for people: nothing is decided by them.

use std::time::Duration;

use jiff::Timestamp;

/// Now (RFC 3339).
pub(super) fn now() -> String {
    rfc3339(Timestamp::now())
}

/// So long ago (RFC 3339).
pub(super) fn ago(time: Duration) -> String {
    let now = Timestamp::now();
    rfc3339(now.checked_sub(time).unwrap_or(now))
}

fn rfc3339(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
