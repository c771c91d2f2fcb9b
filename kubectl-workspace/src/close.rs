//! What an end of the stream means, in one sentence that says why and how to come back.
//!
//! The codes are those of our server (docs: streams); 1005 and 1006 are never on the wire. Entry point: [`explain`].

/// How a stream ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By a close frame.
    Closed {
        /// Its code.
        code: u16,
        /// Its reason.
        reason: String,
    },
    /// Without one.
    Cut(String),
}

/// What to say, and whether it went well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// One sentence or two.
    pub sentence: String,
    /// Whether this is an orderly end, exit code 0.
    pub clean: bool,
}

/// Why `command` (which comes back when it is typed again) has ended.
pub fn explain(ending: &Ending, name: &str, command: &str) -> Explanation {
    let again = format!("Run `{command}` to connect again.");
    let (code, reason) = match ending {
        Ending::Closed { code, reason } => (*code, reason.as_str()),
        Ending::Cut(why) => {
            let sentence = format!(
                "The connection to {name} was cut without a reason ({why}): the server or the network went away. {again}"
            );
            return Explanation {
                sentence,
                clean: false,
            };
        }
    };
    let failed = |sentence: String| Explanation {
        sentence,
        clean: false,
    };
    match code {
        1000 if reason.is_empty() || reason == "ended" => Explanation { sentence: format!("The session with {name} has ended."), clean: true },
        1000 if reason.contains("taken over") => {
            failed(format!("The session was {reason}. Run `{command} --takeover` to take it back."))
        }
        1000 => Explanation { sentence: format!("The session with {name} has ended: {reason}."), clean: true },
        1001 => failed(format!("The server is shutting down and another one takes its place. {again}")),
        1002 => failed(format!("The server did not understand this client ({}). Is the plugin as new as the server?", or(reason, "protocol error"))),
        1009 => failed(format!("A message was too large for the server ({}). {again}", or(reason, "message too big"))),
        1011 => failed(format!("The connection between the server and {name} failed ({}). {again}", or(reason, "upstream error"))),
        4001 => failed(format!("The session was idle for too long and was closed. {again}")),
        4002 => failed("Your right to use this console was revoked. Ask who manages the namespace for `get` and `create` on workspaces/console.".into()),
        4003 => failed(format!("{name} was stopped. Run `kubectl workspace start {name}` to start it.")),
        4004 => failed(format!("{name} was deleted.")),
        4005 => failed(format!("{name} was migrated to another node. {again}")),
        4006 => failed(format!("The guest of {name} went away ({}). {again}", or(reason, "it ended or was reset"))),
        4007 => failed(format!("An administrator ended the session. {again}")),
        4008 => failed(format!("This terminal read too slowly and the session was closed. {again}")),
        4009 => failed(format!("The server lost the control plane and gave the session up. {again}")),
        _ => failed(format!("The server closed the session with code {code} ({}). {again}", or(reason, "no reason given"))),
    }
}

fn or<'a>(reason: &'a str, otherwise: &'a str) -> &'a str {
    if reason.is_empty() { otherwise } else { reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed(code: u16, reason: &str) -> Explanation {
        explain(
            &Ending::Closed {
                code,
                reason: reason.into(),
            },
            "demo",
            "kubectl workspace console demo",
        )
    }

    #[test]
    fn only_an_ordinary_end_is_clean() {
        let clean = [(1000, ""), (1000, "ended")];
        for (code, reason) in clean {
            assert!(closed(code, reason).clean, "{code} {reason}");
        }
        let unclean = [
            (1000, "taken over by another user"),
            (1001, ""),
            (1002, ""),
            (1009, ""),
            (1011, ""),
            (4999, ""),
        ];
        for (code, reason) in unclean
            .into_iter()
            .chain((4001..=4009).map(|code| (code, "")))
        {
            assert!(!closed(code, reason).clean, "{code} {reason}");
        }
        assert!(!explain(&Ending::Cut("connection reset".into()), "demo", "c").clean);
    }

    #[test]
    fn each_end_says_why_and_what_to_do() {
        let cases = [
            (
                1000,
                "taken over by another user",
                ["taken over by another user", "--takeover"],
            ),
            (
                1001,
                "drain",
                ["shutting down", "kubectl workspace console demo"],
            ),
            (
                1011,
                "dial tcp: refused",
                ["dial tcp: refused", "kubectl workspace console demo"],
            ),
            (4001, "", ["idle", "connect again"]),
            (4002, "", ["revoked", "workspaces/console"]),
            (4003, "", ["stopped", "kubectl workspace start demo"]),
            (4004, "", ["demo", "deleted"]),
            (4005, "", ["migrated", "connect again"]),
            (4006, "", ["went away", "connect again"]),
            (4007, "", ["administrator", "connect again"]),
            (4008, "", ["slowly", "connect again"]),
            (4009, "", ["control plane", "connect again"]),
            (4242, "why", ["4242", "why"]),
        ];
        for (code, reason, words) in cases {
            let sentence = closed(code, reason).sentence;
            assert!(
                words.iter().all(|word| sentence.contains(word)),
                "{code}: {sentence}"
            );
        }
    }
}
