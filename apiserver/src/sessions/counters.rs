//! What a session has carried, for those who list it. The exact figures are in the audit.

use std::{convert::Infallible, sync::Arc, time::Duration};

use apiserver_generic::{Key, storage::WriteContext};
use tokio::time::{Instant, sleep};

use super::{
    record::{self, Passed},
    store::Inner,
};
use crate::streams::relay::Traffic;

/// Writes of counters a second, over all sessions of this replica.
const WRITES: f64 = 20.0;

/// What one stream has carried, readable while it runs.
pub trait Meter: Send + Sync + 'static {
    /// Bytes from the client.
    fn received(&self) -> u64;
    /// Bytes to the client.
    fn sent(&self) -> u64;
    /// How long nothing has passed.
    fn idle(&self) -> Duration;
}

impl Meter for Traffic {
    fn received(&self) -> u64 {
        Self::received(self)
    }
    fn sent(&self) -> u64 {
        Self::sent(self)
    }
    fn idle(&self) -> Duration {
        Self::idle(self, Instant::now().into_std())
    }
}

/// The counters of one stream.
pub(super) fn passed(meter: &dyn Meter) -> Passed {
    let (received, sent) = (meter.received(), meter.sent());
    Passed {
        streams: 1,
        received,
        sent,
        idle: (received + sent > 0).then(|| meter.idle()),
    }
}

/// Where the counters of a session are written while it lives.
pub struct Counters {
    inner: Arc<Inner>,
    key: Key,
    claim: String,
}

impl Counters {
    pub(super) fn new(inner: Arc<Inner>, key: Key, claim: String) -> Self {
        Self { inner, key, claim }
    }

    /// Writes the counters of one stream now and then, while they change.
    ///
    /// # Cancel safety
    /// Dropping it ends it; a write under way may or may not be done.
    pub async fn keep(&self, meter: &dyn Meter) -> Infallible {
        self.keep_with(|| passed(meter)).await
    }

    /// The same for what `read` says.
    pub(super) async fn keep_with(&self, read: impl Fn() -> Passed) -> Infallible {
        let figures = |passed: &Passed| (passed.streams, passed.received, passed.sent);
        let mut written = (1, 0, 0);
        loop {
            sleep(self.inner.timing.count_every).await;
            if figures(&read()) == written {
                continue;
            }
            self.inner.counting.turn(WRITES).await;
            let passed = read();
            written = figures(&passed);
            self.write(&passed).await;
        }
    }

    /// Writes them once; somebody faster leaves them to the next time.
    pub async fn write(&self, passed: &Passed) {
        let known = self.inner.index.get(&self.key);
        let Some(seen) = known.filter(|seen| seen.spec.claim == self.claim) else {
            return;
        };
        let object = record::with_traffic(&seen.stored.object, passed);
        let (context, revision) = (WriteContext::default(), seen.stored.revision);
        let storage = &self.inner.storage;
        let written = storage.update(&context, &self.key, &object, revision);
        if let Err(error) = written.await {
            tracing::debug!(%error, session = self.key.name, "counters were not written");
        }
    }
}
