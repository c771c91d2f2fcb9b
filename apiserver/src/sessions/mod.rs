//! Sessions: who holds which exclusive stream, across replicas.
//!
//! Creating the object `<workspace>.<mode>` is the claim, removing it the release; a finalizer keeps
//! the name taken until the stream has really ended. Each replica proves with one Lease that it
//! lives, and collects what dead ones have left. Entry point: [`Sessions::start`].

pub mod claim;
mod collector;
mod heartbeat;
mod holders;
mod index;
pub mod lease;
mod own;
pub mod record;
pub mod replica;
mod store;
#[cfg(test)]
mod tests;

pub use store::{Counters, Held, Reach, SessionDeps, Sessions, Timing};
