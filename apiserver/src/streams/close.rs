//! Why a stream ended, in one enum: close code, sentence, and Status of every end.
//!
//! Codes 1005, 1006 and 1015 are never sent (RFC 6455 §7.4.1); reasons fit a control frame
//! (123 bytes) and never name the other user.

use serde_json::{Value, json};

/// The longest reason that fits a close frame beside its code.
pub const MAX_REASON: usize = 123;

/// Every way in which a stream ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The client closed it.
    ClientClosed,
    /// The client's connection broke or stopped answering: nobody is left to tell.
    ClientGone,
    /// The other end of a connection to a port ended it.
    Ended,
    /// The client's data ended, on a way that cannot tell that and go on.
    EndedBoth,
    /// A shell or command ended with this exit status.
    Exited(i32),
    /// A signal ended a shell or command.
    Killed {
        /// The signal, as `TERM`.
        signal: String,
        /// Whether a core was dumped.
        core_dumped: bool,
        /// What else is known.
        message: String,
    },
    /// A terminal was not opened, for a fault of the client's message or a refusal of the guest's.
    NoTerminal {
        /// Whose fault.
        fault: Fault,
        /// One word.
        reason: &'static str,
        /// What happened and what to do, of any length.
        message: String,
    },
    /// Another user took the stream over.
    TakenOver,
    /// This server is shutting down.
    Draining,
    /// The client broke the protocol.
    Protocol(&'static str),
    /// The upstream ended without a cause that we could find.
    CutByUpstream,
    /// The upstream said this on its close.
    Upstream(String),
    /// Nothing was typed and nothing was printed for the idle time.
    Idle,
    /// The rights to this stream are gone.
    Revoked,
    /// The longest life of a stream is over.
    Expired,
    /// Authorization could not be confirmed for longer than the grace.
    Unconfirmed,
    /// The workspace was stopped.
    Stopped,
    /// The workspace was deleted.
    Deleted,
    /// The machine moved to another node.
    Migrated,
    /// The guest is gone.
    GuestGone,
    /// The pod of a shell is gone.
    PodGone,
    /// The session object was deleted.
    EndedByAdmin,
    /// The client took nothing for too long.
    SlowReader,
    /// This replica can no longer prove that it holds the stream.
    ControlPlaneUnreachable,
}

/// Whose fault it is that a terminal was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The client sent what cannot be understood or used.
    Client,
    /// The client sent too much.
    TooLong,
    /// The guest refused.
    Guest,
}

impl CloseReason {
    /// The close code.
    pub fn code(&self) -> u16 {
        match self {
            Self::ClientClosed
            | Self::ClientGone
            | Self::Ended
            | Self::EndedBoth
            | Self::Exited(_)
            | Self::Killed { .. }
            | Self::TakenOver => 1000,
            Self::Draining => 1001,
            Self::Protocol(_) => 1002,
            Self::NoTerminal { fault, .. } => match fault {
                Fault::Client => 1002,
                Fault::TooLong => 1009,
                Fault::Guest => 1011,
            },
            Self::CutByUpstream | Self::Upstream(_) => 1011,
            Self::Idle => 4001,
            Self::Revoked | Self::Expired | Self::Unconfirmed => 4002,
            Self::Stopped => 4003,
            Self::Deleted => 4004,
            Self::Migrated => 4005,
            Self::GuestGone | Self::PodGone => 4006,
            Self::EndedByAdmin => 4007,
            Self::SlowReader => 4008,
            Self::ControlPlaneUnreachable => 4009,
        }
    }

    /// What the client reads, at most [`MAX_REASON`] bytes.
    pub fn text(&self) -> String {
        let text = match self {
            Self::ClientClosed => "closed",
            Self::ClientGone => "the client went away",
            Self::Ended => "the other side ended the connection",
            Self::EndedBoth => {
                "your data ended, and the connection with it: this way to the port has no half-close"
            }
            Self::Exited(0) => "the command ended",
            Self::Exited(code) => return format!("the command ended with exit status {code}"),
            Self::Killed { signal, .. } => {
                return cut(&format!("the command was ended by signal {signal}")).to_owned();
            }
            Self::NoTerminal { message, .. } => message,
            Self::TakenOver => "taken over by another user",
            Self::Draining => {
                "this server is shutting down; connect again now, another replica answers"
            }
            Self::Protocol(what) => what,
            Self::CutByUpstream => "cut by the upstream",
            Self::Upstream(said) => {
                return cut(&format!("the upstream ended it: {said}")).to_owned();
            }
            Self::Idle => "idle for too long; connect again to go on",
            Self::Revoked => "your permission for this stream was revoked",
            Self::Expired => "the stream reached its longest duration; connect again to go on",
            Self::Unconfirmed => {
                "your permission could not be confirmed for too long; connect again"
            }
            Self::Stopped => "the workspace was stopped",
            Self::Deleted => "the workspace was deleted",
            Self::Migrated => "the machine moved to another node; connect again to go on",
            Self::GuestGone => "the guest is gone: it shut down, was reset or crashed",
            Self::PodGone => "the pod is gone: it was deleted, evicted or replaced",
            Self::EndedByAdmin => "the session was ended by an administrator",
            Self::SlowReader => "the client did not read for too long",
            Self::ControlPlaneUnreachable => {
                "the control plane is unreachable from this server; connect again"
            }
        };
        cut(text).to_owned()
    }

    /// The word for metrics and the audit line.
    pub fn label(&self) -> &'static str {
        match self {
            Self::ClientClosed => "client-closed",
            Self::ClientGone => "client-gone",
            Self::Ended | Self::EndedBoth => "ended",
            Self::Exited(_) | Self::Killed { .. } => "exited",
            Self::NoTerminal { .. } => "no-terminal",
            Self::TakenOver => "taken-over",
            Self::Draining => "draining",
            Self::Protocol(_) => "protocol-error",
            Self::CutByUpstream | Self::Upstream(_) => "upstream",
            Self::Idle => "idle",
            Self::Revoked => "revoked",
            Self::Expired => "expired",
            Self::Unconfirmed => "unconfirmed",
            Self::Stopped => "stopped",
            Self::Deleted => "deleted",
            Self::Migrated => "migrated",
            Self::GuestGone => "guest-gone",
            Self::PodGone => "pod-gone",
            Self::EndedByAdmin => "ended-by-admin",
            Self::SlowReader => "slow-reader",
            Self::ControlPlaneUnreachable => "control-plane-unreachable",
        }
    }

    /// The Status that goes to channel 3 of `v4` and `v5` clients, in the shape that kubectl reads
    /// (`k8s.io/client-go/tools/remotecommand/v4.go`).
    pub fn status(&self) -> Value {
        match self {
            Self::ClientClosed | Self::Ended | Self::EndedBoth | Self::Exited(0) => {
                json!({"metadata": {}, "status": "Success"})
            }
            Self::Exited(code) => json!({
                "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
                "message": format!("command terminated with non-zero exit code: exit status {code}"),
                "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
            }),
            other => json!({
                "metadata": {}, "status": "Failure", "reason": "InternalError",
                "message": other.text(), "code": 500,
            }),
        }
    }

    /// Whether there is still a client to tell.
    pub fn reaches_client(&self) -> bool {
        !matches!(self, Self::ClientGone)
    }
}

/// Cuts at a character so that a close frame holds it.
pub fn cut(text: &str) -> &str {
    let mut end = text.len().min(MAX_REASON);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<CloseReason> {
        use CloseReason as R;
        vec![
            R::ClientClosed,
            R::ClientGone,
            R::Ended,
            R::EndedBoth,
            R::Exited(0),
            R::Exited(-2_000_000_000),
            R::Killed {
                signal: "x".repeat(200),
                core_dumped: true,
                message: String::new(),
            },
            R::NoTerminal {
                fault: Fault::Guest,
                reason: "Denied",
                message: "ü".repeat(200),
            },
            R::TakenOver,
            R::Draining,
            R::Protocol("frames from clients must be masked"),
            R::CutByUpstream,
            R::Upstream("ü".repeat(200)),
            R::Idle,
            R::Revoked,
            R::Expired,
            R::Unconfirmed,
            R::Stopped,
            R::Deleted,
            R::Migrated,
            R::GuestGone,
            R::PodGone,
            R::EndedByAdmin,
            R::SlowReader,
            R::ControlPlaneUnreachable,
        ]
    }

    #[test]
    fn every_end_fits_a_close_frame_and_has_a_legal_code() {
        for reason in all() {
            let text = reason.text();
            assert!(!text.is_empty() && text.len() <= MAX_REASON, "{text}");
            let code = reason.code();
            assert!(![1004, 1005, 1006, 1015].contains(&code), "{reason:?}");
            assert!(code == 1000 || text.len() > 5, "{reason:?} explains itself");
        }
    }

    #[test]
    fn cutting_keeps_characters_whole() {
        let text = "ü".repeat(70);
        assert_eq!(cut(&text).len(), 122);
        assert_eq!(cut("short"), "short");
    }

    #[test]
    fn an_exit_status_reaches_kubectl_in_its_own_shape() {
        let status = CloseReason::Exited(7).status();
        assert_eq!(status["reason"], "NonZeroExitCode");
        assert_eq!(status["details"]["causes"][0]["message"], "7");
        assert_eq!(CloseReason::Exited(0).status()["status"], "Success");
        assert_eq!(CloseReason::Stopped.status()["status"], "Failure");
    }
}
