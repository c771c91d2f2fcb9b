//! Our images: what they are made of ([`recipe`]), built when that has changed ([`Build`]), and imported into the node
//! ([`Import`]).

mod build;
mod import;
mod recipe;

pub(super) use build::Build;
pub(super) use import::Import;
pub use import::import;
pub(super) use recipe::{Image, named};
