//! What a client sees on the wire. The cluster and the launchers are doubles: a map of objects, and a launcher of a few
//! lines that keeps one session per kind; the server, its TLS, and the client's bytes are real.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "clippy knows only functions with #[test] as tests, not their helpers"
)]

mod answers;
mod checker;
mod doubles;
mod faults;
mod streams;
#[path = "../support/mod.rs"]
mod support;
