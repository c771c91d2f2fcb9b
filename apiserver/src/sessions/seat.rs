//! A stream's place among the sessions, whichever kind it is.

use std::sync::Arc;

use super::{counters::Meter, held::Held, record::Wish, shared::Joined, store::Sessions};
use crate::streams::close::CloseReason;

/// The session of an open stream.
pub enum Seat {
    /// One holder at a time, claimed before the upstream was dialled.
    Exclusive(Held, Arc<dyn Meter>),
    /// One of several that share an object.
    Shared(Joined),
}

impl Seat {
    /// Seats a stream that is open: one that was claimed, or one that disturbs nobody.
    pub fn take(
        sessions: &Sessions,
        held: Option<Held>,
        wish: &Wish,
        meter: Arc<dyn Meter>,
    ) -> Self {
        match held {
            Some(held) => Self::Exclusive(held, meter),
            None => Self::Shared(sessions.join(wish, meter)),
        }
    }

    /// Waits until the stream is told to end, and why; meanwhile its counters are kept.
    ///
    /// # Cancel safety
    /// What was told stays told.
    pub async fn told(&mut self) -> CloseReason {
        match self {
            Self::Shared(joined) => joined.told().await,
            Self::Exclusive(held, meter) => {
                let counters = held.counters();
                tokio::select! {
                    biased;
                    reason = held.told() => reason,
                    never = counters.keep(&**meter) => match never {},
                }
            }
        }
    }

    /// Leaves: the stream has ended towards its upstream. The session is gone, or somebody else's, when
    /// this returns.
    pub async fn release(self) {
        match self {
            Self::Exclusive(held, _) => held.release().await,
            Self::Shared(joined) => joined.release().await,
        }
    }
}
