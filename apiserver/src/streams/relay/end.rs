//! How a relay ends, as its two sides show it.

use crate::streams::wire::Exit;

/// Why the bytes stopped, before the cause of it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The client said goodbye.
    ClientClosed,
    /// The client's connection broke, or it stopped answering.
    ClientGone,
    /// The client broke the protocol.
    ClientViolation(&'static str),
    /// The client took nothing for ten minutes.
    ClientStalled,
    /// The client's data ended, and the upstream could only be told by ending both directions.
    InputEnded,
    /// Both directions ended, one after the other.
    Finished,
    /// The command ended.
    Exited(Exit),
    /// The upstream's data ended, and the client can only be told by ending both directions.
    OutputEnded,
    /// The upstream ended as connections to ports do, in both directions.
    UpstreamFinished,
    /// The upstream said goodbye, with its words.
    UpstreamClosed(Option<(u16, String)>),
    /// The upstream's connection broke, or it stopped answering; inside words.
    UpstreamLost(String),
    /// Nothing passed for the idle time.
    Idle,
}
