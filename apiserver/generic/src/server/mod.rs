//! The server: the chain that every request passes, and its life from start to shutdown.
//!
//! Entry point: [`Server`]. A request is taken apart, identified, audited, counted against the
//! limit, authorized, and then answered from memory (health, metrics, discovery, OpenAPI) or by
//! the endpoints. The order is that of `k8s.io/apiserver/pkg/server/config.go`.

mod chain;
mod deadline;
mod delegation;
mod identity;
mod inflight;
mod labels;
mod tracked;

use std::{sync::Arc, time::Duration};

use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    Authorizer, Endpoints, Metrics, Resource,
    audit::AuditLog,
    authn::Authentication,
    discovery::{Discovery, VersionInfo},
    health::Health,
    openapi::{OpenApi, OpenApiError},
    serving::{self, CertificateSource, Listener, TlsError},
};
use chain::Chain;
pub use delegation::{Delegation, DelegationError};

#[cfg(test)]
mod tests;

/// The server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// A schema is not fit to be published.
    #[error(transparent)]
    OpenApi(#[from] OpenApiError),
    /// TLS.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// How much is done at a time, and how long it may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    /// Requests under way that are neither watches nor streams.
    pub max_inflight: usize,
    /// Of one user.
    pub max_inflight_per_user: usize,
    /// Watches of one user.
    pub max_watches_per_user: usize,
    /// For one request.
    pub timeout: Duration,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self {
            max_inflight: 400,
            max_inflight_per_user: 100,
            max_watches_per_user: 500,
            timeout: Duration::from_secs(60),
        }
    }
}

/// How the server ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShutdownPlan {
    /// Still serving but no longer ready: time for the Service's endpoints to follow.
    pub delay: Duration,
    /// Then this long for requests and streams to end.
    pub grace: Duration,
}

impl Default for ShutdownPlan {
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            grace: Duration::from_secs(60),
        }
    }
}

/// The tokens by which the server's parts learn that it ends.
#[derive(Clone, Debug, Default)]
pub struct Lifecycle {
    /// Cancelled when shutdown begins; readiness fails from then on.
    pub stopping: CancellationToken,
    /// Cancelled when streams are to end.
    pub draining: CancellationToken,
    /// Streams under way.
    pub streams: TaskTracker,
}

/// Everything a server is made of.
pub struct Config {
    /// The resource table.
    pub rows: Vec<Resource>,
    /// Title of the OpenAPI documents.
    pub title: String,
    /// Answer of `/version`.
    pub version: VersionInfo,
    /// Who is calling.
    pub authentication: Authentication,
    /// What callers may do.
    pub authorizer: Arc<dyn Authorizer>,
    /// The resources.
    pub endpoints: Arc<dyn Endpoints>,
    /// Named checks; made with `lifecycle.stopping`.
    pub health: Health,
    /// Metrics.
    pub metrics: Metrics,
    /// Audit log.
    pub audit: AuditLog,
    /// Limits.
    pub limits: RequestLimits,
    /// The end.
    pub shutdown: ShutdownPlan,
    /// Tokens.
    pub lifecycle: Lifecycle,
}

/// A server that is ready to run.
pub struct Server {
    chain: Arc<Chain>,
    audit: AuditLog,
    shutdown: ShutdownPlan,
    lifecycle: Lifecycle,
}

impl Server {
    /// Puts the parts together and makes the documents.
    ///
    /// # Errors
    /// When a schema of the table cannot be published.
    pub fn new(config: Config) -> Result<Self, ServerError> {
        let Config {
            rows,
            title,
            version,
            authentication,
            authorizer,
            endpoints,
            health,
            metrics,
            audit,
            limits,
            shutdown,
            lifecycle,
        } = config;
        let chain = Chain {
            discovery: Discovery::new(&rows, &version),
            openapi: OpenApi::new(&rows, &title, &version)?,
            inflight: inflight::Inflight::new(limits),
            timeout: limits.timeout,
            rows,
            authentication,
            authorizer,
            endpoints,
            health,
            metrics,
            audit: audit.clone(),
            lifecycle: lifecycle.clone(),
        };
        Ok(Self {
            chain: Arc::new(chain),
            audit,
            shutdown,
            lifecycle,
        })
    }

    /// Serves on `tcp` until `stop`, then ends in order: not ready, no new connections, streams
    /// told to end, everything waited for, the audit log written.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub async fn run(
        self,
        tcp: TcpListener,
        certificate: &dyn CertificateSource,
        stop: CancellationToken,
    ) -> Result<(), ServerError> {
        let listener = Listener::new(tcp, certificate, self.chain)?;
        let (lifecycle, plan) = (self.lifecycle, self.shutdown);
        let shutdown = serving::Shutdown {
            stop: lifecycle.draining.clone(),
            grace: plan.grace,
            streams: lifecycle.streams.clone(),
        };
        let begin = async {
            stop.cancelled().await;
            tracing::info!(delay = ?plan.delay, grace = ?plan.grace, "shutting down");
            lifecycle.stopping.cancel();
            tokio::time::sleep(plan.delay).await;
            lifecycle.draining.cancel();
        };
        tokio::join!(listener.run(shutdown), begin);
        self.audit.close().await;
        Ok(())
    }
}
