//! One relay for all modes: bytes between a client and an upstream, with a bound on every buffer.

pub mod liveness;
