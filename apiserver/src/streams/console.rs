//! `workspaces/console`: the serial line of a machine, or a shell in a container.
//!
//! Entry point: [`Console`], which everything before the upgrade happens in; [`super::session`]
//! carries the stream from then on.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use apiserver_generic::{
    ApiError, Body, Call, Connect, Reason, Storage, admission::Namespaces, authz::authorize,
    call::full,
};
use apiservice::v1alpha1::SessionMode;
use async_trait::async_trait;
use http::{HeaderValue, Method, Response, header};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use kube::Client;
use tokio_util::task::TaskTracker;

use super::{
    asked::Asked,
    handshake::{self, Opening, Wanted},
    metrics::StreamMetrics,
    recheck::Recheck,
    relay::Pace,
    resolve::{Workspace, fetch::Fetch},
    session::{Accepted, Caller},
    target::{Finder, Target},
    upstream,
    wire::{Stdio, UpstreamWire},
};
use crate::sessions::{Held, Reach, Sessions, record::Wish};

const MODE: SessionMode = SessionMode::Console;

/// What an operator may set.
#[derive(Clone, Debug)]
pub struct StreamOptions {
    /// Origins whose web pages may open streams.
    pub allowed_origins: Vec<String>,
    /// The end of a stream on which nothing passes; `None` is never.
    pub idle_after: Option<Duration>,
    /// The longest life of a stream.
    pub max_duration: Duration,
    /// Re-checks of permissions.
    pub recheck: Recheck,
    /// Pings, stalls and goodbyes.
    pub pace: Pace,
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self {
            allowed_origins: Vec::new(),
            idle_after: Some(Duration::from_secs(6 * 3600)),
            max_duration: Duration::from_secs(24 * 3600),
            recheck: Recheck::default(),
            pace: Pace::default(),
        }
    }
}

/// What a console is made of.
pub struct ConsoleDeps {
    /// Our own credentials towards the cluster.
    pub client: Client,
    /// Storage of `workspaces`.
    pub workspaces: Arc<dyn Storage>,
    /// Which namespaces are being deleted.
    pub namespaces: Arc<dyn Namespaces>,
    /// Claims on exclusive streams.
    pub sessions: Sessions,
    /// What Prometheus is told.
    pub metrics: StreamMetrics,
    /// Streams run here: wait for it to be empty before `Sessions` stops.
    pub tasks: TaskTracker,
    /// What an operator set.
    pub options: StreamOptions,
}

/// The handler of `workspaces/console`.
pub struct Console {
    client: Client,
    finder: Finder,
    sessions: Sessions,
    metrics: StreamMetrics,
    tasks: TaskTracker,
    options: StreamOptions,
}

#[async_trait]
impl Connect for Console {
    async fn connect(&self, call: Call) -> Result<Response<Body>, ApiError> {
        let started = Instant::now();
        let (asked, upgrade) = Asked::read(call);
        if !asked.headers.contains_key(header::UPGRADE) {
            return self.facts(&asked).await;
        }
        authorize(&*asked.authorizer, &asked.user, asked.create()).await?;
        handshake::check_origin(&asked.headers, &self.options.allowed_origins)?;
        match handshake::read(&asked.headers)? {
            Wanted::Facts => self.facts(&asked).await,
            Wanted::Stream(opening) => self.open(asked, upgrade, &opening, started).await,
        }
    }
}

impl Console {
    /// Over these parts.
    pub fn new(deps: ConsoleDeps) -> Self {
        let ConsoleDeps {
            client,
            workspaces,
            namespaces,
            sessions,
            metrics,
            tasks,
            options,
        } = deps;
        Self {
            finder: Finder::new(workspaces, namespaces, Fetch::new(client.clone())),
            client,
            sessions,
            metrics,
            tasks,
            options,
        }
    }

    /// Who holds the console. Asking for a stream by other means is refused.
    async fn facts(&self, asked: &Asked) -> Result<Response<Body>, ApiError> {
        if asked.method != Method::GET {
            return Err(ApiError::bad_request(
                "upgrade required: connect with a GET that upgrades to websocket",
            ));
        }
        let workspace = self.finder.workspace(&asked.namespace, &asked.name).await?;
        let facts = self
            .sessions
            .facts(&workspace.namespace, &workspace.name, MODE)
            .await?;
        let mut response = Response::new(full(facts.into_value().to_string()));
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        Ok(response)
    }

    async fn open(
        &self,
        asked: Asked,
        upgrade: OnUpgrade,
        opening: &Opening,
        started: Instant,
    ) -> Result<Response<Body>, ApiError> {
        if asked.draining.is_cancelled() {
            return Err(ApiError::new(
                Reason::ServiceUnavailable,
                "this server is shutting down; connect again, another replica answers",
            )
            .retry_after(1));
        }
        let workspace = self.finder.workspace(&asked.namespace, &asked.name).await?;
        let target = self.finder.target(&workspace).await?;
        let mut held = self.claim(&asked, &workspace, &target).await?;
        let reached = self
            .reach(&workspace, &target, asked.stdio, held.as_mut())
            .await;
        let (upstream, wire) = match reached {
            Ok(reached) => reached,
            Err(error) => {
                if let Some(held) = held {
                    held.release().await;
                }
                return Err(error);
            }
        };
        let accepted = Accepted {
            upgrade,
            subprotocol: opening.subprotocol,
            upstream,
            wire,
            workspace,
            target,
            held,
            draining: asked.draining.clone(),
            caller: Caller::of(asked),
            finder: self.finder.clone(),
            metrics: self.metrics.clone(),
            options: self.options.clone(),
            set_up: started,
        };
        self.tasks.spawn(accepted.run());
        Ok(handshake::accept(opening))
    }

    /// A machine's serial line has one holder; shells do not disturb each other.
    async fn claim(
        &self,
        asked: &Asked,
        workspace: &Workspace,
        target: &Target,
    ) -> Result<Option<Held>, ApiError> {
        if matches!(target, Target::Shell(_)) {
            return Ok(None);
        }
        let wish = Wish {
            namespace: workspace.namespace.clone(),
            workspace: workspace.name.clone(),
            workspace_uid: workspace.uid.clone(),
            mode: MODE,
            user: asked.user.clone(),
            client_address: asked.client_address.clone(),
            audit_id: asked.audit_id.to_string(),
            claim: Sessions::new_claim(),
        };
        if !asked.takeover {
            return self.sessions.claim(&wish).await.map(Some);
        }
        let reach = self.permit_takeover(asked, workspace).await?;
        self.sessions.take_over(&wish, reach).await.map(Some)
    }

    /// `delete` on the session, unless it is the caller's own.
    async fn permit_takeover(
        &self,
        asked: &Asked,
        workspace: &Workspace,
    ) -> Result<Reach, ApiError> {
        let facts = self
            .sessions
            .facts(&workspace.namespace, &workspace.name, MODE)
            .await?;
        let text = |pointer: &str| facts.str_at(pointer).unwrap_or_default();
        let own = text("/spec/user") == asked.user.name && text("/spec/userUID") == asked.user.uid;
        if own {
            return Ok(Reach::Own);
        }
        let delete = asked.delete_session(facts.name());
        authorize(&*asked.authorizer, &asked.user, delete).await?;
        Ok(Reach::Anybodys)
    }

    /// Dials, and looks again whether it was the right one. Losing the claim ends the attempt.
    async fn reach(
        &self,
        workspace: &Workspace,
        target: &Target,
        stdio: Stdio,
        held: Option<&mut Held>,
    ) -> Result<(TokioIo<Upgraded>, UpstreamWire), ApiError> {
        let address = target.address(workspace, stdio);
        let reaching = async {
            let dialled = upstream::dial(&self.client, &address).await?;
            let wire = target.wire(dialled.subprotocol.as_deref(), stdio)?;
            self.finder.confirm(workspace, target).await?;
            Ok((dialled.io, wire))
        };
        let Some(held) = held else {
            return reaching.await;
        };
        tokio::select! {
            reached = reaching => reached,
            reason = held.told() => Err(ApiError::new(
                Reason::Conflict,
                format!("the claim on the console was lost while it was dialled: {}", reason.text()),
            )
            .retry_after(1)),
        }
    }
}
