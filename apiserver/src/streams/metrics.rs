//! What streams tell Prometheus. Every label has a fixed set of values.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use apiserver_generic::stopwatch::Stopwatch;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};

use super::close::CloseReason;
use crate::sessions::Meter;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Mode {
    mode: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ending {
    mode: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Direction {
    mode: &'static str,
    direction: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Limited {
    limit: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answer {
    answer: &'static str,
}

/// Which limit a stream was refused by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Open streams of a user.
    User,
    /// Set-ups of a user.
    SetUps,
    /// Open streams to a workspace.
    Workspace,
}

impl Limit {
    fn label(self) -> &'static str {
        match self {
            Self::User => "streams-per-user",
            Self::SetUps => "setups-per-user",
            Self::Workspace => "streams-per-workspace",
        }
    }
}

/// What a re-check of a permission came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recheck {
    /// It is still there.
    Allowed,
    /// It is gone.
    Denied,
    /// There was no answer.
    Failed,
}

impl Recheck {
    fn label(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Failed => "failed",
        }
    }
}

/// The metrics of all streams. Clones are the same.
#[derive(Clone, Debug)]
pub struct StreamMetrics {
    open: Family<Mode, Gauge>,
    ended: Family<Ending, Counter>,
    bytes: Family<Direction, Counter>,
    set_up: Family<Mode, Histogram, fn() -> Histogram>,
    set_up_own: Family<Mode, Histogram, fn() -> Histogram>,
    refused: Family<Limited, Counter>,
    rechecks: Family<Answer, Counter>,
    distinct: Gauge,
    interval: Gauge<f64, AtomicU64>,
}

fn set_up_histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 15))
}

/// Finer: what is ours takes less than a millisecond.
fn own_histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.000_1, 1.5, 20))
}

impl StreamMetrics {
    /// Registers them.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            open: Family::default(),
            ended: Family::default(),
            bytes: Family::default(),
            set_up: Family::new_with_constructor(set_up_histogram),
            set_up_own: Family::new_with_constructor(own_histogram),
            refused: Family::default(),
            rechecks: Family::default(),
            distinct: Gauge::default(),
            interval: Gauge::default(),
        };
        metrics.register_streams(registry);
        metrics.register_checks(registry);
        metrics
    }

    fn register_streams(&self, registry: &mut Registry) {
        registry.register(
            "workspaces_streams_open",
            "Streams that are open",
            self.open.clone(),
        );
        registry.register(
            "workspaces_streams_ended",
            "Streams that ended, by reason",
            self.ended.clone(),
        );
        registry.register_with_unit(
            "workspaces_streams_transferred",
            "What streams carry, from clients (received) and to them (sent)",
            Unit::Bytes,
            self.bytes.clone(),
        );
        registry.register_with_unit(
            "workspaces_streams_set_up",
            "From the request to the upgrade, with everything that is waited for",
            Unit::Seconds,
            self.set_up.clone(),
        );
        registry.register_with_unit(
            "workspaces_streams_set_up_own",
            "The same without the waits for reviews, look-ups, the claim and the upstream",
            Unit::Seconds,
            self.set_up_own.clone(),
        );
        registry.register(
            "workspaces_streams_refused",
            "Streams that were refused with 429, by limit",
            self.refused.clone(),
        );
    }

    fn register_checks(&self, registry: &mut Registry) {
        registry.register(
            "workspaces_stream_rechecks",
            "Permissions of open streams that were asked for again, by answer",
            self.rechecks.clone(),
        );
        registry.register(
            "workspaces_stream_permissions",
            "Distinct permissions that open streams of this replica depend on",
            self.distinct.clone(),
        );
        registry.register_with_unit(
            "workspaces_stream_recheck_interval",
            "Time between two re-checks of one permission; it stretches when there are more than can be asked for in 30 s",
            Unit::Seconds,
            self.interval.clone(),
        );
    }

    /// A stream was accepted; what is returned counts it until it ends.
    pub fn opened(&self, mode: &'static str, set_up: &Stopwatch, meter: Arc<dyn Meter>) -> Open {
        self.open.get_or_create(&Mode { mode }).inc();
        self.set_up
            .get_or_create(&Mode { mode })
            .observe(set_up.total().as_secs_f64());
        self.set_up_own
            .get_or_create(&Mode { mode })
            .observe(set_up.own().as_secs_f64());
        Open {
            metrics: self.clone(),
            mode,
            meter,
            counted: [AtomicU64::new(0), AtomicU64::new(0)],
        }
    }

    pub(super) fn refused(&self, limit: Limit) {
        let limit = limit.label();
        self.refused.get_or_create(&Limited { limit }).inc();
    }

    pub(super) fn rechecked(&self, recheck: Recheck) {
        let answer = recheck.label();
        self.rechecks.get_or_create(&Answer { answer }).inc();
    }

    pub(super) fn permissions(&self, distinct: usize, interval: Duration) {
        self.distinct
            .set(i64::try_from(distinct).unwrap_or(i64::MAX));
        self.interval.set(interval.as_secs_f64());
    }
}

/// An open stream. Dropping it without an ending counts it as one that lost its task.
pub struct Open {
    metrics: StreamMetrics,
    mode: &'static str,
    meter: Arc<dyn Meter>,
    /// Bytes from the client and to it that are counted already.
    counted: [AtomicU64; 2],
}

impl Open {
    /// Counts what has passed since the last time.
    pub fn progress(&self) {
        let now = [self.meter.received(), self.meter.sent()];
        for ((direction, counted), now) in
            ["received", "sent"].into_iter().zip(&self.counted).zip(now)
        {
            let before = counted.swap(now, Ordering::Relaxed);
            let mode = self.mode;
            self.metrics
                .bytes
                .get_or_create(&Direction { mode, direction })
                .inc_by(now.saturating_sub(before));
        }
    }

    /// It ended.
    pub fn closed(self, reason: &CloseReason) {
        let (mode, reason) = (self.mode, reason.label());
        self.metrics
            .ended
            .get_or_create(&Ending { mode, reason })
            .inc();
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.progress();
        let mode = self.mode;
        self.metrics.open.get_or_create(&Mode { mode }).dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(AtomicU64);

    impl Meter for Fixed {
        fn received(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }
        fn sent(&self) -> u64 {
            7
        }
        fn idle(&self) -> Duration {
            Duration::ZERO
        }
    }

    fn text(registry: &Registry) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
        text
    }

    #[test]
    fn a_stream_is_counted_while_it_is_open_and_by_its_end() {
        let mut registry = Registry::default();
        let metrics = StreamMetrics::register(&mut registry);
        let meter = Arc::new(Fixed(AtomicU64::new(3)));
        let set_up = Stopwatch::start();
        let open = || metrics.opened("console", &set_up, meter.clone());
        let (one, two, aborted) = (open(), open(), open());
        one.progress();
        meter.0.store(5, Ordering::Relaxed);
        one.progress();
        two.closed(&CloseReason::Idle);
        drop(aborted);
        let received =
            r#"workspaces_streams_transferred_bytes_total{mode="console",direction="received"} 15"#;
        for line in [
            r#"workspaces_streams_open{mode="console"} 1"#,
            r#"workspaces_streams_ended_total{mode="console",reason="idle"} 1"#,
            r#"workspaces_streams_set_up_seconds_count{mode="console"} 3"#,
            r#"workspaces_streams_set_up_own_seconds_count{mode="console"} 3"#,
            received,
        ] {
            assert!(
                text(&registry).contains(line),
                "{line}\n{}",
                text(&registry)
            );
        }
    }

    #[test]
    fn refusals_and_rechecks_are_counted_by_kind() {
        let mut registry = Registry::default();
        let metrics = StreamMetrics::register(&mut registry);
        metrics.refused(Limit::Workspace);
        metrics.rechecked(Recheck::Failed);
        metrics.permissions(800, Duration::from_secs(32));
        for line in [
            r#"workspaces_streams_refused_total{limit="streams-per-workspace"} 1"#,
            r#"workspaces_stream_rechecks_total{answer="failed"} 1"#,
            "workspaces_stream_permissions 800",
            "workspaces_stream_recheck_interval_seconds 32",
        ] {
            assert!(
                text(&registry).contains(line),
                "{line}\n{}",
                text(&registry)
            );
        }
    }
}
