//! Reading changes from the cache as they come.

use std::{collections::VecDeque, sync::Arc};

use tokio::sync::watch;

use super::{Cache, Cursor, Event, Lagged};
use crate::storage::Revision;

/// Most events taken under one lock.
const BATCH: usize = 64;

/// What a follower is told.
#[derive(Clone, Debug)]
pub enum Followed {
    /// A change.
    Event(Arc<Event>),
    /// The history ended before the follower had read it: start over.
    Lagged(Lagged),
    /// The cache stopped.
    Stopped,
}

/// A reader of changes. It holds a position, and at most one batch of shared events.
pub struct Follow {
    cache: Cache,
    ticks: watch::Receiver<u64>,
    cursor: Cursor,
    batch: VecDeque<Arc<Event>>,
    /// The reader knows everything up to here.
    from: Revision,
}

impl Follow {
    pub(super) fn new(
        cache: Cache,
        ticks: watch::Receiver<u64>,
        cursor: Cursor,
        from: Revision,
    ) -> Self {
        Self {
            cache,
            ticks,
            cursor,
            batch: VecDeque::new(),
            from,
        }
    }

    /// The next change.
    ///
    /// # Cancel safety
    /// A change is taken only by a call that returns it.
    pub async fn next(&mut self) -> Followed {
        loop {
            while let Some(event) = self.batch.pop_front() {
                if event.is_after(self.from) {
                    return Followed::Event(event);
                }
            }
            self.ticks.borrow_and_update();
            let read = self.cache.shared.state.read().read(&mut self.cursor, BATCH);
            match read {
                Ok(events) if events.is_empty() => {
                    if !self.cache.changed(&mut self.ticks).await {
                        return Followed::Stopped;
                    }
                }
                Ok(events) => self.batch.extend(events),
                Err(lagged) => return Followed::Lagged(lagged),
            }
        }
    }

    /// The revision from which a reader that has taken everything so far may resume: what a
    /// bookmark says. `None` while changes are waiting to be taken.
    pub fn bookmark(&self) -> Option<Revision> {
        let state = self.cache.shared.state.read();
        let caught_up = self.batch.is_empty() && state.at_end(&self.cursor);
        caught_up.then(|| state.revision().max(self.from))
    }
}
