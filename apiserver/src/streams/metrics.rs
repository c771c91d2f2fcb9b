//! What streams tell Prometheus.

use std::time::Duration;

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

use super::{close::CloseReason, relay::Traffic};

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

/// The metrics of all streams. Every label has a fixed set of values.
#[derive(Clone, Debug)]
pub struct StreamMetrics {
    open: Family<Mode, Gauge>,
    ended: Family<Ending, Counter>,
    bytes: Family<Direction, Counter>,
    set_up: Family<Mode, Histogram>,
}

impl StreamMetrics {
    /// Registers them.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            open: Family::default(),
            ended: Family::default(),
            bytes: Family::default(),
            set_up: Family::new_with_constructor(|| {
                Histogram::new(exponential_buckets(0.001, 2.0, 15))
            }),
        };
        registry.register(
            "workspaces_streams_open",
            "Streams that are open",
            metrics.open.clone(),
        );
        registry.register(
            "workspaces_streams_ended",
            "Streams that ended, by reason",
            metrics.ended.clone(),
        );
        registry.register_with_unit(
            "workspaces_streams_transferred",
            "What streams have carried, counted at their end",
            Unit::Bytes,
            metrics.bytes.clone(),
        );
        registry.register_with_unit(
            "workspaces_streams_set_up",
            "From the request to the upgrade, with everything that is waited for",
            Unit::Seconds,
            metrics.set_up.clone(),
        );
        metrics
    }

    /// A stream was accepted.
    pub(super) fn opened(&self, mode: &'static str, set_up: Duration) {
        self.open.get_or_create(&Mode { mode }).inc();
        self.set_up
            .get_or_create(&Mode { mode })
            .observe(set_up.as_secs_f64());
    }

    /// It ended.
    pub(super) fn closed(&self, mode: &'static str, reason: &CloseReason, traffic: &Traffic) {
        self.open.get_or_create(&Mode { mode }).dec();
        let reason = reason.label();
        self.ended.get_or_create(&Ending { mode, reason }).inc();
        for (direction, bytes) in [("received", traffic.received()), ("sent", traffic.sent())] {
            self.bytes
                .get_or_create(&Direction { mode, direction })
                .inc_by(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_counted_while_it_is_open_and_by_its_end() {
        let mut registry = Registry::default();
        let metrics = StreamMetrics::register(&mut registry);
        let traffic = Traffic::new(std::time::Instant::now());
        metrics.opened("console", Duration::from_millis(3));
        metrics.opened("console", Duration::from_millis(3));
        metrics.closed("console", &CloseReason::Idle, &traffic);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            r#"workspaces_streams_open{mode="console"} 1"#,
            r#"workspaces_streams_ended_total{mode="console",reason="idle"} 1"#,
            r#"workspaces_streams_set_up_seconds_count{mode="console"} 2"#,
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
