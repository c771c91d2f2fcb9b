//! One relay for all modes: bytes between a client and an upstream, with a bound on every buffer.
//!
//! [`Relay::run`] moves bytes until one side ends and says how ([`End`]); the caller finds the
//! cause, and then ends the upstream, releases the session, and ends the client, in this order, so that
//! a client that comes back at once never meets its own session.

mod duplex;
mod leg;
mod liveness;
#[cfg(test)]
mod tests;
mod traffic;

pub use duplex::{End, Limits, Relay};
pub use liveness::Pace;
pub use traffic::Traffic;
