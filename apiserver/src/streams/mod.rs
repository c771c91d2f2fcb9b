//! Streams: consoles and shells between a client and what a workspace runs.
//!
//! A stream is authorized, resolved, claimed, dialled, checked again, accepted, relayed and
//! released, in this order. Before the upgrade every failure is a Status; after it a close frame
//! says why the stream ended.

pub mod close;
pub mod frame;
pub mod handshake;
pub mod negotiate;
pub mod relay;
pub mod resolve;
pub mod wire;
