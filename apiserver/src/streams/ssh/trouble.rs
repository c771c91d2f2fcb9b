//! Everything that can go wrong between us and a guest's SSH server, and what to do about each.
//!
//! Before the upgrade a [`Trouble`] becomes a Status ([`Trouble::into_error`]), after it the
//! terminal's `error` message; both say the same sentence.

use std::time::Duration;

use apiserver_generic::{ApiError, Reason};
use russh::{AlgorithmKind, Error};

use super::key::BadKey;

/// The longest foreign text that is repeated.
const LONGEST: usize = 200;

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// Connected, and then nothing.
    #[error(
        "the guest took the connection on port 22 and then said nothing for {} s; it may be overloaded or still starting, try again",
        .0.as_secs()
    )]
    Stalled(Duration),
    /// Something else listens there.
    #[error("what listens on port 22 of the guest is no SSH server")]
    NotSsh,
    /// The connection ended before the server had proved who it is.
    #[error(
        "the guest closed the connection before the SSH handshake; sshd may be starting, refusing new connections (MaxStartups, PerSourcePenalties) or blocking our address; try again"
    )]
    ClosedEarly,
    /// No way to talk.
    #[error(
        "the guest's SSH server and this one have no {what} in common; the guest offers: {offered}"
    )]
    NothingInCommon {
        /// What of.
        what: &'static str,
        /// Its list.
        offered: String,
    },
    /// The server is not the one that was pinned, or it was told to say so by nobody.
    #[error("the guest did not prove that it has its pinned host key")]
    HostKey,
    /// The key that the user sent.
    #[error("{0}")]
    Key(#[from] BadKey),
    /// The guest said no.
    #[error(
        "the guest refused user {user:?} with the key {fingerprint}: check the user's name, and that its authorized_keys holds the key (an SshKey object puts it there)"
    )]
    Denied {
        /// The user in the guest.
        user: String,
        /// The key's fingerprint.
        fingerprint: String,
    },
    /// The guest said: and what else?
    #[error(
        "the guest accepted the key of user {user:?} and asks for more ({more}); use kubectl workspace ssh, where your own ssh can answer"
    )]
    MoreWanted {
        /// The user in the guest.
        user: String,
        /// What it asks for.
        more: String,
    },
    /// The connection ended while the user logged in.
    #[error(
        "the guest closed the connection during the login of user {0:?}; its sshd log says why (too many attempts, an account that is locked)"
    )]
    ClosedDuringLogin(String),
    /// The login took too long.
    #[error("the guest did not finish the login within {} s; try again", .0.as_secs())]
    SlowLogin(Duration),
    /// No session.
    #[error("the guest opened no session after the login: {0}")]
    NoSession(String),
    /// No PTY.
    #[error(
        "the guest gives this user no terminal (PermitTTY, or the options of the key); use kubectl workspace ssh with a command"
    )]
    NoTerminal,
    /// No shell.
    #[error("the guest gives this user no shell")]
    NoShell,
    /// Anything else that breaks a connection.
    #[error("the SSH connection to the guest broke: {0}; try again")]
    Broken(String),
}

impl Trouble {
    /// The word for it, in the terminal's `error` message.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Stalled(_) => "Stalled",
            Self::NotSsh => "NotSsh",
            Self::ClosedEarly => "ClosedEarly",
            Self::NothingInCommon { .. } => "NothingInCommon",
            Self::HostKey => "HostKeyChanged",
            Self::Key(_) => "BadKey",
            Self::Denied { .. } => "AuthenticationFailed",
            Self::MoreWanted { .. } => "MoreAuthenticationWanted",
            Self::ClosedDuringLogin(_) => "ClosedDuringLogin",
            Self::SlowLogin(_) => "SlowLogin",
            Self::NoSession(_) => "NoSession",
            Self::NoTerminal => "NoTerminal",
            Self::NoShell => "NoShell",
            Self::Broken(_) => "Broken",
        }
    }

    /// As the answer to a request that was not upgraded.
    pub fn into_error(self, workspace: &str) -> ApiError {
        let text = self.to_string();
        match self {
            Self::Stalled(_) | Self::ClosedEarly | Self::SlowLogin(_) | Self::Broken(_) => {
                ApiError::new(Reason::ServiceUnavailable, text).retry_after(2)
            }
            Self::Key(_) => ApiError::bad_request(text),
            other => ApiError::conflict("kubeworkspaces.io", "workspaces", workspace, &text).cause(
                other.reason(),
                text,
                "",
            ),
        }
    }
}

/// What an error of the library means before the host key is accepted.
pub(super) fn before_proof(error: &Error) -> Trouble {
    match error {
        Error::NoCommonAlgo { kind, theirs, .. } => Trouble::NothingInCommon {
            what: kind_of(kind),
            offered: said(&theirs.join(", ")),
        },
        Error::Version => Trouble::NotSsh,
        Error::UnknownKey | Error::WrongServerSig => Trouble::HostKey,
        Error::Signature(_) => Trouble::HostKey,
        Error::Disconnect | Error::HUP | Error::IO(_) | Error::RecvError => Trouble::ClosedEarly,
        other => Trouble::Broken(said(&other.to_string())),
    }
}

fn kind_of(kind: &AlgorithmKind) -> &'static str {
    match kind {
        AlgorithmKind::Kex => "key exchange",
        AlgorithmKind::Key => "host key type",
        AlgorithmKind::Cipher => "cipher",
        AlgorithmKind::Compression => "compression",
        AlgorithmKind::Mac => "MAC",
    }
}

/// Foreign words on one line, without control characters, cut.
pub(super) fn said(text: &str) -> String {
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let line: String = plain.take(LONGEST).collect();
    match line.trim() {
        "" => "nothing".to_owned(),
        line => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_handshake_say_whose_fault_they_are() {
        let none = |kind| Error::NoCommonAlgo {
            kind,
            ours: vec!["a".into()],
            theirs: vec!["b".into(), "c".into()],
        };
        let table = [
            (
                none(AlgorithmKind::Cipher),
                "NothingInCommon",
                "cipher",
                409,
            ),
            (Error::Version, "NotSsh", "no SSH server", 409),
            (Error::UnknownKey, "HostKeyChanged", "pinned", 409),
            (Error::HUP, "ClosedEarly", "MaxStartups", 503),
            (Error::Disconnect, "ClosedEarly", "try again", 503),
            (Error::PacketAuth, "Broken", "authentication code", 503),
        ];
        for (error, reason, word, code) in table {
            let trouble = before_proof(&error);
            assert_eq!(trouble.reason(), reason, "{error}");
            assert!(trouble.to_string().contains(word), "{trouble}");
            let status = trouble.into_error("demo");
            assert_eq!(status.reason.code(), code, "{error}");
            let waits = status
                .details
                .is_some_and(|d| d.retry_after_seconds.is_some());
            assert_eq!(waits, code == 503, "{error}");
        }
    }

    #[test]
    fn foreign_words_stay_on_one_line() {
        assert_eq!(said("a\x1b[31m\nb"), "a [31m b");
        assert_eq!(said("\n"), "nothing");
        assert_eq!(said(&"x".repeat(1_000)).len(), LONGEST);
    }
}
