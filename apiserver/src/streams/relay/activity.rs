//! What keeps a stream from being idle.

use super::rfb::RfbInput;

/// Which bytes count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Activity {
    /// What is typed and what is printed.
    Both,
    /// What a person does at a display.
    Display(RfbInput),
}

impl Activity {
    /// For a display.
    pub fn display() -> Self {
        Self::Display(RfbInput::default())
    }

    /// Whether these bytes of the client count.
    pub(super) fn typed(&mut self, bytes: &[u8]) -> bool {
        match self {
            Self::Both => true,
            Self::Display(input) => input.take(bytes),
        }
    }

    /// Whether what the upstream sends counts.
    pub(super) fn printed(&self) -> bool {
        matches!(self, Self::Both)
    }
}
