//! One request's events.

use std::{collections::BTreeMap, sync::Arc};

use http::StatusCode;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use super::AuditLog;
use crate::{ApiError, UserInfo, request::RequestInfo};

/// User agents are cut to this many characters, as kube-apiserver does.
const LONGEST_USER_AGENT: usize = 1_024;

/// What is known of a request when its audit begins.
#[derive(Clone, Debug)]
pub struct Request {
    /// Id that joins logs.
    pub id: Arc<str>,
    /// Path and query.
    pub uri: String,
    /// The request by its URL.
    pub info: RequestInfo,
    /// Who; `None` when that could not be established.
    pub user: Option<UserInfo>,
    /// Addresses, the client's first.
    pub source_ips: Vec<String>,
    /// `User-Agent`.
    pub user_agent: String,
    /// When it arrived.
    pub received: Timestamp,
}

/// A request under audit. Clones are the same record; when the last one is dropped, the request is
/// over and its last event is written. Whoever serves a stream keeps one until the stream ends.
#[derive(Clone)]
pub struct Record(Option<Arc<Inner>>);

struct Inner {
    request: Request,
    outcome: Mutex<Outcome>,
    log: AuditLog,
}

#[derive(Default)]
struct Outcome {
    code: u16,
    failure: Option<(String, String)>,
    annotations: BTreeMap<String, String>,
    /// The policy wants no event of it.
    omitted: bool,
}

impl Record {
    /// Begins a record.
    pub fn begin(request: Request, log: AuditLog) -> Self {
        Self(Some(Arc::new(Inner {
            request,
            outcome: Mutex::default(),
            log,
        })))
    }

    /// A record that is written nowhere, for calls that are not requests.
    pub fn none() -> Self {
        Self(None)
    }

    /// Adds an annotation to the events that are still to come.
    pub fn annotate(&self, key: &str, value: impl Into<String>) {
        if let Some(inner) = &self.0 {
            let annotations = &mut inner.outcome.lock().annotations;
            annotations.insert(key.to_owned(), value.into());
        }
    }

    /// Notes the answer.
    pub fn responded(&self, code: StatusCode, failure: Option<&ApiError>) {
        if let Some(inner) = &self.0 {
            let mut outcome = inner.outcome.lock();
            outcome.code = code.as_u16();
            outcome.failure = failure.map(|e| (e.reason.as_str().to_owned(), e.message.clone()));
        }
    }

    /// No event is written from now on: the request is one that nobody wants to read about.
    pub fn omit(&self) {
        if let Some(inner) = &self.0 {
            inner.outcome.lock().omitted = true;
        }
    }

    /// Writes ResponseStarted: the answer has begun and will last.
    pub fn started(&self) {
        if let Some(inner) = &self.0 {
            inner.write("ResponseStarted");
        }
    }
}

impl Inner {
    fn write(&self, stage: &str) {
        let outcome = self.outcome.lock();
        if !outcome.omitted {
            let event = event(&self.request, &outcome, stage, Timestamp::now());
            self.log.write(event.to_string());
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.write("ResponseComplete");
    }
}

fn event(request: &Request, outcome: &Outcome, stage: &str, now: Timestamp) -> Value {
    let mut event = Map::new();
    let mut put = |key: &str, value: Value| event.insert(key.to_owned(), value);
    put("kind", json!("Event"));
    put("apiVersion", json!("audit.k8s.io/v1"));
    put("level", json!("Metadata"));
    put("auditID", json!(*request.id));
    put("stage", json!(stage));
    put("requestURI", json!(request.uri));
    put("verb", json!(request.info.verb));
    put("user", user(request.user.as_ref()));
    put("sourceIPs", json!(request.source_ips));
    if !request.user_agent.is_empty() {
        put("userAgent", json!(cut(&request.user_agent)));
    }
    if request.info.is_resource {
        put("objectRef", object_ref(&request.info));
    }
    put("responseStatus", response_status(outcome));
    put("requestReceivedTimestamp", json!(micro(request.received)));
    put("stageTimestamp", json!(micro(now)));
    if !outcome.annotations.is_empty() {
        put("annotations", json!(outcome.annotations));
    }
    Value::Object(event)
}

fn micro(time: Timestamp) -> String {
    format!("{time:.6}")
}

fn cut(user_agent: &str) -> String {
    if user_agent.chars().count() <= LONGEST_USER_AGENT {
        return user_agent.to_owned();
    }
    let kept: String = user_agent.chars().take(LONGEST_USER_AGENT).collect();
    format!("{kept}...TRUNCATED")
}

fn user(user: Option<&UserInfo>) -> Value {
    let Some(user) = user else {
        return json!({});
    };
    let mut out = Map::new();
    out.insert("username".to_owned(), json!(user.name));
    if !user.uid.is_empty() {
        out.insert("uid".to_owned(), json!(user.uid));
    }
    if !user.groups.is_empty() {
        out.insert("groups".to_owned(), json!(user.groups));
    }
    if !user.extra.is_empty() {
        out.insert("extra".to_owned(), json!(user.extra));
    }
    Value::Object(out)
}

fn object_ref(info: &RequestInfo) -> Value {
    let fields = [
        ("resource", &info.resource),
        ("namespace", &info.namespace),
        ("name", &info.name),
        ("apiGroup", &info.group),
        ("apiVersion", &info.version),
        ("subresource", &info.subresource),
    ];
    let given = fields.into_iter().filter(|(_, value)| !value.is_empty());
    Value::Object(given.map(|(k, v)| (k.to_owned(), json!(v))).collect())
}

fn response_status(outcome: &Outcome) -> Value {
    let mut status = json!({"metadata": {}, "code": outcome.code});
    if let Some((reason, message)) = &outcome.failure {
        status["status"] = json!("Failure");
        status["reason"] = json!(reason);
        status["message"] = json!(message);
    }
    status
}
