//! The server from its flags to its end.
//!
//! Entry point: [`run`]. Parts are started in the order in which they need each other, and end in
//! the reverse: streams first, then sessions, then caches.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use apiserver_generic::{
    Authorizer, Metrics,
    admission::{ClusterNamespaces, Namespaces},
    audit::AuditLog,
    discovery::VersionInfo,
    endpoints::Group,
    health::Health,
    options::{self, ClientError, Faults},
    server::{Config, Delegation, DelegationError, Lifecycle, Server, ServerError},
    serving::{self, CertificateSource},
    validity,
};
use kube::Client;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uuid::Uuid;

use crate::{
    actions, control, managed,
    options::{Options, WorkspacesOptions},
    sessions::{SessionDeps, Sessions, Timing, lease::ClusterLeases, replica::ReplicaId},
    stored_schema::StoredSchema,
    stores::{Replica, Stores},
    streams::{
        self,
        dial::tcp::{NoPodNetwork, PodNetwork},
        files::{self, Files},
        limits::StreamLimits,
        metrics::StreamMetrics,
        opening::{StreamDeps, StreamOptions, Streams},
        permit::Gates,
        recheck::{self, RecheckDeps, Rechecks, Times},
        ssh::hostkeys::HostKeys,
    },
};

/// Everything that was started is given this long to end, once the last stream has.
const LAST_GRACE: Duration = Duration::from_secs(5);

/// Why the server does not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Flags of every server.
    #[error("{0}")]
    Faults(#[from] Faults),
    /// Flags of this one.
    #[error("{}", .0.join("\n"))]
    Flags(Vec<String>),
    /// No client.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Authentication or authorization cannot be delegated.
    #[error(transparent)]
    Delegation(#[from] DelegationError),
    /// The port is taken, or the address is not ours.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The audit log cannot be written.
    #[error("--audit-log-path {path}: {source}")]
    Audit {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The table cannot be served.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The table lacks a resource that the server is made for.
    #[error("the resource table has no {0}")]
    Table(&'static str),
}

/// Runs until `stop`, then ends in order.
///
/// # Errors
/// When it cannot start; each message says what to change.
pub async fn run(options: Options, stop: CancellationToken) -> Result<(), RunError> {
    let faults = options.faults();
    if !faults.is_empty() {
        return Err(RunError::Flags(faults));
    }
    let mode = options.certificate_mode();
    let Options {
        generic,
        workspaces,
    } = options;
    let generic = generic.resolve()?;
    let client = options::client(generic.kubeconfig.as_deref()).await?;
    let address = SocketAddr::new(generic.serving.address, generic.serving.port);
    let tcp = serving::bind(address.ip(), address.port())
        .await
        .map_err(|source| RunError::Listen { address, source })?;

    let tasks = TaskTracker::new();
    // The rest ends after the streams, which need it to be released.
    let rest = CancellationToken::new();
    let delegation =
        Delegation::start(generic.authentication, generic.authorization, &tasks, &rest).await?;
    let certificates = managed::start(
        mode,
        generic.serving.certificate,
        &workspaces,
        &client,
        &tasks,
        &rest,
    );

    let namespaces: Arc<dyn Namespaces> =
        Arc::new(ClusterNamespaces::start(client.clone(), &tasks, &rest));
    let replica = Replica {
        name: &workspaces.replica,
        namespace: &workspaces.namespace,
    };
    let stores = Stores::start(&client, &replica, &namespaces, &tasks, &rest);
    let schema = StoredSchema::start(&client, &replica, &tasks, &rest);
    let metrics = Metrics::default();
    let lifecycle = Lifecycle {
        stopping: CancellationToken::new(),
        ..Lifecycle::default()
    };

    let sessions = sessions(&client, &stores, &workspaces, &tasks, &rest)?;
    let parts = StreamParts {
        stores: &stores,
        namespaces: &namespaces,
        sessions,
        metrics: &metrics,
        lifecycle: &lifecycle,
        workspaces: &workspaces,
        authorizer: delegation.authorizer.clone(),
    };
    let streams = streams(parts, &client, &tasks, &rest)?;
    let group = stores.iter().fold(Group::new(), |group, store| {
        group.resource(store.registry.clone())
    });
    let endpoints = streams::handlers(&streams)
        .into_iter()
        .chain(actions(&client, &stores)?)
        .fold(group, |group, (name, handler)| {
            group.connect("workspaces", name, handler)
        });

    if workspaces.controller {
        let told = controller::ControllerMetrics::default();
        metrics.register(|registry| told.register(registry));
        let lead = lifecycle.stopping.clone();
        tasks.spawn(control::run(
            client.clone(),
            stores.clone(),
            workspaces.clone(),
            told,
            lead,
        ));
    }
    let audit = audit(generic.audit_log.as_deref(), &metrics)?;
    let health = health(
        &lifecycle,
        schema,
        &stores,
        &namespaces,
        &certificates,
        &delegation,
    );
    let server = Server::new(Config {
        rows: stores
            .iter()
            .map(|store| store.registry.resource().clone())
            .collect(),
        title: "kubeworkspaces".to_owned(),
        version: VersionInfo {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..VersionInfo::default()
        },
        authentication: delegation.authentication,
        authorizer: delegation.authorizer,
        endpoints: Arc::new(endpoints),
        health,
        metrics,
        audit,
        limits: generic.serving.limits,
        shutdown: generic.serving.shutdown,
        lifecycle,
    })?;
    tracing::info!(%address, replica = workspaces.replica, "serving");
    let served = server.run(tcp, &certificates, stop).await;
    rest.cancel();
    tasks.close();
    if tokio::time::timeout(LAST_GRACE, tasks.wait())
        .await
        .is_err()
    {
        tracing::warn!("some tasks did not end in {} s", LAST_GRACE.as_secs());
    }
    Ok(served?)
}

fn sessions(
    client: &Client,
    stores: &Stores,
    workspaces: &WorkspacesOptions,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) -> Result<Sessions, RunError> {
    let storage = stores
        .get("workspacesessions")
        .ok_or(RunError::Table("workspacesessions"))?
        .storage
        .clone();
    let uid = workspaces
        .replica_uid
        .clone()
        .unwrap_or_else(|| Uuid::new_v4().to_string());
    let deps = SessionDeps {
        storage,
        leases: Arc::new(ClusterLeases::new(client.clone(), &workspaces.namespace)),
        me: ReplicaId::new(uid, Uuid::new_v4().simple().to_string()),
        timing: Timing::default(),
    };
    Ok(Sessions::start(deps, tasks, stop))
}

/// What streams are made of here.
struct StreamParts<'a> {
    stores: &'a Stores,
    namespaces: &'a Arc<dyn Namespaces>,
    sessions: Sessions,
    metrics: &'a Metrics,
    lifecycle: &'a Lifecycle,
    workspaces: &'a WorkspacesOptions,
    authorizer: Arc<dyn Authorizer>,
}

fn streams(
    parts: StreamParts<'_>,
    client: &Client,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) -> Result<Streams, RunError> {
    let StreamParts {
        stores,
        namespaces,
        sessions,
        metrics: registry,
        lifecycle,
        workspaces,
        authorizer,
    } = parts;
    let mut metrics = None;
    registry.register(|registry| metrics = Some(StreamMetrics::register(registry)));
    let metrics = metrics.ok_or(RunError::Table("metrics"))?;
    let options = stream_options(workspaces);
    let living = sessions.clone();
    let deps = RecheckDeps {
        authorizer,
        replicas: Arc::new(move || living.replicas()),
        metrics: metrics.clone(),
        times: options.recheck,
    };
    let rechecks = Rechecks::start(deps, tasks, stop);
    recheck::watch::start(client, &rechecks, tasks, stop);
    let stored = stores.get("workspaces");
    let stored = stored.ok_or(RunError::Table("workspaces"))?;
    Ok(Streams::new(StreamDeps {
        client: client.clone(),
        network: match workspaces.pod_network {
            true => Arc::new(PodNetwork),
            false => Arc::new(NoPodNetwork),
        },
        workspaces: stored.storage.clone(),
        namespaces: namespaces.clone(),
        hosts: Arc::new(HostKeys::new(stored.registry.clone(), client.clone())),
        sessions,
        limits: StreamLimits::new(workspaces.stream_limits(), metrics.clone()),
        gates: Gates::default().with(Arc::new(Files::new(files::raise()))),
        rechecks,
        metrics,
        tasks: lifecycle.streams.clone(),
        options,
    }))
}

fn stream_options(workspaces: &WorkspacesOptions) -> StreamOptions {
    let idle = workspaces.stream_idle_timeout;
    StreamOptions {
        allowed_origins: workspaces.allowed_origins.clone(),
        undeclared_ports: workspaces.allow_undeclared_ports,
        proxy_answer: workspaces.proxy_response_timeout,
        idle_after: (!idle.is_zero()).then_some(idle),
        max_duration: workspaces.stream_max_duration,
        recheck: Times {
            grace: workspaces.authorization_grace,
            ..Times::default()
        },
        ..StreamOptions::default()
    }
}

fn actions(client: &Client, stores: &Stores) -> Result<Vec<actions::Handler>, RunError> {
    let registry = |plural: &'static str| {
        let store = stores.get(plural).ok_or(RunError::Table(plural))?;
        Ok::<_, RunError>(&store.registry)
    };
    Ok(actions::handlers(
        client,
        registry("workspaces")?,
        registry("images")?,
    ))
}

fn audit(path: Option<&std::path::Path>, metrics: &Metrics) -> Result<AuditLog, RunError> {
    let Some(path) = path else {
        return Ok(AuditLog::off(metrics.clone()));
    };
    AuditLog::open(path, metrics.clone()).map_err(|source| RunError::Audit {
        path: path.display().to_string(),
        source,
    })
}

/// Readiness means: stored schema as expected, caches synced, trust known, certificate valid. Once ready, a replica turns
/// unready only for its shutdown, an invalid certificate or lost trust: trouble of the storage is
/// answered per request, or every replica would leave the Service at once.
fn health(
    lifecycle: &Lifecycle,
    schema: StoredSchema,
    stores: &Stores,
    namespaces: &Arc<dyn Namespaces>,
    certificates: &managed::Source,
    delegation: &Delegation,
) -> Health {
    let (stores, namespaces) = (stores.clone(), namespaces.clone());
    let (certificate, trust) = (certificates.subscribe(), delegation.trust.clone());
    let known = |yes: bool, what: &str| if yes { Ok(()) } else { Err(what.to_owned()) };
    Health::new(lifecycle.stopping.clone())
        .ready("stored-schema", Box::new(move || schema.ready()))
        .ready("storage-synced", Box::new(move || stores.synced()))
        .ready(
            "namespaces-synced",
            Box::new(move || known(namespaces.is_ready(), "namespaces are not known yet")),
        )
        .ready(
            "serving-certificate",
            Box::new(move || serving::check_current(&certificate, validity::now())),
        )
        .ready(
            "front-proxy-trust",
            Box::new(move || trust.ready(validity::now())),
        )
}
