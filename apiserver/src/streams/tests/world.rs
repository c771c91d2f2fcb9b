//! A scripted cluster and our console, both over real sockets on loopback.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use apiserver_generic::{
    ApiError, Attributes, Authorizer, Body, Call, Connect as _, Key, Object, Storage as _,
    UserInfo,
    admission::{NamespacePhase, Namespaces},
    authz::{Decision, authorize},
    call::{ClientAddress, full},
    request::RequestInfo,
    storage::{StorageError, WriteContext, memory::MemoryStorage},
};
use async_trait::async_trait;
use http::{Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::{body::Incoming, server::conn::http1, service::service_fn, upgrade::Upgraded};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{
        self, Message,
        client::IntoClientRequest as _,
        handshake::derive_accept_key,
        protocol::{CloseFrame, Role},
    },
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    sessions::{
        SessionDeps, Sessions, Timing,
        lease::Leases,
        replica::{Beat, ReplicaId},
    },
    streams::{
        console::{Console, ConsoleDeps, StreamOptions},
        metrics::StreamMetrics,
    },
};

pub(super) type Upstream = WebSocketStream<TokioIo<Upgraded>>;
pub(super) type Client = WebSocketStream<TcpStream>;

pub(super) const MACHINE: &str = "/apis/kubevirt.io/v1/namespaces/t1/virtualmachineinstances/demo";
const VM: &str = "/apis/kubevirt.io/v1/namespaces/t1/virtualmachines/demo";
const SET: &str = "/apis/apps/v1/namespaces/t1/statefulsets/demo";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/t1/deployments/demo";
const REPLICA_SET: &str = "/apis/apps/v1/namespaces/t1/replicasets/demo-5d";
pub(super) const PODS: &str = "/api/v1/namespaces/t1/pods";
const SOON: Duration = Duration::from_secs(20);

struct AlwaysAlive;

#[async_trait]
impl Leases for AlwaysAlive {
    async fn renew(&self, _: &ReplicaId) -> Result<(), ApiError> {
        Ok(())
    }
    async fn list(&self) -> Result<Vec<Beat>, ApiError> {
        Ok(Vec::new())
    }
    async fn remove(&self, _: &str) -> Result<(), ApiError> {
        Ok(())
    }
}

/// The phase of every namespace; a watch that is behind knows none.
#[derive(Clone, Default)]
pub(super) struct Phase(pub(super) Arc<Mutex<Option<NamespacePhase>>>);

#[async_trait]
impl Namespaces for Phase {
    fn is_ready(&self) -> bool {
        true
    }
    fn cached(&self, _: &str) -> Option<NamespacePhase> {
        None
    }
    async fn live(&self, _: &str) -> Result<Option<NamespacePhase>, ApiError> {
        Ok(*self.0.lock())
    }
}

/// Allows these verbs on everything.
#[derive(Clone, Default)]
pub(super) struct Verbs(pub(super) Arc<Mutex<BTreeSet<&'static str>>>);

#[async_trait]
impl Authorizer for Verbs {
    async fn decide(&self, _: &UserInfo, attributes: &Attributes) -> Result<Decision, ApiError> {
        let allowed = self.0.lock().contains(attributes.verb.as_str());
        Ok(if allowed {
            Decision::Allow
        } else {
            Decision::Deny(String::new())
        })
    }
}

/// What the scripted cluster knows, and what it does with a dial.
#[derive(Clone)]
pub(super) struct Cluster {
    pub(super) objects: Arc<Mutex<BTreeMap<String, Value>>>,
    /// Answers a dial with this status instead of an upgrade.
    pub(super) refuse: Arc<Mutex<Option<(u16, String)>>>,
    /// Objects that appear while a dial is under way.
    pub(super) swap: Arc<Mutex<Option<(String, Value)>>>,
    dials: mpsc::UnboundedSender<(String, Upstream)>,
}

impl Cluster {
    async fn answer(self, mut request: Request<Incoming>) -> Response<Body> {
        let path = request.uri().path().to_owned();
        if request.headers().contains_key(header::UPGRADE) {
            return self.upgrade(&mut request);
        }
        let found = self.objects.lock().get(&path).cloned();
        match found {
            Some(object) => json_response(StatusCode::OK, &object),
            None => json_response(
                StatusCode::NOT_FOUND,
                &json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                    "reason": "NotFound", "message": "not found", "code": 404}),
            ),
        }
    }

    fn upgrade(self, request: &mut Request<Incoming>) -> Response<Body> {
        if let Some((path, object)) = self.swap.lock().take() {
            self.objects.lock().insert(path, object);
        }
        if let Some((code, text)) = self.refuse.lock().take() {
            let mut response = Response::new(full(text));
            *response.status_mut() = StatusCode::from_u16(code).unwrap();
            return response;
        }
        let uri = request.uri().to_string();
        let upgrade = hyper::upgrade::on(&mut *request);
        tokio::spawn(async move {
            let io = TokioIo::new(upgrade.await.unwrap());
            let peer = WebSocketStream::from_raw_socket(io, Role::Server, None).await;
            let _ = self.dials.send((uri, peer));
        });
        let headers = request.headers();
        let key = derive_accept_key(headers[header::SEC_WEBSOCKET_KEY].as_bytes());
        let offered = headers[header::SEC_WEBSOCKET_PROTOCOL].to_str().unwrap();
        let chosen = offered.split(',').next().unwrap().to_owned();
        Response::builder()
            .status(StatusCode::SWITCHING_PROTOCOLS)
            .header(header::CONNECTION, "Upgrade")
            .header(header::UPGRADE, "websocket")
            .header(header::SEC_WEBSOCKET_ACCEPT, key)
            .header(header::SEC_WEBSOCKET_PROTOCOL, chosen)
            .body(full(""))
            .unwrap()
    }
}

fn json_response(status: StatusCode, value: &Value) -> Response<Body> {
    let response = Response::builder().status(status);
    let response = response.header(header::CONTENT_TYPE, "application/json");
    response.body(full(value.to_string())).unwrap()
}

/// One server with its console, and the cluster behind it.
pub(super) struct World {
    pub(super) cluster: Cluster,
    pub(super) verbs: Verbs,
    pub(super) namespace: Phase,
    pub(super) draining: CancellationToken,
    workspaces: MemoryStorage,
    sessions: MemoryStorage,
    dials: mpsc::UnboundedReceiver<(String, Upstream)>,
    address: SocketAddr,
    stop: CancellationToken,
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl World {
    /// A workspace of this type, whose machine or pod runs.
    pub(super) async fn new(kind: &str) -> Self {
        let (sender, dials) = mpsc::unbounded_channel();
        let cluster = Cluster {
            objects: Arc::default(),
            refuse: Arc::default(),
            swap: Arc::default(),
            dials: sender,
        };
        let world_cluster = cluster.clone();
        let upstream = serve(move |request| {
            let cluster = world_cluster.clone();
            async move { cluster.answer(request).await }
        })
        .await;
        let (workspaces, sessions) = (MemoryStorage::default(), MemoryStorage::default());
        let (stop, draining, verbs) = (
            CancellationToken::new(),
            CancellationToken::new(),
            Verbs::default(),
        );
        verbs.0.lock().extend(["get", "create"]);
        let namespace = Phase::default();
        let console = console(upstream, &workspaces, &namespace, &sessions, &stop).await;
        let (ours, drain) = (verbs.clone(), draining.clone());
        let address = serve(move |request| {
            let (console, verbs, draining) = (console.clone(), ours.clone(), drain.clone());
            async move { handle(&console, verbs, draining, request).await }
        })
        .await;
        let world = Self {
            cluster,
            verbs,
            namespace,
            draining,
            workspaces,
            sessions,
            dials,
            address,
            stop,
        };
        world.put_workspace(kind).await;
        world.put_children();
        world
    }

    fn put_children(&self) {
        let owner = |api: &str, kind: &str, uid: &str| {
            json!([{"apiVersion": api, "kind": kind,
            "name": "demo", "uid": uid, "controller": true}])
        };
        let ours = owner("kubeworkspaces.io/v1alpha1", "Workspace", "ws-uid");
        let vm = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "metadata": {"name": "demo", "namespace": "t1", "uid": "vm-uid", "ownerReferences": ours}});
        let vmi = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": {"name": "demo", "namespace": "t1", "uid": "vmi-uid",
                "ownerReferences": owner("kubevirt.io/v1", "VirtualMachine", "vm-uid")},
            "status": {"phase": "Running", "nodeName": "n1", "activePods": {"pod-uid": "n1"}}});
        let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": {"name": "demo", "namespace": "t1", "uid": "set-uid", "ownerReferences": ours}});
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "demo-0", "namespace": "t1", "uid": "pod-uid",
                "ownerReferences": owner("apps/v1", "StatefulSet", "set-uid")},
            "spec": {"containers": [{"name": "main"}]},
            "status": {"phase": "Running",
                "containerStatuses": [{"name": "main", "state": {"running": {}}}]}});
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "demo", "namespace": "t1", "uid": "deployment-uid", "ownerReferences": ours}});
        let replica_set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {"name": "demo-5d", "namespace": "t1", "uid": "replicaset-uid",
                "ownerReferences": owner("apps/v1", "Deployment", "deployment-uid")}});
        let mut scratch = pod.clone();
        scratch["metadata"]["name"] = json!("demo-5d-x");
        let mut reference = owner("apps/v1", "ReplicaSet", "replicaset-uid");
        reference[0]["name"] = json!("demo-5d");
        scratch["metadata"]["ownerReferences"] = reference;
        let pods = json!({"apiVersion": "v1", "kind": "PodList", "metadata": {},
            "items": [pod, scratch]});
        let mut objects = self.cluster.objects.lock();
        for (path, object) in [
            (VM, vm),
            (MACHINE, vmi),
            (SET, set),
            (DEPLOYMENT, deployment),
            (REPLICA_SET, replica_set),
            (PODS, pods),
        ] {
            objects.insert(path.to_owned(), object);
        }
    }

    async fn put_workspace(&self, kind: &str) {
        let object = json!({"metadata": {"name": "demo", "namespace": "t1", "uid": "ws-uid"},
            "spec": {"type": kind}});
        let object = Object::from_value(object).unwrap();
        let created = self
            .workspaces
            .create(&WriteContext::default(), &workspace_key(), &object)
            .await;
        created.unwrap();
    }

    /// Changes the workspace.
    pub(super) async fn edit_workspace(&self, edit: impl FnOnce(&mut Object)) {
        let mut stored = self.workspaces.get(&workspace_key()).await.unwrap();
        edit(&mut stored.object);
        let context = WriteContext::default();
        let updated =
            self.workspaces
                .update(&context, &stored.key, &stored.object, stored.revision);
        updated.await.unwrap();
    }

    /// Deletes the workspace, and its session as the garbage collector does.
    pub(super) async fn delete_workspace(&self) {
        let context = WriteContext::default();
        let stored = self.workspaces.get(&workspace_key()).await.unwrap();
        self.workspaces
            .delete(&context, &stored.key, stored.revision)
            .await
            .unwrap();
        self.delete_session().await;
    }

    /// Marks the session as deleted.
    pub(super) async fn delete_session(&self) {
        let context = WriteContext::default();
        let mut session = self.sessions.get(&session_key()).await.unwrap();
        session
            .object
            .set_meta("deletionTimestamp", "2026-01-02T03:04:05Z");
        let marked =
            self.sessions
                .update(&context, &session.key, &session.object, session.revision);
        marked.await.unwrap();
    }

    /// Whether a session object is there.
    pub(super) async fn has_session(&self) -> bool {
        !matches!(
            self.sessions.get(&session_key()).await,
            Err(StorageError::NotFound)
        )
    }

    /// Connects; gives the response's status and body when it is no upgrade.
    pub(super) async fn connect(
        &self,
        headers: &[(&'static str, &str)],
        query: &str,
    ) -> Result<(Client, Option<String>), (u16, Value)> {
        let mut request = format!("ws://{}/console{query}", self.address)
            .into_client_request()
            .unwrap();
        for (name, value) in headers {
            request.headers_mut().append(*name, value.parse().unwrap());
        }
        let io = TcpStream::connect(self.address).await.unwrap();
        let connecting = tokio::time::timeout(SOON, client_async(request, io));
        match connecting.await.unwrap() {
            Ok((client, response)) => {
                let chosen = response.headers().get("sec-websocket-protocol");
                let chosen = chosen.map(|value| value.to_str().unwrap().to_owned());
                Ok((client, chosen))
            }
            Err(tungstenite::Error::Http(response)) => {
                let body = response.body().clone().unwrap_or_default();
                let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
                Err((response.status().as_u16(), body))
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// A plain request.
    pub(super) async fn ask(&self, method: &str) -> (u16, Value) {
        let io = TokioIo::new(TcpStream::connect(self.address).await.unwrap());
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        let request = Request::builder().method(method).uri("/console");
        let request = request.header("host", "x").body(full("")).unwrap();
        let response = sender.send_request(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    /// The next connection that the cluster has got, and its URI.
    pub(super) async fn dialled(&mut self) -> (String, Upstream) {
        tokio::time::timeout(SOON, self.dials.recv())
            .await
            .unwrap()
            .unwrap()
    }

    /// Whether nothing was dialled.
    pub(super) fn nothing_dialled(&mut self) -> bool {
        self.dials.try_recv().is_err()
    }
}

fn workspace_key() -> Key {
    Key {
        namespace: Some("t1".into()),
        name: "demo".into(),
    }
}

fn session_key() -> Key {
    Key {
        namespace: Some("t1".into()),
        name: "demo.console".into(),
    }
}

async fn console(
    upstream: SocketAddr,
    workspaces: &MemoryStorage,
    namespace: &Phase,
    sessions: &MemoryStorage,
    stop: &CancellationToken,
) -> Arc<Console> {
    let config = kube::Config::new(format!("http://{upstream}").parse().unwrap());
    let tasks = TaskTracker::new();
    let deps = SessionDeps {
        storage: Arc::new(sessions.clone()),
        leases: Arc::new(AlwaysAlive),
        me: ReplicaId::new("pod-1", "a"),
        timing: Timing::default(),
    };
    let sessions = Sessions::start(deps, &tasks, stop);
    while sessions.ready().is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Arc::new(Console::new(ConsoleDeps {
        client: kube::Client::try_from(config).unwrap(),
        workspaces: Arc::new(workspaces.clone()),
        namespaces: Arc::new(namespace.clone()),
        sessions,
        metrics: StreamMetrics::register(&mut prometheus_client::registry::Registry::default()),
        tasks,
        options: StreamOptions::default(),
    }))
}

async fn handle(
    console: &Console,
    verbs: Verbs,
    draining: CancellationToken,
    request: Request<Incoming>,
) -> Response<Body> {
    let verb = if request.method() == "POST" {
        "create"
    } else {
        "get"
    };
    let attributes = Attributes {
        verb: verb.into(),
        group: "kubeworkspaces.io".into(),
        resource: "workspaces".into(),
        subresource: "console".into(),
        namespace: "t1".into(),
        name: "demo".into(),
        ..Attributes::default()
    };
    let user = UserInfo {
        name: header_text(&request, "x-user").unwrap_or_else(|| "jane".to_owned()),
        ..UserInfo::default()
    };
    let result = async {
        let call = Call {
            authorized: authorize(&verbs, &user, attributes).await?,
            info: RequestInfo {
                namespace: "t1".into(),
                name: "demo".into(),
                ..RequestInfo::default()
            },
            request: request.map(|body| body.map_err(Into::into).boxed_unsync()),
            audit_id: "audit-1".into(),
            client: ClientAddress {
                peer: SocketAddr::from(([192, 0, 2, 7], 1)),
                forwarded_for: None,
            },
            authorizer: Arc::new(verbs),
            draining,
            streams: TaskTracker::new(),
            audit: apiserver_generic::audit::Record::none(),
        };
        console.connect(call).await
    };
    result
        .await
        .unwrap_or_else(|error: ApiError| json_response(error.reason.code(), &error.to_status()))
}

fn header_text(request: &Request<Incoming>, name: &str) -> Option<String> {
    Some(request.headers().get(name)?.to_str().ok()?.to_owned())
}

/// An HTTP/1.1 server with upgrades; it ends with the test's runtime.
async fn serve<F, A>(answer: F) -> SocketAddr
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
                .serve_connection(TokioIo::new(io), service)
                .with_upgrades();
            tokio::spawn(connection);
        }
    });
    address
}

/// The next data of a peer, in one piece of this length.
pub(super) async fn data<S>(peer: &mut WebSocketStream<S>, length: usize) -> Vec<u8>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let mut all = Vec::new();
    while all.len() < length {
        match next(peer).await {
            Some(Message::Binary(bytes)) => all.extend_from_slice(&bytes),
            Some(Message::Ping(_) | Message::Pong(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    all
}

/// The close that a peer gets.
pub(super) async fn closed<S>(peer: &mut WebSocketStream<S>) -> Option<CloseFrame>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    loop {
        match next(peer).await {
            Some(Message::Close(frame)) => return frame,
            Some(_) => {}
            None => return None,
        }
    }
}

async fn next<S>(peer: &mut WebSocketStream<S>) -> Option<Message>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    use futures::StreamExt as _;
    let next = tokio::time::timeout(SOON, peer.next()).await.unwrap();
    next.and_then(Result::ok)
}
