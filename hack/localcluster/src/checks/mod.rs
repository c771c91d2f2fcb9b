//! What the machine must offer, asked before anything is changed.
//!
//! [`Facts::gather`] looks, [`judge`] decides with a sentence each, [`packages`] says what Debian has to add.

mod facts;
mod judge;
pub mod packages;

pub use facts::{Cgroups, Disk, Facts, Netfilter, Privilege, sudo_asks_nothing};
pub use judge::{Finding, Verdict, judge};
