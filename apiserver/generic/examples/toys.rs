//! An aggregated API server with one resource that never changes: what a program has to put
//! together, and nothing else.
//!
//! ```text
//! cargo run -p apiserver-generic --example toys -- --secure-port=8443 --kubeconfig=FILE \
//!     --tls-cert-file=FILE --tls-private-key-file=FILE --audit-log-path=-
//! ```

use std::sync::Arc;

use anyhow::Context as _;
use apiserver_generic::{
    ApiError, Body, Call, Endpoints, Metrics, Resource, Scope, Verb,
    audit::AuditLog,
    discovery::VersionInfo,
    health::Health,
    options::{GenericConfig, GenericOptions},
    respond,
    server::{Config, Delegation, Lifecycle, Server},
    serving, validity,
};
use async_trait::async_trait;
use clap::Parser;
use http::{Response, StatusCode};
use serde_json::{Value, json};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

const GROUP: &str = "toys.example.com";
const KIND: &str = "Robot";

/// Serves robots.
#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    generic: GenericOptions,
}

fn robots() -> Resource {
    Resource {
        group: GROUP,
        version: "v1",
        kind: KIND,
        plural: "robots",
        singular: "robot",
        short_names: &["rb"],
        categories: &[],
        scope: Scope::Namespaced,
        verbs: &[Verb::Get, Verb::List],
        subresources: Vec::new(),
        options: Vec::new(),
        schema: json!({
            "type": "object", "description": "A robot.",
            "properties": {"spec": {"type": "object", "description": "What it is like.",
                "properties": {"arms": {"type": "integer", "description": "How many arms it has."}}}},
        }),
        columns: Vec::new(),
    }
}

/// The one robot of every namespace.
struct OneRobot;

fn robot(namespace: &str) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": KIND,
        "metadata": {"name": "marvin", "namespace": namespace, "resourceVersion": "1"},
        "spec": {"arms": 2},
    })
}

#[async_trait]
impl Endpoints for OneRobot {
    async fn handle(&self, call: Call) -> Response<Body> {
        let info = &call.info;
        let robot = robot(&info.namespace);
        match (info.verb.as_str(), info.name.as_str()) {
            ("list", _) => respond::json(
                StatusCode::OK,
                &json!({
                    "apiVersion": format!("{GROUP}/v1"), "kind": format!("{KIND}List"),
                    "metadata": {"resourceVersion": "1"}, "items": [robot],
                }),
            ),
            ("get", "marvin") => respond::json(StatusCode::OK, &robot),
            (_, name) => ApiError::not_found(GROUP, "robots", name).to_response(),
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let config = Flags::parse().generic.resolve()?;
    tracing_subscriber::fmt()
        .with_env_filter(config.log_filter)
        .with_writer(std::io::stderr)
        .init();
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let interrupted = stop.clone();
    tasks.spawn(async move {
        if let Err(error) = tokio::signal::ctrl_c().await {
            tracing::error!(%error, "cannot wait for a signal");
        }
        interrupted.cancel();
    });
    serve(config, &stop, &tasks).await
}

async fn serve(
    config: GenericConfig,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) -> anyhow::Result<()> {
    let GenericConfig {
        serving,
        authentication,
        authorization,
        audit_log,
        kubeconfig: _,
        log_filter: _,
    } = config;
    let certificate = serving
        .certificate
        .context("--tls-cert-file and --tls-private-key-file are needed")?;
    let delegation = Delegation::start(authentication, authorization, tasks, stop).await?;
    let (metrics, lifecycle) = (Metrics::default(), Lifecycle::default());
    let audit = match audit_log {
        Some(path) => AuditLog::open(&path, metrics.clone()).context("--audit-log-path")?,
        None => AuditLog::off(metrics.clone()),
    };
    let trust = delegation.trust;
    let server = Server::new(Config {
        rows: vec![robots()],
        title: "toys".to_owned(),
        version: VersionInfo {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..VersionInfo::default()
        },
        authentication: delegation.authentication,
        authorizer: delegation.authorizer,
        endpoints: Arc::new(OneRobot),
        health: Health::new(lifecycle.stopping.clone())
            .ready("trust", Box::new(move || trust.ready(validity::now()))),
        metrics,
        audit,
        limits: serving.limits,
        shutdown: serving.shutdown,
        lifecycle,
    })?;
    let tcp = serving::bind(serving.address, serving.port)
        .await
        .with_context(|| format!("--secure-port {}", serving.port))?;
    tasks.spawn(certificate.clone().follow(stop.clone()));
    server.run(tcp, &*certificate, stop.clone()).await?;
    tasks.close();
    tasks.wait().await;
    Ok(())
}
