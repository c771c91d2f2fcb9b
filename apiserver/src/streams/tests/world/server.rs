//! The server under test: the real handlers over real sockets, behind an authentication that believes
//! what a header says.

use std::{collections::BTreeMap, convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use apiserver_generic::{
    ApiError, Body, Call, Connect, UserInfo, authn::Via, authz::authorize, call::ClientAddress,
    request::RequestInfo, storage::memory::MemoryStorage,
};
use http::{Request, Response, Uri};
use http_body_util::BodyExt as _;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{
    client::legacy,
    rt::{TokioExecutor, TokioIo},
};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    cluster::{Cluster, json_response},
    network::{Pods, Sockets},
    rights::{Acquainted, AlwaysAlive, Phase, Verbs},
};
use crate::{
    sessions::{SessionDeps, Sessions, Timing, replica::ReplicaId},
    streams::{
        handlers,
        limits::{LimitOptions, StreamLimits},
        metrics::StreamMetrics,
        opening::{StreamDeps, StreamOptions, Streams},
        permit::Gates,
        recheck::{RecheckDeps, Rechecks},
    },
};

type Handlers = Arc<BTreeMap<&'static str, Arc<dyn Connect>>>;

/// What the server under test is made of.
#[derive(Clone)]
pub(super) struct Parts {
    /// Which replica it is.
    pub(super) pod: &'static str,
    pub(super) upstream: SocketAddr,
    pub(super) pods: Pods,
    pub(super) sockets: Sockets,
    pub(super) verbs: Verbs,
    pub(super) namespace: Phase,
    pub(super) draining: CancellationToken,
    pub(super) tasks: TaskTracker,
    pub(super) workspaces: MemoryStorage,
    pub(super) sessions: MemoryStorage,
    pub(super) stop: CancellationToken,
    pub(super) options: StreamOptions,
    pub(super) timing: Timing,
}

impl Parts {
    /// Serves; gives the address and what counts its streams.
    pub(super) async fn serve(&self) -> (SocketAddr, StreamLimits) {
        let sessions = self.sessions().await;
        let metrics =
            StreamMetrics::register(&mut prometheus_client::registry::Registry::default());
        let limits = StreamLimits::new(LimitOptions::default(), metrics.clone());
        let streams = Streams::new(StreamDeps {
            client: self.client(),
            network: Arc::new(self.pods.clone()),
            workspaces: Arc::new(self.workspaces.clone()),
            namespaces: Arc::new(self.namespace.clone()),
            hosts: Arc::new(Acquainted),
            sessions,
            limits: limits.clone(),
            gates: Gates::default(),
            rechecks: self.rechecks(metrics.clone()),
            metrics,
            tasks: self.tasks.clone(),
            options: self.options.clone(),
        });
        let handlers: Handlers = Arc::new(handlers(&streams).into_iter().collect());
        let (verbs, draining) = (self.verbs.clone(), self.draining.clone());
        let answer = move |request| {
            let (handlers, verbs, draining) = (handlers.clone(), verbs.clone(), draining.clone());
            async move { handle(&handlers, verbs, draining, request).await }
        };
        (listen(self.sockets.clone(), answer).await, limits)
    }

    async fn sessions(&self) -> Sessions {
        let deps = SessionDeps {
            storage: Arc::new(self.sessions.clone()),
            leases: Arc::new(AlwaysAlive),
            me: ReplicaId::new(self.pod, "a"),
            timing: self.timing,
        };
        let sessions = Sessions::start(deps, &TaskTracker::new(), &self.stop);
        while sessions.ready().is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        sessions
    }

    fn rechecks(&self, metrics: StreamMetrics) -> Rechecks {
        let deps = RecheckDeps {
            authorizer: Arc::new(self.verbs.clone()),
            replicas: Arc::new(|| 1),
            metrics,
            times: self.options.recheck,
        };
        Rechecks::start(deps, &TaskTracker::new(), &self.stop)
    }

    /// A client of the cluster whose connections are counted, and none kept for later.
    fn client(&self) -> kube::Client {
        let (upstream, sockets) = (self.upstream, self.sockets.clone());
        let connector = tower::service_fn(move |_: Uri| {
            let sockets = sockets.clone();
            Box::pin(async move {
                let io = TcpStream::connect(upstream).await?;
                Ok::<_, std::io::Error>(TokioIo::new(sockets.count(io)))
            })
        });
        let client = legacy::Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(0)
            .build::<_, kube::client::Body>(connector);
        let service = tower::service_fn(move |mut request: Request<kube::client::Body>| {
            let path = request.uri().path_and_query().unwrap();
            *request.uri_mut() = format!("http://{upstream}{path}").parse().unwrap();
            client.request(request)
        });
        kube::Client::new(service, "default")
    }
}

/// Serves a scripted cluster.
pub(super) async fn cluster(cluster: &Cluster) -> SocketAddr {
    let cluster = cluster.clone();
    listen(Sockets::default(), move |request| {
        cluster.clone().answer(request)
    })
    .await
}

async fn handle(
    handlers: &Handlers,
    verbs: Verbs,
    draining: CancellationToken,
    request: Request<Incoming>,
) -> Response<Body> {
    let info = RequestInfo::parse(request.method(), request.uri()).unwrap();
    let user = UserInfo {
        name: header_text(&request, "x-user").unwrap_or_else(|| "jane".to_owned()),
        groups: request
            .headers()
            .get_all("x-group")
            .iter()
            .map(|group| group.to_str().unwrap().to_owned())
            .collect(),
        ..UserInfo::default()
    };
    let handler = handlers[info.subresource.as_str()].clone();
    let via = match request.headers().contains_key("x-front") {
        true => Via::FrontProxy,
        false => Via::Token,
    };
    let result = async {
        let call = Call {
            authorized: authorize(&verbs, &user, info.attributes()).await?,
            info,
            request: request.map(|body| body.map_err(Into::into).boxed_unsync()),
            audit_id: "audit-1".into(),
            client: ClientAddress {
                peer: SocketAddr::from(([192, 0, 2, 7], 1)),
                forwarded_for: None,
                via,
            },
            authorizer: Arc::new(verbs),
            draining,
            streams: TaskTracker::new(),
            audit: apiserver_generic::audit::Record::none(),
            stopwatch: apiserver_generic::stopwatch::Stopwatch::start(),
        };
        handler.connect(call).await
    };
    result
        .await
        .unwrap_or_else(|error: ApiError| json_response(error.reason.code(), &error.to_status()))
}

fn header_text(request: &Request<Incoming>, name: &str) -> Option<String> {
    Some(request.headers().get(name)?.to_str().ok()?.to_owned())
}

/// An HTTP/1.1 server with upgrades; it ends with the test's runtime.
async fn listen<F, A>(sockets: Sockets, answer: F) -> SocketAddr
where
    F: Fn(Request<Incoming>) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Response<Body>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((io, _)) = listener.accept().await {
            let answer = answer.clone();
            let service = service_fn(move |request| {
                let response = answer(request);
                async move { Ok::<_, Infallible>(response.await) }
            });
            let connection = http1::Builder::new()
                .max_headers(2000)
                .serve_connection(TokioIo::new(sockets.count(io)), service)
                .with_upgrades();
            tokio::spawn(connection);
        }
    });
    address
}
