//! One request: public documents, then who and whether, then what.

use std::sync::Arc;

use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use serde::de::DeserializeOwned;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, warn};

use super::{
    authn, authz,
    cluster::Cluster,
    discovery, guest, power,
    reply::{self, Failure, Reply},
    require,
    route::{self, NoRoute, Route},
    stream,
    trust::FrontProxy,
};
use crate::{checker::Checker, dial::Launchers, faults::Faults, guestless::Guestless};

/// Largest body; the bodies of these PUTs are a few fields.
const MAX_BODY: usize = 64 << 10;

/// Tells the controller that a guest may have changed.
pub trait Nudge: Send + Sync + 'static {
    /// Looks at the instances soon.
    fn nudge(&self);
}

/// The server.
pub struct App {
    /// Objects and reviews.
    pub cluster: Arc<dyn Cluster>,
    /// The way to guests.
    pub launchers: Arc<dyn Launchers>,
    /// Whose headers are believed.
    pub front_proxy: Arc<FrontProxy>,
    /// Told after something was done to a guest.
    pub nudge: Arc<dyn Nudge>,
    /// Machines without a guest, whose ports are in here.
    pub guestless: Guestless,
    /// Watches that no device is held twice.
    pub checker: Checker,
    /// Makes streams fail on demand.
    pub faults: Faults,
    /// Connections and streams.
    pub tasks: TaskTracker,
    /// Ends them.
    pub shutdown: CancellationToken,
}

impl App {
    /// Answers one request.
    pub async fn handle(&self, request: Request<Incoming>, has_certificate: bool) -> Reply {
        let path = request.uri().path();
        if matches!(*request.method(), Method::GET | Method::HEAD) {
            if discovery::is_health(path) {
                return self.health();
            }
            if let Some((document, media_type)) = discovery::document(path, request.headers()) {
                return reply::bytes(StatusCode::OK, media_type, reply::indented(&document));
            }
        }
        if let Err(refusal) = self.authorize(&request, has_certificate).await {
            return refusal;
        }
        match route::parse(request.method(), path) {
            Ok(route) => self.dispatch(route, request).await,
            Err(NoRoute::NotFound) => reply::text(StatusCode::NOT_FOUND, "404: Page Not Found"),
            Err(NoRoute::MethodNotAllowed) => {
                reply::text(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed")
            }
        }
    }

    /// Healthy is: able to tell the front proxy from others, without which every request is refused.
    fn health(&self) -> Reply {
        if self.front_proxy.current().is_some() {
            reply::json(&discovery::health())
        } else {
            let text = "the front proxy's CA is not known yet: extension-apiserver-authentication was not read";
            reply::text(StatusCode::INTERNAL_SERVER_ERROR, text)
        }
    }

    /// Who and whether. KubeVirt says no with 401 and bare text.
    async fn authorize(
        &self,
        request: &Request<Incoming>,
        has_certificate: bool,
    ) -> Result<(), Reply> {
        let unauthorized = |text: &str| reply::text(StatusCode::UNAUTHORIZED, text);
        let trust = self.front_proxy.current();
        let names = trust.map(|t| t.headers.clone()).unwrap_or_default();
        let caller = authn::caller(has_certificate, request.headers(), &names)
            .map_err(|refusal| unauthorized(&refusal.to_string()))?;
        let attributes = authz::attributes(request.method(), request.uri().path())
            .map_err(|unknown| unauthorized(&unknown.to_string()))?;
        let mut review = caller.review();
        review.resource_attributes = Some(attributes);
        match self.cluster.review(review).await {
            Ok(verdict) if verdict.allowed => Ok(()),
            Ok(verdict) => Err(unauthorized(&verdict.reason)),
            Err(failure) => {
                warn!(%failure, "no answer to an access review");
                Err(reply::empty(StatusCode::INTERNAL_SERVER_ERROR))
            }
        }
    }

    async fn dispatch(&self, route: Route, request: Request<Incoming>) -> Reply {
        debug!(?route, "request");
        let outcome = match route {
            Route::Console(object) => stream::console(self, &object, request).await,
            Route::Vnc(object) => stream::vnc(self, &object, request).await,
            Route::InstancePort(object, port) => {
                stream::instance_port(self, &object, &port, request).await
            }
            Route::MachinePort(object, port) => {
                stream::machine_port(self, &object, &port, request).await
            }
            Route::Screenshot(object) => return self.screenshot(&object).await,
            Route::AgentFacts(object) => return self.agent_facts(&object).await,
            Route::Guest(object, verb) => self.guest(&object, verb, request).await,
            Route::Migrate(object) => self.migrate(&object, request).await,
            Route::Verdict(namespace) => {
                Ok(reply::json(&self.checker.report(namespace.as_deref())))
            }
            Route::Anew(namespace) => {
                self.checker.reset(namespace.as_deref());
                Ok(reply::json(&self.checker.report(namespace.as_deref())))
            }
            Route::Power(object, verb) => self.power(&object, verb, request).await,
        };
        outcome.unwrap_or_else(|failure| failure.reply())
    }

    async fn screenshot(&self, object: &route::Named) -> Reply {
        match guest::screenshot(&*self.cluster, &*self.launchers, object).await {
            Ok(image) => reply::bytes(StatusCode::OK, "image/png", image),
            Err(failure) => failure.plain_reply(),
        }
    }

    /// KubeVirt's refusals are here, and nothing that would ask an agent: our guests have none.
    async fn agent_facts(&self, object: &route::Named) -> Reply {
        let looked = self.cluster.instance(object).await;
        match looked.and_then(|vmi| require::agent(&vmi)) {
            Err(failure) => failure.plain_reply(),
            Ok(()) => Failure::internal("localvirt does not ask guest agents").plain_reply(),
        }
    }

    async fn migrate(
        &self,
        object: &route::Named,
        request: Request<Incoming>,
    ) -> Result<Reply, Failure> {
        let options: power::MigrateOptions = body(request).await?;
        power::migrate(&*self.cluster, object, &options).await?;
        Ok(reply::empty(StatusCode::ACCEPTED))
    }

    async fn guest(
        &self,
        object: &route::Named,
        verb: route::GuestVerb,
        request: Request<Incoming>,
    ) -> Result<Reply, Failure> {
        let options = body(request).await?;
        guest::perform(&*self.cluster, &*self.launchers, object, verb, &options).await?;
        self.nudge.nudge();
        Ok(reply::empty(StatusCode::OK))
    }

    async fn power(
        &self,
        object: &route::Named,
        verb: route::PowerVerb,
        request: Request<Incoming>,
    ) -> Result<Reply, Failure> {
        let options = body(request).await?;
        power::perform(&*self.cluster, object, verb, &options).await?;
        Ok(reply::empty(StatusCode::ACCEPTED))
    }
}

/// The body as YAML or JSON; an empty one is all defaults.
async fn body<T: DeserializeOwned + Default>(request: Request<Incoming>) -> Result<T, Failure> {
    let unreadable = |e: String| {
        Failure::BadRequest(format!(
            "Can not unmarshal Request body to struct, error: {e}"
        ))
    };
    let body = Limited::new(request.into_body(), MAX_BODY).collect().await;
    let bytes = body.map_err(|e| unreadable(e.to_string()))?.to_bytes();
    parse(&bytes).map_err(unreadable)
}

fn parse<T: DeserializeOwned + Default>(bytes: &[u8]) -> Result<T, String> {
    if bytes.trim_ascii().is_empty() {
        return Ok(T::default());
    }
    let text = std::str::from_utf8(bytes).map_err(|e| e.to_string())?;
    serde_saphyr::from_str(text).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_json_or_yaml_or_nothing() {
        let force = power::Options {
            grace_period_seconds: Some(0),
            ..power::Options::default()
        };
        let cases: [(&str, power::Options); 4] = [
            ("", power::Options::default()),
            (" \n", power::Options::default()),
            (r#"{"gracePeriodSeconds":0}"#, force.clone()),
            ("gracePeriodSeconds: 0", force),
        ];
        for (text, want) in cases {
            assert_eq!(
                parse::<power::Options>(text.as_bytes()),
                Ok(want),
                "{text:?}"
            );
        }
        assert!(parse::<power::Options>(b"[[[").is_err());
        assert!(parse::<power::Options>(b"\xff").is_err());
    }
}
