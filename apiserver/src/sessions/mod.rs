//! Sessions: who holds which stream, across replicas.
//!
//! Creating the object `<workspace>.<mode>` is the claim on an exclusive stream, removing it the
//! release; a finalizer keeps the name taken until the stream has really ended. Each replica proves
//! with one Lease that it lives, and collects what dead ones have left. Streams that disturb nobody
//! share objects that are only shown ([`shared`]). Entry point: [`Sessions::start`].

pub mod claim;
mod clock;
mod collector;
mod counters;
mod ends;
mod heartbeat;
mod held;
mod holders;
mod index;
pub mod lease;
mod own;
pub mod record;
pub mod refusal;
pub mod replica;
mod seat;
mod shared;
mod store;
mod takeover;
#[cfg(test)]
mod tests;
mod timing;

pub use counters::{Counters, Meter};
pub use ends::Predecessor;
pub use held::Held;
pub use seat::Seat;
pub use shared::Joined;
pub use store::{SessionDeps, Sessions};
pub use takeover::Reach;
pub use timing::Timing;
