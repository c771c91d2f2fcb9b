//! Our images: what they are made of ([`recipe`]), built when that has changed ([`Build`]), and imported into the node
//! ([`Import`]) or pushed to where the nodes of a cluster that exists pull them ([`Push`]).

mod build;
mod import;
mod push;
mod recipe;

pub(super) use build::Build;
pub(super) use import::Import;
pub use import::import;
pub(super) use push::{Push, Pusher};
pub(super) use recipe::{Image, named};
