//! The proof that this replica lives, and the fence that falls when it cannot be given.

use std::time::Duration;

use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use super::store::Inner;

/// When the last renewal that succeeded was begun.
#[derive(Debug)]
pub(super) struct Pulse {
    renewed: watch::Sender<Option<Instant>>,
    fence_after: Duration,
}

impl Pulse {
    pub(super) fn new(fence_after: Duration) -> Self {
        Self {
            renewed: watch::Sender::new(None),
            fence_after,
        }
    }

    /// Whether streams may be held at this moment.
    pub(super) fn holds(&self) -> bool {
        let renewed = *self.renewed.borrow();
        renewed.is_some_and(|at| at.elapsed() < self.fence_after)
    }

    /// Waits until streams may no longer be held.
    pub(super) async fn lapsed(&self) {
        let mut renewed = self.renewed.subscribe();
        loop {
            let Some(at) = *renewed.borrow_and_update() else {
                return;
            };
            let until = at + self.fence_after;
            tokio::select! {
                biased;
                () = sleep_until(until) => return,
                changed = renewed.changed() => if changed.is_err() { return },
            }
        }
    }

    fn renewed(&self, at: Instant) {
        self.renewed.send_replace(Some(at));
    }

    /// Waits until streams may be held.
    async fn held(&self) {
        let fresh = |at: &Option<Instant>| at.is_some_and(|at| at.elapsed() < self.fence_after);
        let mut renewed = self.renewed.subscribe();
        if renewed.wait_for(fresh).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Renews until `stop`, then removes the Lease: nothing of ours is left by then.
pub(super) async fn beat(inner: &Inner, stop: CancellationToken) {
    let mut ticks = interval(inner.timing.renew_every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        let start = Instant::now();
        if renew(inner).await {
            inner.pulse.renewed(start);
        }
    }
    if let Err(error) = inner.leases.remove(&inner.me.to_string()).await {
        tracing::info!(%error, "our Lease is left for others to collect");
    }
}

async fn renew(inner: &Inner) -> bool {
    let renewal = async {
        inner.index.proved(&*inner.storage).await && {
            let renewed = inner.leases.renew(&inner.me).await;
            if let Err(error) = &renewed {
                tracing::warn!(%error, inside = error.internal, "our Lease could not be renewed");
            }
            renewed.is_ok()
        }
    };
    timeout(inner.timing.renewal_limit, renewal)
        .await
        .unwrap_or(false)
}

/// Cuts every exclusive stream whenever the pulse lapses.
pub(super) async fn fence(inner: &Inner, stop: CancellationToken) {
    loop {
        let fall = async {
            inner.pulse.held().await;
            inner.pulse.lapsed().await;
        };
        if stop.run_until_cancelled(fall).await.is_none() {
            return;
        }
        tracing::error!("the control plane is unreachable: exclusive streams are cut");
        inner.holders.fence();
    }
}
