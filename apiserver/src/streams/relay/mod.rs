//! One relay for all modes: bytes between a client and an upstream, with a bound on every buffer.
//!
//! [`Relay::run`] moves bytes until one side ends and says how ([`End`]); the caller finds the
//! cause, and then ends the upstream, releases the session, and ends the client, in this order, so that
//! a client that comes back at once never meets its own session.
//!
//! The client is always a WebSocket ([`ClientSide`]); the upstream is one too, or bytes
//! ([`Upstream`]). Where the client's dialect has an end of data, each direction ends by itself.

mod activity;
mod bytes;
mod duplex;
mod end;
mod leg;
mod limits;
mod liveness;
mod outbox;
mod pass;
mod pump;
mod rfb;
#[cfg(test)]
mod tests;
mod traffic;
mod upstream;

pub use activity::Activity;
pub use bytes::Terminal;
pub use duplex::{ClientSide, Relay};
pub use end::End;
pub use limits::Limits;
pub use liveness::Pace;
pub use traffic::Traffic;
pub use upstream::{Connection, Upstream};
