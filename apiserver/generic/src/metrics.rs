//! Prometheus metrics, with the names and labels of kube-apiserver
//! (`k8s.io/apiserver/pkg/endpoints/metrics`), so that dashboards and alerts made for it work.
//!
//! Label values come from the resource table and other fixed lists, never from what a caller sent:
//! the number of series is bounded.

use std::{fmt, sync::Arc, time::Duration};

use http::{HeaderValue, Response, header};
use parking_lot::Mutex;
use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use crate::{Body, call::full};

const DURATION_BUCKETS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
];

/// What a request is about, as metrics see it.
#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct RequestLabels {
    /// Upper-case verb, or `other`.
    pub verb: &'static str,
    /// `All`, or empty.
    pub dry_run: &'static str,
    /// API group of a resource that is served.
    pub group: &'static str,
    /// Its version.
    pub version: &'static str,
    /// Its plural.
    pub resource: &'static str,
    /// Its subresource.
    pub subresource: &'static str,
    /// `resource`, `namespace`, `cluster`, or empty.
    pub scope: &'static str,
    /// Always `apiserver`.
    pub component: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CountLabels {
    verb: &'static str,
    dry_run: &'static str,
    group: &'static str,
    version: &'static str,
    resource: &'static str,
    subresource: &'static str,
    scope: &'static str,
    component: &'static str,
    code: u16,
}

/// Which limit a request counts against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// It changes something.
    Mutating,
    /// It only reads.
    ReadOnly,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct KindLabels {
    request_kind: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

/// The registry and what the server itself counts. Clones share both.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    requests: Family<CountLabels, Counter>,
    durations: Family<RequestLabels, Histogram, fn() -> Histogram>,
    long_running: Family<RequestLabels, Gauge>,
    inflight: Family<KindLabels, Gauge>,
    authentication: Family<ResultLabels, Counter>,
    authorization: Family<ResultLabels, Counter>,
    /// Audit events that were made.
    pub audit_events: Counter,
    /// Audit events that were lost, because the log could not keep up or be written.
    pub audit_lost: Counter,
}

fn duration_histogram() -> Histogram {
    Histogram::new(DURATION_BUCKETS)
}

impl Default for Metrics {
    fn default() -> Self {
        let metrics = Self {
            registry: Arc::default(),
            requests: Family::default(),
            durations: Family::new_with_constructor(duration_histogram),
            long_running: Family::default(),
            inflight: Family::default(),
            authentication: Family::default(),
            authorization: Family::default(),
            audit_events: Counter::default(),
            audit_lost: Counter::default(),
        };
        metrics.register(|registry| metrics.register_own(registry));
        metrics
    }
}

impl Metrics {
    /// Adds metrics to the registry.
    pub fn register(&self, add: impl FnOnce(&mut Registry)) {
        add(&mut self.registry.lock());
    }

    fn register_own(&self, registry: &mut Registry) {
        // The encoder adds `_total` to the names of counters.
        registry.register(
            "apiserver_request",
            "Requests by verb, resource and code",
            self.requests.clone(),
        );
        registry.register(
            "apiserver_request_duration_seconds",
            "Time to answer a request",
            self.durations.clone(),
        );
        registry.register(
            "apiserver_longrunning_requests",
            "Watches and streams under way",
            self.long_running.clone(),
        );
        registry.register(
            "apiserver_current_inflight_requests",
            "Requests under way, by kind",
            self.inflight.clone(),
        );
        registry.register(
            "authentication_attempts",
            "Authentications by result",
            self.authentication.clone(),
        );
        registry.register(
            "authorization_attempts",
            "Authorizations by result",
            self.authorization.clone(),
        );
        registry.register(
            "apiserver_audit_event",
            "Audit events made",
            self.audit_events.clone(),
        );
        registry.register(
            "apiserver_audit_error",
            "Audit events lost",
            self.audit_lost.clone(),
        );
    }

    /// Counts an authentication: `success`, `failure`, or `error`.
    pub fn authenticated(&self, result: &'static str) {
        self.authentication
            .get_or_create(&ResultLabels { result })
            .inc();
    }

    /// Counts an authorization: `allowed`, `denied`, or `error`.
    pub fn authorized(&self, result: &'static str) {
        self.authorization
            .get_or_create(&ResultLabels { result })
            .inc();
    }

    /// Counts a request that begins; [`ended`](Self::ended) must follow.
    pub fn began(&self, labels: &RequestLabels, kind: RequestKind, long_running: bool) {
        if long_running {
            self.long_running.get_or_create(labels).inc();
        } else {
            self.inflight.get_or_create(&kind.labels()).inc();
        }
    }

    /// Counts a request that ended.
    pub fn ended(
        &self,
        labels: &RequestLabels,
        kind: RequestKind,
        long_running: bool,
        code: u16,
        took: Duration,
    ) {
        if long_running {
            self.long_running.get_or_create(labels).dec();
        } else {
            self.inflight.get_or_create(&kind.labels()).dec();
            self.durations
                .get_or_create(labels)
                .observe(took.as_secs_f64());
        }
        self.requests
            .get_or_create(&count_labels(labels, code))
            .inc();
    }

    /// `/metrics`.
    ///
    /// # Errors
    /// When a metric cannot be written as text.
    pub fn answer(&self) -> Result<Response<Body>, fmt::Error> {
        let mut out = String::new();
        text::encode(&mut out, &self.registry.lock())?;
        let mut response = Response::new(full(out));
        let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        Ok(response)
    }
}

impl RequestKind {
    fn labels(self) -> KindLabels {
        KindLabels {
            request_kind: match self {
                Self::Mutating => "mutating",
                Self::ReadOnly => "readOnly",
            },
        }
    }
}

fn count_labels(labels: &RequestLabels, code: u16) -> CountLabels {
    let RequestLabels {
        verb,
        dry_run,
        group,
        version,
        resource,
        subresource,
        scope,
        component,
    } = labels.clone();
    CountLabels {
        verb,
        dry_run,
        group,
        version,
        resource,
        subresource,
        scope,
        component,
        code,
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn requests_are_counted_under_kube_apiservers_names() {
        let metrics = Metrics::default();
        let labels = RequestLabels {
            verb: "GET",
            resource: "robots",
            scope: "resource",
            component: "apiserver",
            ..RequestLabels::default()
        };
        metrics.began(&labels, RequestKind::ReadOnly, false);
        metrics.ended(
            &labels,
            RequestKind::ReadOnly,
            false,
            200,
            Duration::from_millis(30),
        );
        metrics.began(&labels, RequestKind::ReadOnly, true);
        let response = metrics.answer().unwrap();
        let text = response.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8(text.to_vec()).unwrap();
        let all = r#"verb="GET",dry_run="",group="",version="",resource="robots",subresource="",scope="resource",component="apiserver""#;
        for line in [
            format!("apiserver_request_total{{{all},code=\"200\"}} 1"),
            format!("apiserver_request_duration_seconds_bucket{{le=\"0.025\",{all}}} 0"),
            format!("apiserver_request_duration_seconds_bucket{{le=\"0.05\",{all}}} 1"),
            format!("apiserver_longrunning_requests{{{all}}} 1"),
            "apiserver_current_inflight_requests{request_kind=\"readOnly\"} 0".to_owned(),
        ] {
            assert!(text.contains(&line), "{line}\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }
}
