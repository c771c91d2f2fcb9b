//! The one way in which a stream is opened, shared by all modes.
//!
//! Entry point: [`Handler`]. In this order: authorize (`get` was asked already, `create` as well) →
//! origin → limits → resolve → claim, if the mode is exclusive → dial → look again → accept. A
//! failure on the way releases what was taken and is a Status; [`super::session`] carries the stream
//! from the upgrade on.

use std::{sync::Arc, time::Duration};

use apiserver_generic::{
    ApiError, Body, Call, Connect, Reason, Storage, admission::Namespaces, authz::authorize,
    call::full,
};
use async_trait::async_trait;
use http::{HeaderValue, Method, Response, header};
use hyper::upgrade::OnUpgrade;
use kube::Client;
use serde_json::Value;
use tokio_util::task::TaskTracker;

use super::{
    asked::Asked,
    dial::tcp::Network,
    follow::Followers,
    handshake::{self, Opening, Wanted},
    limits::StreamLimits,
    metrics::StreamMetrics,
    mode::{Choose, Mode, Plain},
    permit::{Asking, Gates, Permit},
    reach::{Line, Means, Reached},
    recheck::{Rechecks, Times},
    relay::Pace,
    resolve::{Workspace, fetch::Fetch},
    session::{Accepted, Caller},
    ssh::hostkeys::Hosts,
    target::Finder,
};
use crate::sessions::{
    Held, Reach, Sessions,
    record::{self, Wish},
};

/// What an operator may set.
#[derive(Clone, Debug)]
pub struct StreamOptions {
    /// Origins whose web pages may open streams.
    pub allowed_origins: Vec<String>,
    /// How long an app behind `proxy` may take to begin its answer, or to take what it was sent.
    pub proxy_answer: Duration,
    /// Whether ports are forwarded that the workspace does not declare.
    pub undeclared_ports: bool,
    /// The end of a stream on which nothing passes; `None` is never.
    pub idle_after: Option<Duration>,
    /// The longest life of a stream.
    pub max_duration: Duration,
    /// Re-checks of permissions.
    pub recheck: Times,
    /// Pings, stalls and goodbyes.
    pub pace: Pace,
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self {
            allowed_origins: Vec::new(),
            proxy_answer: Duration::from_secs(120),
            undeclared_ports: false,
            idle_after: Some(Duration::from_secs(6 * 3600)),
            max_duration: Duration::from_secs(24 * 3600),
            recheck: Times::default(),
            pace: Pace::default(),
        }
    }
}

/// What streams are made of.
pub struct StreamDeps {
    /// Our own credentials towards the cluster.
    pub client: Client,
    /// Where pods are.
    pub network: Arc<dyn Network>,
    /// Storage of `workspaces`.
    pub workspaces: Arc<dyn Storage>,
    /// Which namespaces are being deleted.
    pub namespaces: Arc<dyn Namespaces>,
    /// What checks host keys of guests.
    pub hosts: Arc<dyn Hosts>,
    /// Claims on exclusive streams, and what is shown of all.
    pub sessions: Sessions,
    /// Limits of users and workspaces.
    pub limits: StreamLimits,
    /// Other limits.
    pub gates: Gates,
    /// Whether streams may go on.
    pub rechecks: Rechecks,
    /// What Prometheus is told.
    pub metrics: StreamMetrics,
    /// Streams run here: wait for it to be empty before `Sessions` stops.
    pub tasks: TaskTracker,
    /// What an operator set.
    pub options: StreamOptions,
}

/// What all handlers of streams share. Clones are the same.
#[derive(Clone)]
pub struct Streams {
    client: Client,
    network: Arc<dyn Network>,
    pub(super) finder: Finder,
    pub(super) followers: Followers,
    hosts: Arc<dyn Hosts>,
    pub(super) sessions: Sessions,
    pub(super) limits: StreamLimits,
    pub(super) gates: Gates,
    pub(super) rechecks: Rechecks,
    pub(super) metrics: StreamMetrics,
    pub(super) tasks: TaskTracker,
    pub(super) options: StreamOptions,
}

impl Streams {
    /// Over these parts.
    pub fn new(deps: StreamDeps) -> Self {
        let StreamDeps {
            client,
            network,
            workspaces,
            namespaces,
            hosts,
            sessions,
            limits,
            gates,
            rechecks,
            metrics,
            tasks,
            options,
        } = deps;
        Self {
            finder: Finder::new(workspaces, namespaces, Fetch::new(client.clone())),
            followers: Followers::new(client.clone()),
            client,
            network,
            hosts,
            sessions,
            limits,
            gates,
            rechecks,
            metrics,
            tasks,
            options,
        }
    }

    /// What checks host keys, and where terminals run.
    pub(super) fn ssh(&self) -> (Arc<dyn Hosts>, TaskTracker) {
        (self.hosts.clone(), self.tasks.clone())
    }

    /// What an operator set.
    pub(super) fn options(&self) -> &StreamOptions {
        &self.options
    }

    /// What a dial needs.
    pub(super) fn means(&self) -> Means {
        Means {
            client: self.client.clone(),
            network: self.network.clone(),
            finder: self.finder.clone(),
            tasks: self.tasks.clone(),
            pace: self.options.pace,
        }
    }

    /// Our credentials, and what finds things with them.
    pub(super) fn reach(&self) -> (Client, Finder) {
        (self.client.clone(), self.finder.clone())
    }
}

/// The handler of one streaming subresource.
pub struct Handler {
    streams: Streams,
    choose: Choose,
}

#[async_trait]
impl Connect for Handler {
    async fn connect(&self, call: Call) -> Result<Response<Body>, ApiError> {
        let (asked, upgrade) = Asked::read(call);
        // What was authorized is the method's verb: a POST never showed that its caller may `get`.
        if asked.method != Method::GET {
            return Err(ApiError::bad_request(
                "upgrade required: connect with a GET that upgrades to websocket",
            ));
        }
        if !asked.headers.contains_key(header::UPGRADE) {
            return self.facts(&asked).await;
        }
        let mut place = self.streams.limits.enter(&asked.user.name)?;
        for attributes in asked.further().into_iter().chain(asked.once()) {
            let review = authorize(&*asked.authorizer, &asked.user, attributes);
            asked.stopwatch.wait(review).await?;
        }
        place.reach(&asked.namespace, &asked.name)?;
        handshake::check_origin(&asked.headers, &self.streams.options.allowed_origins)?;
        let mode = (self.choose)(&asked)?;
        match handshake::read(&asked.headers, mode.subprotocols())? {
            Wanted::Facts => self.facts(&asked).await,
            Wanted::OtherVersion => Ok(handshake::other_version()),
            Wanted::Stream(opening) => {
                let permit = self.streams.gates.admit(&asking(&asked))?;
                let permit = permit.join(Permit::holding(place));
                let attempt = Attempt {
                    streams: &self.streams,
                    mode,
                    asked: &asked,
                };
                let reached = attempt.reach(permit).await?;
                let streams = &self.streams;
                let accepted = attempt.accepted(reached, upgrade, &opening)?;
                streams.tasks.spawn(accepted.run(Caller::of(&asked)));
                Ok(handshake::accept(&opening))
            }
        }
    }
}

/// What limits are asked about.
pub(super) fn asking(asked: &Asked) -> Asking<'_> {
    Asking {
        user: &asked.user,
        namespace: &asked.namespace,
        workspace: &asked.name,
    }
}

impl Handler {
    /// Serves what `choose` finds in a request.
    pub fn new(streams: Streams, choose: Choose) -> Self {
        Self { streams, choose }
    }

    /// Who holds the stream. Asking for a stream by other means is refused.
    async fn facts(&self, asked: &Asked) -> Result<Response<Body>, ApiError> {
        let mode = (self.choose)(asked)?;
        let Streams {
            finder, sessions, ..
        } = &self.streams;
        let workspace = finder.workspace(&asked.namespace, &asked.name).await?;
        let (namespace, name) = (&workspace.namespace, &workspace.name);
        let answer = match mode.plain() {
            Plain::Holder => sessions
                .facts(namespace, name, mode.session_mode())
                .await?
                .into_value(),
            Plain::Own => sessions.own(namespace, name, mode.session_mode(), &asked.user),
        };
        Ok(json(&answer))
    }
}

/// A server that ends begins nothing.
///
/// # Errors
/// 503.
pub(super) fn refuse_while_draining(asked: &Asked) -> Result<(), ApiError> {
    match asked.draining.is_cancelled() {
        false => Ok(()),
        true => Err(ApiError::new(
            Reason::ServiceUnavailable,
            "this server is shutting down; connect again, another replica answers",
        )
        .retry_after(1)),
    }
}

/// What sessions show of a stream.
pub(super) fn wish(mode: &dyn Mode, asked: &Asked, workspace: &Workspace) -> Wish {
    Wish {
        namespace: workspace.namespace.clone(),
        workspace: workspace.name.clone(),
        workspace_uid: workspace.uid.clone(),
        mode: mode.session_mode(),
        port: mode.port(workspace),
        user: asked.user.clone(),
        client_address: asked.client_address.clone(),
        audit_id: asked.audit_id.to_string(),
        claim: Sessions::new_claim(),
    }
}

fn json(value: &Value) -> Response<Body> {
    let mut response = Response::new(full(value.to_string()));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// One authorized attempt to open a stream.
struct Attempt<'a> {
    streams: &'a Streams,
    mode: Arc<dyn Mode>,
    asked: &'a Asked,
}

impl Attempt<'_> {
    /// Resolves, claims, dials and looks again. The room that was given goes with the dial, which
    /// may outlive its caller.
    async fn reach(&self, permit: Permit) -> Result<Reached, ApiError> {
        let Self {
            streams,
            mode,
            asked,
        } = self;
        refuse_while_draining(asked)?;
        let (finder, stopwatch) = (&streams.finder, &asked.stopwatch);
        let workspace = finder.workspace(&asked.namespace, &asked.name);
        let workspace = stopwatch.wait(workspace).await?;
        let found = stopwatch.wait(finder.target(&workspace)).await?;
        mode.check(&workspace, &found)?;
        let wish = wish(&**mode, asked, &workspace);
        let held = stopwatch.wait(self.claim(&workspace, &wish)).await?;
        let line = Line {
            mode: mode.clone(),
            workspace,
            found,
            wish,
            held,
            permit,
            takeover: asked.takeover,
        };
        stopwatch.wait(line.reach(streams.means())).await
    }

    /// The name of an exclusive stream; others need none.
    async fn claim(&self, workspace: &Workspace, wish: &Wish) -> Result<Option<Held>, ApiError> {
        if !self.mode.is_exclusive(workspace.kind) {
            return Ok(None);
        }
        let sessions = &self.streams.sessions;
        if !self.asked.takeover {
            return sessions.claim(wish).await.map(Some);
        }
        let reach = self.permit_takeover(workspace).await?;
        sessions.take_over(wish, reach).await.map(Some)
    }

    /// `delete` on the session, unless it is the caller's own or nobody's. Others who wait for one's
    /// own are put aside by who may delete, and keep their place before who may not.
    async fn permit_takeover(&self, workspace: &Workspace) -> Result<Reach, ApiError> {
        let (asked, mode) = (self.asked, self.mode.session_mode());
        let sessions = &self.streams.sessions;
        let facts = sessions
            .facts(&workspace.namespace, &workspace.name, mode)
            .await?;
        let session = record::read(&facts);
        let spec = &session.spec;
        let is_me = |name: &str, uid: &str| name == asked.user.name && uid == asked.user.uid;
        let own = is_me(&spec.user, &spec.user_uid);
        let waits = spec.successor.as_ref();
        let others_wait = waits.is_some_and(|next| !is_me(&next.user, &next.user_uid));
        if own && !others_wait || !(session.status.in_use || spec.offered) {
            return Ok(Reach::Own);
        }
        let delete = asked.delete_session(facts.name());
        match authorize(&*asked.authorizer, &asked.user, delete).await {
            Ok(_) => Ok(Reach::Anybodys),
            Err(error) if own && error.reason == Reason::Forbidden => Ok(Reach::Own),
            Err(error) => Err(error),
        }
    }

    fn accepted(
        self,
        reached: Reached,
        upgrade: OnUpgrade,
        opening: &Opening,
    ) -> Result<Accepted, ApiError> {
        let (line, upstream) = reached
            .take()
            .ok_or_else(|| ApiError::internal("an upstream was taken twice"))?;
        let Self {
            streams,
            mode,
            asked,
        } = self;
        let Streams {
            finder,
            followers,
            sessions,
            rechecks,
            metrics,
            options,
            ..
        } = streams.clone();
        Ok(Accepted {
            upgrade,
            subprotocol: opening.subprotocol,
            upstream,
            workspace: line.workspace,
            found: line.found,
            wish: line.wish,
            held: line.held,
            permit: line.permit,
            mode,
            draining: asked.draining.clone(),
            watched: rechecks.watch(&asked.user, asked.permissions()),
            sessions,
            finder,
            followers,
            metrics,
            options,
            stopwatch: asked.stopwatch.clone(),
        })
    }
}
