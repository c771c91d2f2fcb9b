//! An upstream's refusal, in the words of our API.
//!
//! KubeVirt answers with a Status, with plain text, or with both one after the other under a
//! `text/plain` header; kubelets answer through kube-apiserver. Our own lack of permission must never
//! look like the caller's.

use apiserver_generic::{ApiError, Reason};
use serde_json::Value;

/// The cause of a refusal because of somebody who came past us.
pub const HELD_OUTSIDE: &str = "HeldOutside";
/// What virt-handler says then.
const ACTIVE: &str = "Active VNC connection";

/// The longest foreign text that is repeated.
const LONGEST: usize = 300;

/// Translates a refusal.
pub fn translate(status: u16, body: &[u8], what: &str) -> ApiError {
    let said = message(body);
    let starting = |why: &str| {
        ApiError::bad_request(format!(
            "the {what} is not ready: {why}; try again in a moment"
        ))
        .retry_after(2)
    };
    match status {
        401 | 403 => ApiError::internal(format!("{what}: {status} {said}")).cause(
            "ServerNotPermitted",
            "the server itself may not open this stream; an operator has to grant its ServiceAccount what the log names",
            "",
        ),
        404 => starting("it is gone or not there yet"),
        400 => starting(&said),
        409 => ApiError::new(Reason::Conflict, format!("the {what} cannot be opened: {said}")),
        429 => ApiError::new(Reason::TooManyRequests, format!("the {what} is busy: {said}"))
            .retry_after(1),
        _ if said.contains(ACTIVE) => held_outside(what),
        _ => ApiError::new(
            Reason::ServiceUnavailable,
            format!("the {what} could not be opened: {said}; try again"),
        )
        .retry_after(1),
    }
}

fn held_outside(what: &str) -> ApiError {
    let message = format!(
        "the {what} is held outside kubeworkspaces, by virtctl or another client of KubeVirt's own API; add ?takeover=true to end that and take it"
    );
    ApiError::new(Reason::Conflict, message).cause(HELD_OUTSIDE, "held outside kubeworkspaces", "")
}

/// The message of a Status, wherever in the body it stands, else the text.
fn message(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let status = text
        .find('{')
        .and_then(|at| serde_json::from_str::<Value>(&text[at..]).ok());
    let message = status
        .as_ref()
        .and_then(|status| status["message"].as_str())
        .unwrap_or(&text);
    let line: String = message
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(LONGEST)
        .collect();
    match line.trim() {
        "" => "no reason given".to_owned(),
        line => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubevirts_shapes_are_understood() {
        let status = |text: &str| format!(r#"{{"kind":"Status","message":"{text}","code":0}}"#);
        let cases: Vec<(u16, String, u16, &str)> = vec![
            (400, status("VMI is not running"), 400, "VMI is not running"),
            (409, status("VMI is in failed status"), 409, "failed status"),
            (404, "404: Page Not Found".into(), 400, "not there yet"),
            (
                400,
                format!(
                    "Bad Request\n{}",
                    status("No virt-handler on node n1 found")
                ),
                400,
                "No virt-handler",
            ),
            (
                500,
                status(
                    "Internal error occurred: dial tcp 10.0.0.1:8186: connect: connection refused",
                ),
                503,
                "connection refused",
            ),
            (
                500,
                status("bad handshake: application info: Active VNC connection. Request denied."),
                409,
                "held outside",
            ),
            (503, String::new(), 503, "no reason given"),
        ];
        for (code, body, expected, word) in cases {
            let error = translate(code, body.as_bytes(), "console");
            assert_eq!(error.reason.code(), expected, "{body}");
            assert!(error.message.contains(word), "{}", error.message);
        }
    }

    #[test]
    fn our_own_lack_of_rights_is_not_the_callers() {
        let error = translate(403, b"secret details", "console");
        assert_eq!(error.reason.code(), 500);
        assert!(!error.to_status().to_string().contains("secret details"));
        assert!(error.internal.unwrap().contains("secret details"));
    }

    #[test]
    fn waiting_clients_are_told_when_to_come_back() {
        let details = translate(400, b"x", "console").details.unwrap();
        assert_eq!(details.retry_after_seconds, Some(2));
    }
}
