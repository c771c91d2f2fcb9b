//! A scripted cluster and our streams, both over real sockets on loopback.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use apiserver_generic::{
    ApiError, Attributes, Authorizer, Body, Call, Connect, Key, Object, Storage as _, UserInfo,
    admission::{NamespacePhase, Namespaces},
    authn::Via,
    authz::{Decision, authorize},
    call::{BodyError, ClientAddress, full},
    request::RequestInfo,
    storage::{StorageError, WriteContext, memory::MemoryStorage},
};
use apiservice::v1alpha1::SshStatus;
use async_trait::async_trait;
use http::{Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::{
    body::{Frame, Incoming},
    server::conn::http1,
    service::service_fn,
    upgrade::Upgraded,
};
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
        dial::tcp::{DialError, Network, PodNetwork},
        handlers,
        limits::{LimitOptions, StreamLimits},
        metrics::StreamMetrics,
        opening::{StreamDeps, StreamOptions, Streams},
        permit::Gates,
        recheck::{RecheckDeps, Rechecks},
        relay::Connection,
        ssh::hostkeys::{Hosts, OnChange, Subject},
    },
};

pub(super) type Upstream = WebSocketStream<TokioIo<Upgraded>>;
pub(super) type Client = WebSocketStream<TcpStream>;

const WORKSPACES: &str = "/apis/kubeworkspaces.io/v1alpha1/namespaces/t1/workspaces";
const INSTANCES: &str = "/apis/kubevirt.io/v1/namespaces/t1/virtualmachineinstances";
pub(super) const MACHINE: &str = "/apis/kubevirt.io/v1/namespaces/t1/virtualmachineinstances/demo";
const VM: &str = "/apis/kubevirt.io/v1/namespaces/t1/virtualmachines/demo";
const SET: &str = "/apis/apps/v1/namespaces/t1/statefulsets/demo";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/t1/deployments/demo";
const REPLICA_SET: &str = "/apis/apps/v1/namespaces/t1/replicasets/demo-5d";
pub(super) const LAUNCHER: &str = "10.1.0.9";
pub(super) const PODS: &str = "/api/v1/namespaces/t1/pods";
const SOON: Duration = Duration::from_secs(20);

/// Knows every guest: the scripted ones speak no SSH, and what checks host keys is tested on real ones.
struct Acquainted;

#[async_trait]
impl Hosts for Acquainted {
    async fn pin(&self, subject: &Subject, _: OnChange) -> Result<SshStatus, ApiError> {
        Ok(SshStatus {
            root: subject.root.clone(),
            host_keys: vec![super::terminal::host_key()],
            pinned_at: String::new(),
        })
    }

    async fn prove(&self, _: &Subject, _: &SshStatus) -> Result<(), ApiError> {
        Ok(())
    }

    async fn refusal(&self, _: &Subject, _: &SshStatus) -> ApiError {
        ApiError::internal("nothing was refused")
    }
}

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

/// A pod network: connections to the launcher pod's address lead to a listener of the test.
#[derive(Clone)]
pub(super) struct Pods {
    listener: Arc<Mutex<Option<SocketAddr>>>,
    /// What was dialled.
    pub(super) dialled: Arc<Mutex<Vec<SocketAddr>>>,
    /// Answers a dial with this error.
    pub(super) refuse: Arc<Mutex<Option<std::io::ErrorKind>>>,
}

impl Pods {
    fn new() -> Self {
        Self {
            listener: Arc::default(),
            dialled: Arc::default(),
            refuse: Arc::default(),
        }
    }

    /// From now on the launcher pod's ports lead here.
    pub(super) async fn listen(&self) -> TcpListener {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        *self.listener.lock() = Some(listener.local_addr().unwrap());
        listener
    }
}

#[async_trait]
impl Network for Pods {
    async fn connect(
        &self,
        addresses: &[SocketAddr],
        limit: Duration,
    ) -> Result<Box<dyn Connection>, DialError> {
        self.dialled.lock().extend(addresses);
        if let Some(kind) = *self.refuse.lock() {
            return Err(DialError::new(addresses[0], &kind.into()));
        }
        let listener = *self.listener.lock();
        let Some(listener) = listener else {
            return Err(DialError::silent(addresses[0], limit));
        };
        PodNetwork.connect(&[listener], limit).await
    }
}

/// Allows these verbs on everything.
#[derive(Clone, Default)]
pub(super) struct Verbs(
    pub(super) Arc<Mutex<BTreeSet<&'static str>>>,
    /// If set, only on what has this name.
    pub(super) Arc<Mutex<Option<&'static str>>>,
);

#[async_trait]
impl Authorizer for Verbs {
    async fn decide(&self, _: &UserInfo, attributes: &Attributes) -> Result<Decision, ApiError> {
        let named = self.1.lock().is_none_or(|name| attributes.name == name);
        let allowed = named && self.0.lock().contains(attributes.verb.as_str());
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
    /// The same for every dial until it is taken away.
    pub(super) refuse_all: Arc<Mutex<Option<(u16, String)>>>,
    /// What a screenshot is answered with: code, type and body.
    pub(super) screenshot: Arc<Mutex<(u16, &'static str, Vec<u8>)>>,
    dials: mpsc::UnboundedSender<(String, Upstream)>,
}

impl Cluster {
    async fn answer(self, mut request: Request<Incoming>) -> Response<Body> {
        let path = request.uri().path().to_owned();
        if request.headers().contains_key(header::UPGRADE) {
            return self.upgrade(&mut request);
        }
        if path.ends_with("/vnc/screenshot") {
            let (code, kind, body) = self.screenshot.lock().clone();
            let response = Response::builder().status(code);
            return response
                .header(header::CONTENT_TYPE, kind)
                .body(full(body))
                .unwrap();
        }
        if path == INSTANCES {
            return self.instances(request.uri().query().unwrap_or_default());
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

    /// A list of the one instance, or a watch that tells when it changes or goes.
    fn instances(&self, query: &str) -> Response<Body> {
        let now = self.objects.lock().get(MACHINE).cloned();
        if !query.contains("watch=true") {
            let items: Vec<Value> = now.into_iter().collect();
            let list = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceList",
                "metadata": {"resourceVersion": "1"}, "items": items});
            return json_response(StatusCode::OK, &list);
        }
        let objects = self.objects.clone();
        let events = futures::stream::unfold(now, move |before| {
            let objects = objects.clone();
            async move {
                let (event, now) = loop {
                    let now = objects.lock().get(MACHINE).cloned();
                    match (&before, &now) {
                        (_, Some(now)) if before.as_ref() != Some(now) => {
                            break (
                                json!({"type": "MODIFIED", "object": now}),
                                Some(now.clone()),
                            );
                        }
                        (Some(gone), None) => {
                            break (json!({"type": "DELETED", "object": gone}), None);
                        }
                        _ => tokio::time::sleep(Duration::from_millis(10)).await,
                    }
                };
                let line = bytes::Bytes::from(format!("{event}\n"));
                Some((Ok::<_, BodyError>(Frame::data(line)), now))
            }
        });
        let body = http_body_util::StreamBody::new(events);
        Response::new(body.boxed_unsync())
    }

    fn upgrade(self, request: &mut Request<Incoming>) -> Response<Body> {
        if let Some((path, object)) = self.swap.lock().take() {
            self.objects.lock().insert(path, object);
        }
        let once = self.refuse.lock().take();
        if let Some((code, text)) = once.or_else(|| self.refuse_all.lock().clone()) {
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

/// One server with its streams, and the cluster behind it.
pub(super) struct World {
    pub(super) cluster: Cluster,
    pub(super) pods: Pods,
    pub(super) verbs: Verbs,
    pub(super) namespace: Phase,
    pub(super) draining: CancellationToken,
    /// The streams that live.
    pub(super) tasks: TaskTracker,
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
        Self::with(kind, StreamOptions::default()).await
    }

    /// The same where an operator has set something.
    pub(super) async fn with(kind: &str, options: StreamOptions) -> Self {
        let (sender, dials) = mpsc::unbounded_channel();
        let cluster = Cluster {
            objects: Arc::default(),
            refuse: Arc::default(),
            swap: Arc::default(),
            refuse_all: Arc::default(),
            screenshot: Arc::default(),
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
        let pods = Pods::new();
        let tasks = TaskTracker::new();
        let storages = [&workspaces, &sessions];
        let around = (&namespace, &pods, &verbs);
        let handlers = streams(upstream, around, storages, &stop, &tasks, options).await;
        let (ours, drain) = (verbs.clone(), draining.clone());
        let address = serve(move |request| {
            let (handlers, verbs, draining) = (handlers.clone(), ours.clone(), drain.clone());
            async move { handle(&handlers, verbs, draining, request).await }
        })
        .await;
        let world = Self {
            cluster,
            pods,
            verbs,
            namespace,
            draining,
            tasks,
            workspaces,
            sessions,
            dials,
            address,
            stop,
        };
        world.put_workspace(kind).await;
        world.put_children(kind);
        world
    }

    fn put_children(&self, kind: &str) {
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
        let launcher = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "virt-launcher-demo-x", "namespace": "t1", "uid": "pod-uid"},
            "spec": {"nodeName": "n1"},
            "status": {"phase": "Running", "hostIP": "192.0.2.1", "podIPs": [{"ip": LAUNCHER}]}});
        let items = match kind {
            "vm" => json!([launcher]),
            _ => json!([pod, scratch]),
        };
        let pods = json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": items});
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
            "spec": {"type": kind, "template": {"spec": {"containers": [{"name": "main",
                "ports": [{"name": "http", "containerPort": 8080},
                    {"containerPort": 53, "protocol": "UDP"}]}]}}}});
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

    /// Deletes the workspace, and its console's session as the garbage collector does.
    pub(super) async fn delete_workspace(&self) {
        self.drop_workspace().await;
        self.delete_session("console").await;
    }

    /// Deletes the workspace alone.
    pub(super) async fn drop_workspace(&self) {
        let context = WriteContext::default();
        let stored = self.workspaces.get(&workspace_key()).await.unwrap();
        let gone = self
            .workspaces
            .delete(&context, &stored.key, stored.revision);
        gone.await.unwrap();
    }

    /// Deletes a session, whose finalizer is ours.
    pub(super) async fn delete_session(&self, mode: &str) {
        let context = WriteContext::default();
        let key = Key {
            name: format!("demo.{mode}"),
            ..session_key()
        };
        let mut session = self.sessions.get(&key).await.unwrap();
        session
            .object
            .set_meta("deletionTimestamp", "2026-01-02T03:04:05Z");
        let marked =
            self.sessions
                .update(&context, &session.key, &session.object, session.revision);
        marked.await.unwrap();
    }

    /// Waits until no stream lives any more and no session is left; upstreams that nobody has asked
    /// for end.
    pub(super) async fn at_rest(&mut self) {
        self.tasks.close();
        let rest = async {
            tokio::select! {
                () = self.tasks.wait() => {}
                () = async { while self.dials.recv().await.is_some() {} } => {}
            }
        };
        let rest = tokio::time::timeout(SOON, rest).await;
        assert!(rest.is_ok(), "{} streams live", self.tasks.len());
        self.tasks.reopen();
        for mode in ["console", "vnc", "ssh"] {
            assert!(!self.has_session_of(mode).await, "{mode}");
        }
    }

    /// Whether the console's session object is there.
    pub(super) async fn has_session(&self) -> bool {
        self.has_session_of("console").await
    }

    /// Whether a mode's session object is there.
    pub(super) async fn has_session_of(&self, mode: &str) -> bool {
        let key = Key {
            name: format!("demo.{mode}"),
            ..session_key()
        };
        !matches!(self.sessions.get(&key).await, Err(StorageError::NotFound))
    }

    /// Changes the machine's instance.
    pub(super) fn edit_machine(&self, edit: impl FnOnce(&mut Value)) {
        edit(self.cluster.objects.lock().get_mut(MACHINE).unwrap());
    }

    /// Changes the pods.
    pub(super) fn edit_pod(&self, edit: impl FnOnce(&mut Value)) {
        let mut objects = self.cluster.objects.lock();
        edit(&mut objects.get_mut(PODS).unwrap()["items"][0]);
    }

    /// Connects to the console.
    pub(super) async fn connect(
        &self,
        headers: &[(&'static str, &str)],
        query: &str,
    ) -> Result<(Client, Option<String>), (u16, Value)> {
        self.open(&format!("demo/console{query}"), headers).await
    }

    /// Connects to what follows `workspaces/`; gives the response's status and body when it is no
    /// upgrade.
    pub(super) async fn open(
        &self,
        path: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<(Client, Option<String>), (u16, Value)> {
        let mut request = format!("ws://{}{WORKSPACES}/{path}", self.address)
            .into_client_request()
            .unwrap();
        for (name, value) in headers {
            let value = value.parse().unwrap();
            match *name {
                "upgrade" | "sec-websocket-version" => {
                    request.headers_mut().insert(*name, value);
                }
                _ => drop(request.headers_mut().append(*name, value)),
            }
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

    /// An opening handshake by its bare headers: the code, and the subprotocol that was chosen. The
    /// connection is cut at once.
    pub(super) async fn handshake(
        &self,
        path: &str,
        headers: &[(&'static str, &str)],
    ) -> (u16, Option<String>) {
        let io = TokioIo::new(TcpStream::connect(self.address).await.unwrap());
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(connection.with_upgrades());
        let mut request = Request::get(format!("{WORKSPACES}/{path}"))
            .header("host", "x")
            .header("connection", "keep-alive, Upgrade")
            .header("upgrade", "WebSocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = sender.send_request(request.body(full("")).unwrap()).await;
        let response = response.unwrap();
        let chosen = response.headers().get("sec-websocket-protocol");
        let chosen = chosen.map(|value| value.to_str().unwrap().to_owned());
        (response.status().as_u16(), chosen)
    }

    /// Asks for a console without waiting for the answer.
    pub(super) async fn ask_blindly(&self) -> TcpStream {
        use tokio::io::AsyncWriteExt as _;
        let mut io = TcpStream::connect(self.address).await.unwrap();
        let head = format!(
            "GET {WORKSPACES}/demo/console HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\n\
             upgrade: websocket\r\nsec-websocket-version: 13\r\n\
             sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        io.write_all(head.as_bytes()).await.unwrap();
        io
    }

    /// A connection on which nothing was said yet.
    pub(super) async fn connection(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// A plain request for the console.
    pub(super) async fn ask(&self, method: &str) -> (u16, Value) {
        let (code, body) = self.request(method, "demo/console").await;
        (code, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    /// A plain request for what follows `workspaces/`.
    pub(super) async fn request(&self, method: &str, path: &str) -> (u16, Vec<u8>) {
        self.request_with(method, path, &[]).await
    }

    /// The same with more headers.
    pub(super) async fn request_with(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> (u16, Vec<u8>) {
        let io = TokioIo::new(TcpStream::connect(self.address).await.unwrap());
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        let uri = format!("{WORKSPACES}/{path}");
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.header("host", "x").body(full("")).unwrap();
        let response = sender.send_request(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, body.to_vec())
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

type Handlers = Arc<BTreeMap<&'static str, Arc<dyn Connect>>>;

async fn streams(
    upstream: SocketAddr,
    (namespace, pods, verbs): (&Phase, &Pods, &Verbs),
    [workspaces, sessions]: [&MemoryStorage; 2],
    stop: &CancellationToken,
    tasks: &TaskTracker,
    options: StreamOptions,
) -> Handlers {
    let config = kube::Config::new(format!("http://{upstream}").parse().unwrap());
    let deps = SessionDeps {
        storage: Arc::new(sessions.clone()),
        leases: Arc::new(AlwaysAlive),
        me: ReplicaId::new("pod-1", "a"),
        timing: Timing::default(),
    };
    let sessions = Sessions::start(deps, &TaskTracker::new(), stop);
    while sessions.ready().is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let metrics = StreamMetrics::register(&mut prometheus_client::registry::Registry::default());
    let deps = RecheckDeps {
        authorizer: Arc::new(verbs.clone()),
        replicas: Arc::new(|| 1),
        metrics: metrics.clone(),
        times: options.recheck,
    };
    let rechecks = Rechecks::start(deps, &TaskTracker::new(), stop);
    let streams = Streams::new(StreamDeps {
        client: kube::Client::try_from(config).unwrap(),
        network: Arc::new(pods.clone()),
        workspaces: Arc::new(workspaces.clone()),
        namespaces: Arc::new(namespace.clone()),
        hosts: Arc::new(Acquainted),
        sessions,
        limits: StreamLimits::new(LimitOptions::default(), metrics.clone()),
        gates: Gates::default(),
        rechecks,
        metrics,
        tasks: tasks.clone(),
        options,
    });
    Arc::new(handlers(&streams).into_iter().collect())
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
                .max_headers(2000)
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
