//! A whole single-node Kubernetes on one machine without a container engine, and its control plane alone for tests.
//!
//! Read in this order: [`versions`] (what runs), [`assets`] (where its programs come from), [`checks`] (what the
//! machine must offer), [`pki`] (who trusts whom), [`proc`] (how programs are started and ended), [`controlplane`]
//! (their command lines), [`node`] (what they run in), [`root`] (all of that together), [`steps`] (what `hack/up` does).
//! [`harness`] is what tests use. `hack/up` and its sisters call the binary of this crate.

pub mod assets;
pub mod checks;
pub mod controlplane;
pub mod harness;
pub mod lock;
pub mod node;
pub mod pki;
pub mod proc;
pub mod progress;
pub mod root;
pub mod state;
pub mod steps;
pub mod versions;

pub use assets::{Assets, Binary};
pub use pki::Pki;
pub use state::State;
