//! Certificates of the server: issued, kept and rotated by itself.
//!
//! - [`issue`]: a CA and serving certificates from it (pure, apart from the random source).
//! - [`identity`]: what a certificate says: validity, names, fingerprint.
//! - [`plan`]: what a stored set of certificates needs now (pure; this is where rotation is decided).
//! - [`store`]: the Secret that all replicas share, changed by compare-and-swap.
//! - [`manager`]: watches the Secret, does what the plan says, publishes the certificates in force.
//!
//! Certificates in files (cert-manager, kcp) need none of this: the server reads and watches them
//! itself.

pub mod identity;
pub mod issue;
pub mod manager;
pub mod plan;
pub mod store;

pub use issue::{Authority, IssueError, PemPair};
pub use manager::{Certificates, Manager};
