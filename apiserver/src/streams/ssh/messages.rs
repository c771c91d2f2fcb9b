//! What a terminal is told in text frames, beside the bytes that the guest prints.

use serde_json::json;

use crate::streams::close::CloseReason;

/// How a terminal ended: its shell did, or there is a reason why it had to.
pub fn farewell(reason: &CloseReason) -> String {
    match reason {
        CloseReason::Exited(code) => json!({"type": "exit", "code": code}),
        CloseReason::Killed {
            signal,
            core_dumped,
            message,
        } => {
            json!({"type": "exit", "signal": signal, "coreDumped": core_dumped, "message": message})
        }
        CloseReason::NoTerminal {
            reason, message, ..
        } => json!({"type": "error", "reason": reason, "message": message}),
        other => json!({"type": "error", "reason": other.label(), "message": other.text()}),
    }
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streams::close::Fault;

    #[test]
    fn ends_are_told_in_json() {
        assert_eq!(
            farewell(&CloseReason::Exited(7)),
            r#"{"code":7,"type":"exit"}"#
        );
        let killed = CloseReason::Killed {
            signal: "KILL".into(),
            core_dumped: false,
            message: "gone".into(),
        };
        assert_eq!(
            farewell(&killed),
            r#"{"coreDumped":false,"message":"gone","signal":"KILL","type":"exit"}"#
        );
        let long = "x".repeat(500);
        let refused = CloseReason::NoTerminal {
            fault: Fault::Guest,
            reason: "AuthenticationFailed",
            message: long.clone(),
        };
        assert!(
            farewell(&refused).contains(&long),
            "longer than a close frame"
        );
        assert_eq!(
            farewell(&CloseReason::TakenOver),
            r#"{"message":"taken over by another user","reason":"taken-over","type":"error"}"#
        );
    }
}
