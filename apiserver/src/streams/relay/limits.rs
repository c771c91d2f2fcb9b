//! What bounds a relay, and what its limits count.

use std::time::Duration;

use super::{activity::Activity, liveness::Pace};

/// What bounds a relay.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// Pings, stalls and goodbyes.
    pub pace: Pace,
    /// The end of a stream on which nothing passes that counts.
    pub idle: Option<(Duration, Activity)>,
    /// Whether an end of the upstream waits until the client has taken all, however slowly. An
    /// exclusive stream does not: its name must become free.
    pub drains: bool,
}

impl Limits {
    /// Whether what the client sends is looked at.
    pub(super) fn looks_at_input(&self) -> bool {
        matches!(self.idle, Some((_, Activity::Display(_))))
    }

    /// Whether these bytes of the client keep the stream from being idle.
    pub(super) fn counts_typed(&mut self, bytes: &[u8]) -> bool {
        match &mut self.idle {
            Some((_, activity)) => activity.typed(bytes),
            None => true,
        }
    }

    /// Whether what the upstream sends does.
    pub(super) fn counts_printed(&self) -> bool {
        match &self.idle {
            Some((_, activity)) => activity.printed(),
            None => true,
        }
    }
}
