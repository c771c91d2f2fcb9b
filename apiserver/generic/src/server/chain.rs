//! What every request passes, in order.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use jiff::Timestamp;
use rustls::pki_types::UnixTime;

use super::{
    Lifecycle,
    deadline::Deadline,
    identity::{
        AUDIT_ID, audit_id, audit_request, client_address, refuse_impersonation, unauthorized,
    },
    inflight::{Inflight, Place},
    labels,
    tracked::Held,
};
use crate::{
    ApiError, Authorized, Authorizer, Body, Call, Endpoints, Metrics, Reason, Resource, UserInfo,
    audit::{AuditLog, Record},
    authn::{Authentication, AuthnError, Identity, Rejected},
    authz,
    call::ClientAddress,
    discovery::Discovery,
    health::{self, Health},
    openapi::OpenApi,
    request::RequestInfo,
    respond,
    serving::{Handler, Peer, contain, limits},
    stopwatch::Stopwatch,
};

/// The parts that answer requests.
pub(super) struct Chain {
    pub(super) rows: Vec<Resource>,
    pub(super) discovery: Discovery,
    pub(super) openapi: OpenApi,
    pub(super) authentication: Authentication,
    pub(super) authorizer: Arc<dyn Authorizer>,
    pub(super) endpoints: Arc<dyn Endpoints>,
    pub(super) health: Health,
    pub(super) metrics: Metrics,
    pub(super) audit: AuditLog,
    pub(super) inflight: Inflight,
    pub(super) timeout: Duration,
    pub(super) lifecycle: Lifecycle,
}

/// A request whose caller is known, on its way to be authorized.
struct Pending {
    request: Request<Body>,
    info: RequestInfo,
    client: ClientAddress,
    audit_id: Arc<str>,
    record: Record,
    stopwatch: Stopwatch,
}

#[async_trait]
impl Handler for Chain {
    async fn answer(&self, request: Request<Body>, peer: &Peer) -> Response<Body> {
        let audit_id = audit_id(request.headers());
        let upgrade = request.headers().contains_key(header::UPGRADE);
        let mut response = match RequestInfo::parse(request.method(), request.uri()) {
            Ok(info) => self.identify(request, info, peer, &audit_id).await,
            Err(error) => error.to_response(),
        };
        finish(response.headers_mut(), &audit_id);
        if upgrade && response.status() != StatusCode::SWITCHING_PROTOCOLS {
            end_connection(response.headers_mut());
        }
        response
    }
}

/// kube-apiserver passes a refused upgrade's answer on and closes the connection, without a word of its own: a client
/// that keeps connections would send its next request into the closed one. What was meant for the stream is not read
/// as a request either. Source: `k8s.io/apimachinery/pkg/util/proxy/upgradeaware.go`.
fn end_connection(headers: &mut HeaderMap) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
}

impl Chain {
    /// Establishes the caller, and holds what must last until the answer is sent.
    async fn identify(
        &self,
        mut request: Request<Body>,
        info: RequestInfo,
        peer: &Peer,
        audit_id: &Arc<str>,
    ) -> Response<Body> {
        let (received, stopwatch) = (Timestamp::now(), Stopwatch::start());
        let mut held = self.hold(&request, &info);
        let (headers, now) = (request.headers_mut(), UnixTime::now());
        let identity = self
            .authentication
            .authenticate(headers, &peer.certificates, now);
        let identity = stopwatch.wait(identity).await;
        self.count_authentication(&identity);
        let client = client_address(&identity, request.headers(), peer);
        let about = audit_request(&request, &info, &identity, &client, audit_id, received);
        let record = Record::begin(about, self.audit.clone());
        held.audit = record.clone();
        let probe = health::is_probe(&info.path);
        let outcome = match identity {
            Ok(identity) => {
                let call = Pending {
                    request,
                    info,
                    client,
                    audit_id: audit_id.clone(),
                    record: record.clone(),
                    stopwatch,
                };
                self.authorize(identity.user, call, &mut held).await
            }
            Err(rejected) => Err(unauthorized(&rejected)),
        };
        let response = outcome.unwrap_or_else(|error| failure(&error));
        let code = response.status();
        record.responded(code, response.extensions().get::<ApiError>());
        if probe && !code.is_client_error() {
            record.omit();
        }
        held.code = code.as_u16();
        if held.long_running && !code.is_client_error() && !code.is_server_error() {
            record.started();
        }
        response.map(|body| held.until_sent(body))
    }

    fn hold(&self, request: &Request<Body>, info: &RequestInfo) -> Held {
        let query = request.uri().query().unwrap_or_default();
        let labels = labels::labels(&self.rows, info, query, request.headers());
        let sub = labels::find(&self.rows, info).and_then(|(_, sub)| sub);
        let long_running = labels::is_long_running(info, sub, request.headers());
        let kind = labels::kind(request.method());
        Held::begin(&self.metrics, labels, kind, long_running)
    }

    fn count_authentication(&self, identity: &Result<Identity, Rejected>) {
        self.metrics.authenticated(match identity {
            Ok(_) => "success",
            Err(Rejected(errors)) => {
                let unasked = errors.iter().any(|e| matches!(e, AuthnError::Review(_)));
                if unasked { "error" } else { "failure" }
            }
        });
    }

    /// Takes a place under the limit and asks whether the caller may do this.
    async fn authorize(
        &self,
        user: UserInfo,
        call: Pending,
        held: &mut Held,
    ) -> Result<Response<Body>, ApiError> {
        refuse_impersonation(call.request.headers())?;
        if call.info.is_resource {
            held.place = match held.long_running {
                false => self.inflight.enter(&user)?,
                true if call.info.verb == "watch" => self.inflight.watch(&user)?,
                // Streams have limits of their own, which their handlers know.
                true => Place::default(),
            };
        }
        let asked = authz::authorize(&*self.authorizer, &user, call.info.attributes());
        let decision = call.stopwatch.wait(asked).await;
        self.note_decision(&decision, &call.record);
        let authorized = decision?;
        if call.info.is_resource {
            self.resource(authorized, call, held.long_running).await
        } else {
            self.document(&call)
        }
    }

    fn note_decision(&self, decision: &Result<Authorized, ApiError>, record: &Record) {
        let (result, annotation) = match decision {
            Ok(_) => ("allowed", "allow"),
            Err(error) if error.reason == Reason::Forbidden => ("denied", "forbid"),
            Err(_) => ("error", "forbid"),
        };
        self.metrics.authorized(result);
        record.annotate("authorization.k8s.io/decision", annotation);
        if let Err(error) = decision {
            let reason = error.internal.as_deref().unwrap_or(&error.message);
            record.annotate("authorization.k8s.io/reason", reason);
        }
    }

    /// A request for a resource: the endpoints' business, within its time.
    async fn resource(
        &self,
        authorized: Authorized,
        call: Pending,
        long_running: bool,
    ) -> Result<Response<Body>, ApiError> {
        let asked = (&*call.info.group, &*call.info.version);
        if !self
            .rows
            .iter()
            .any(|row| (row.group, row.version) == asked)
        {
            return Ok(page_not_found());
        }
        let query = call.request.uri().query().unwrap_or_default();
        let time = match long_running {
            true => None,
            false => Some(Deadline::of(&call.info.verb, query, self.timeout)?),
        };
        let request = match long_running {
            true => call.request,
            false => limit_body(call.request)?,
        };
        // A panic is contained here too, so that metrics and audit see its 500.
        let answer = contain(self.endpoints.handle(Call {
            authorized,
            info: call.info,
            request,
            audit_id: call.audit_id,
            client: call.client,
            authorizer: self.authorizer.clone(),
            draining: self.lifecycle.draining.clone(),
            streams: self.lifecycle.streams.clone(),
            audit: call.record,
            stopwatch: call.stopwatch,
        }));
        match time {
            None => Ok(answer.await),
            Some(time) => tokio::time::timeout(time.after, answer)
                .await
                .map_err(|_| time.passed()),
        }
    }

    /// A path that is answered from memory.
    fn document(&self, call: &Pending) -> Result<Response<Body>, ApiError> {
        let (method, path) = (call.request.method(), call.info.path.as_str());
        if !matches!(*method, Method::GET | Method::HEAD) {
            return Err(ApiError::new(
                Reason::MethodNotAllowed,
                "the server does not allow this method on the requested resource",
            ));
        }
        if path == "/metrics" {
            return self.metrics.answer().map_err(ApiError::internal);
        }
        let query = call.request.uri().query().unwrap_or_default();
        let headers = call.request.headers();
        Ok(self
            .health
            .answer(path, query)
            .or_else(|| self.discovery.answer(path, headers))
            .or_else(|| self.openapi.answer(path, query, headers))
            .unwrap_or_else(page_not_found))
    }
}

fn page_not_found() -> Response<Body> {
    respond::text(StatusCode::NOT_FOUND, "404 page not found\n")
}

fn failure(error: &ApiError) -> Response<Body> {
    if let Some(inside) = &error.internal {
        tracing::error!(error = inside.as_str(), "a request failed");
    }
    error.to_response()
}

/// Refuses a body that says it is too long, and stops one that is.
fn limit_body(request: Request<Body>) -> Result<Request<Body>, ApiError> {
    let declared = request
        .headers()
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|length| length > limits::MAX_BODY_BYTES as u64) {
        return Err(limits::body_too_large());
    }
    Ok(request.map(|body| Limited::new(body, limits::MAX_BODY_BYTES).boxed_unsync()))
}

/// Headers of every answer.
fn finish(headers: &mut HeaderMap, audit_id: &str) {
    if let Ok(id) = HeaderValue::from_str(audit_id) {
        headers.insert(AUDIT_ID, id);
    }
    let no_cache = HeaderValue::from_static("no-cache, private");
    headers.entry(header::CACHE_CONTROL).or_insert(no_cache);
    let nosniff = HeaderValue::from_static("nosniff");
    headers
        .entry(header::X_CONTENT_TYPE_OPTIONS)
        .or_insert(nosniff);
}
