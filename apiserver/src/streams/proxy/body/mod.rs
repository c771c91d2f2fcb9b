//! Bodies on their way: nothing is kept of them but the piece in hand.

mod answer;
mod page;
mod upload;

pub(super) use answer::Answer;
pub(super) use page::Page;
pub(super) use upload::{Leave, Upload};
