//! What the controller tells Prometheus, under the names of `sigs.k8s.io/controller-runtime` and of
//! `k8s.io/client-go/util/workqueue`, so that dashboards made for them work.
//!
//! A replica that does not lead shows zeros.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::{counter::Counter, family::Family, gauge::Gauge};
use prometheus_client::registry::Registry;

/// The one controller that there is so far.
const NAME: &str = "workspace";

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Result {
    controller: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Controller {
    controller: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Name {
    name: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Outcome {
    result: &'static str,
}

/// The metrics. Clones share the values; every label has a fixed set of values.
#[derive(Clone, Debug)]
pub struct ControllerMetrics {
    reconciles: Family<Result, Counter>,
    errors: Family<Controller, Counter>,
    durations: Family<Controller, Histogram, fn() -> Histogram>,
    active: Family<Controller, Gauge>,
    depth: Family<Name, Gauge>,
    adds: Family<Name, Counter>,
    retries: Family<Name, Counter>,
    events: Family<Outcome, Counter>,
}

fn durations() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 17))
}

impl Default for ControllerMetrics {
    fn default() -> Self {
        Self {
            reconciles: Family::default(),
            errors: Family::default(),
            durations: Family::new_with_constructor(durations),
            active: Family::default(),
            depth: Family::default(),
            adds: Family::default(),
            retries: Family::default(),
            events: Family::default(),
        }
    }
}

impl ControllerMetrics {
    /// Adds them to a registry.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "controller_runtime_reconcile",
            "Reconciles by result",
            self.reconciles.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_errors",
            "Reconciles that failed",
            self.errors.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_time_seconds",
            "Time of a reconcile",
            self.durations.clone(),
        );
        registry.register(
            "controller_runtime_active_workers",
            "Reconciles under way",
            self.active.clone(),
        );
        registry.register(
            "workqueue_depth",
            "Workspaces that wait to be reconciled",
            self.depth.clone(),
        );
        registry.register(
            "workqueue_adds",
            "Workspaces that were put into the queue",
            self.adds.clone(),
        );
        registry.register(
            "workqueue_retries",
            "Workspaces that are tried again after a failure",
            self.retries.clone(),
        );
        registry.register(
            "workspaces_controller_events",
            "Kubernetes Events: published, failed, or dropped because too many waited",
            self.events.clone(),
        );
        // Shown from the start, so that an alert on their absence has something to go by.
        self.depth.get_or_create(&Name { name: NAME }).set(0);
        self.active.get_or_create(&controller()).set(0);
    }

    /// A reconcile begins.
    pub(crate) fn began(&self) {
        self.active.get_or_create(&controller()).inc();
    }

    /// It has ended: `success`, `requeue_after`, `error` or `cancelled`.
    pub(crate) fn ended(&self, result: &'static str, took: Duration) {
        self.active.get_or_create(&controller()).dec();
        let labels = Result {
            controller: NAME,
            result,
        };
        self.reconciles.get_or_create(&labels).inc();
        self.durations
            .get_or_create(&controller())
            .observe(took.as_secs_f64());
        if result == "error" {
            self.errors.get_or_create(&controller()).inc();
            self.retries.get_or_create(&Name { name: NAME }).inc();
        }
    }

    /// The queue has this many waiting, and this many were added to it.
    pub(crate) fn queue(&self, depth: usize, added: bool) {
        let name = Name { name: NAME };
        let depth = i64::try_from(depth).unwrap_or(i64::MAX);
        self.depth.get_or_create(&name).set(depth);
        if added {
            self.adds.get_or_create(&name).inc();
        }
    }

    /// An Event was `published`, has `failed`, or was `dropped`.
    pub(crate) fn event(&self, result: &'static str) {
        self.events.get_or_create(&Outcome { result }).inc();
    }
}

fn controller() -> Controller {
    Controller { controller: NAME }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dashboards_find_their_names() {
        let (mut registry, metrics) = (Registry::default(), ControllerMetrics::default());
        metrics.register(&mut registry);
        let text = |registry: &Registry| {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
            text
        };
        assert!(text(&registry).contains(r#"workqueue_depth{name="workspace"} 0"#));
        metrics.queue(3, true);
        metrics.began();
        metrics.began();
        metrics.ended("error", Duration::from_millis(5));
        metrics.event("dropped");
        let text = text(&registry);
        for line in [
            r#"workqueue_depth{name="workspace"} 3"#,
            r#"workqueue_adds_total{name="workspace"} 1"#,
            r#"workqueue_retries_total{name="workspace"} 1"#,
            r#"controller_runtime_active_workers{controller="workspace"} 1"#,
            r#"controller_runtime_reconcile_total{controller="workspace",result="error"} 1"#,
            r#"controller_runtime_reconcile_errors_total{controller="workspace"} 1"#,
            r#"controller_runtime_reconcile_time_seconds_count{controller="workspace"} 1"#,
            r#"workspaces_controller_events_total{result="dropped"} 1"#,
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }
}
