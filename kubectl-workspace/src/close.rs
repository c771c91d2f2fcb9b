//! What an end of the stream means, in one sentence that says why and how to come back.
//!
//! The codes are those of our server (docs: streams); 1005 and 1006 are never on the wire. Entry point: [`explain`].

use crate::target::Target;

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

/// The stream that has ended, for the sentence.
#[derive(Clone, Copy, Debug)]
pub struct Way<'a> {
    /// The workspace.
    pub target: &'a Target,
    /// The subresource, as RBAC has it.
    pub subresource: &'a str,
    /// The command that comes back.
    pub command: &'a str,
}

/// Why the stream has ended, and how to come back.
pub fn explain(ending: &Ending, way: Way<'_>) -> Explanation {
    let Way {
        target,
        subresource,
        command,
    } = way;
    let name = &target.name;
    let again = format!("Run `{command}` to connect again.");
    let (code, reason) = match ending {
        Ending::Closed { code, reason } => (*code, reason.as_str()),
        Ending::Cut(why) => {
            return failed(format!(
                "The connection to {name} was cut without a reason ({why}): the server or the network went away. {again}"
            ));
        }
    };
    match code {
        1000 if reason.contains("taken over") => failed(format!(
            "The session was {reason}. Run `{command} --takeover` to take it back."
        )),
        1000 => ended(name, reason),
        1001 => failed(format!(
            "The server is shutting down and another one takes its place. {again}"
        )),
        1002 => failed(format!(
            "The server did not understand this client ({}). Is the plugin as new as the server?",
            or(reason, "protocol error")
        )),
        1009 => failed(format!(
            "A message was too large for the server ({}). {again}",
            or(reason, "message too big")
        )),
        1011 => failed(format!(
            "The connection between the server and {name} failed ({}). {again}",
            or(reason, "upstream error")
        )),
        4001 => failed(format!(
            "The session was idle for too long and was closed. {again}"
        )),
        4002 if reason.is_empty() || reason.contains("revoked") => failed(format!(
            "Your right to use this was revoked. Ask who manages the namespace for `get` and `create` on workspaces/{subresource}."
        )),
        4002 => failed(format!("The server ended the session: {reason}. {again}")),
        4003 => failed(format!(
            "{name} was stopped. Run `{}` to start it.",
            target.command("start")
        )),
        4004 => failed(format!("{name} was deleted.")),
        4005 => failed(format!("{name} was migrated to another node. {again}")),
        4006 => failed(format!(
            "The guest of {name} went away ({}). {again}",
            or(reason, "it ended or was reset")
        )),
        4007 => failed(format!("An administrator ended the session. {again}")),
        4008 => failed(format!(
            "This end read too slowly and the session was closed. {again}"
        )),
        4009 => failed(format!(
            "The server lost the control plane and gave the session up. {again}"
        )),
        _ => failed(format!(
            "The server closed the session with code {code} ({}). {again}",
            or(reason, "no reason given")
        )),
    }
}

fn failed(sentence: String) -> Explanation {
    Explanation {
        sentence,
        clean: false,
    }
}

/// The server's words are worth repeating when they say more than that.
fn ended(name: &str, reason: &str) -> Explanation {
    let sentence = match reason {
        "" | "ended" | "closed" => format!("The session with {name} has ended."),
        reason => format!("The session with {name} has ended: {reason}."),
    };
    Explanation {
        sentence,
        clean: true,
    }
}

fn or<'a>(reason: &'a str, otherwise: &'a str) -> &'a str {
    if reason.is_empty() { otherwise } else { reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(ending: &Ending) -> Explanation {
        let target = Target {
            name: "demo".into(),
            namespace: "t1".into(),
        };
        let way = Way {
            target: &target,
            subresource: "console",
            command: "kubectl workspace console demo",
        };
        explain(ending, way)
    }

    fn closed(code: u16, reason: &str) -> Explanation {
        let reason = reason.into();
        explained(&Ending::Closed { code, reason })
    }

    #[test]
    fn only_an_ordinary_end_is_clean() {
        let clean = [(1000, ""), (1000, "ended"), (1000, "the command ended")];
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
        assert!(!explained(&Ending::Cut("connection reset".into())).clean);
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
            (
                4002,
                "the stream reached its longest duration",
                ["longest duration", "connect again"],
            ),
            (4003, "", ["stopped", "kubectl workspace start demo -n t1"]),
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
