//! Streams: consoles and shells between a client and what a workspace runs.
//!
//! A stream is authorized, resolved, claimed, dialled, checked again, accepted, relayed and
//! released, in this order ([`console`]). Before the upgrade every failure is a Status; after it
//! a close frame says why the stream ended ([`close`]).

mod asked;
pub mod close;
pub mod console;
pub mod frame;
pub mod handshake;
pub mod metrics;
pub mod negotiate;
pub mod recheck;
pub mod relay;
pub mod resolve;
mod session;
pub mod target;
#[cfg(test)]
mod tests;
pub mod upstream;
pub mod wire;
