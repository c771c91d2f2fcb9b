//! A double of the API server: it speaks what the plugin is promised of workspaces, and nothing else. What the real
//! server does with the plugin is shown by the end-to-end tests.

mod answer;
mod stream;
mod tls;

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HeaderMap, Request};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub use tls::{Authority, Tls};

pub const API: &str = "/apis/kubeworkspaces.io/v1alpha1";

/// What was asked.
#[derive(Clone, Debug)]
pub struct Asked {
    pub method: String,
    /// Path and query.
    pub target: String,
    pub headers: HeaderMap,
    pub body: Value,
    /// Subject of the client certificate, or empty.
    pub certificate: bool,
}

/// An answer in place of the usual one.
#[derive(Clone, Debug)]
pub struct Refuse {
    pub code: u16,
    pub retry_after: Option<u64>,
    pub body: String,
}

impl Refuse {
    pub fn status(code: u16, message: &str) -> Self {
        Self {
            code,
            retry_after: None,
            body: json!({"kind": "Status", "status": "Failure", "message": message, "code": code})
                .to_string(),
        }
    }
}

/// What a stream does.
#[derive(Clone, Debug)]
pub enum Script {
    /// A tunnel to this address; whether its ends can be told apart.
    Tunnel(SocketAddr, bool),
    /// A tunnel that gives back what it hears, and ends both directions for this reason when one has ended.
    OneEnd(String),
    /// Says this, then gives back what it hears.
    Echo(Vec<u8>),
    /// Says this, and closes.
    Say(Vec<u8>, u16, String),
    /// Says this, and waits for the other side to end.
    Hold(Vec<u8>),
    /// A shell that answers each channel message with its size and ends with this status on EOF.
    Shell(u8),
}

/// What the double knows.
#[derive(Default)]
pub struct World {
    /// Objects by path below the API.
    pub objects: HashMap<String, Value>,
    /// Streams by the end of the path, as `demo/ssh`.
    pub scripts: HashMap<String, Script>,
    /// The next answers to requests whose path and query contain the key.
    pub refusals: Vec<(String, Refuse)>,
    /// The token that is accepted; `None` accepts everyone.
    pub token: Option<String>,
    pub screenshot: Vec<u8>,
    pub asked: Vec<Asked>,
    /// What streams have heard.
    pub heard: Vec<Vec<u8>>,
}

/// A running double.
pub struct Double {
    pub address: SocketAddr,
    pub world: Arc<Mutex<World>>,
    pub open: Arc<AtomicUsize>,
    pub authority: Option<Authority>,
    accepting: JoinHandle<()>,
}

impl Drop for Double {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Double {
    pub async fn start() -> Self {
        Self::with(None).await
    }

    /// Over TLS, for certificates and names.
    pub async fn with(tls: Option<Tls>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let world = Arc::new(Mutex::new(World::default()));
        let open = Arc::new(AtomicUsize::new(0));
        let (acceptor, authority) = match tls {
            Some(tls) => (Some(tls.acceptor), Some(tls.authority)),
            None => (None, None),
        };
        let shared = (world.clone(), open.clone());
        let accepting = tokio::spawn(async move {
            loop {
                let Ok((connection, _)) = listener.accept().await else {
                    return;
                };
                let (acceptor, (world, open)) = (acceptor.clone(), shared.clone());
                tokio::spawn(async move {
                    match acceptor {
                        None => serve(connection, world, open, false).await,
                        Some(acceptor) => {
                            if let Ok(secured) = acceptor.accept(connection).await {
                                let certified = secured.get_ref().1.peer_certificates().is_some();
                                serve(secured, world, open, certified).await;
                            }
                        }
                    }
                });
            }
        });
        Self {
            address,
            world,
            open,
            authority,
            accepting,
        }
    }

    pub fn change(&self, change: impl FnOnce(&mut World)) {
        change(&mut self.world.lock().unwrap());
    }

    /// A workspace that runs.
    pub fn workspace(&self, namespace: &str, name: &str, kind: &str) {
        let ports = json!([{"name": "http", "containerPort": 8000}]);
        let object = json!({
            "apiVersion": "kubeworkspaces.io/v1alpha1", "kind": "Workspace",
            "metadata": {"name": name, "namespace": namespace, "uid": format!("uid-{name}")},
            "spec": {"type": kind, "template": {"spec": {"containers": [{"name": "main", "ports": ports}]}}},
            "status": {"phase": "Running", "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        });
        let path = format!("namespaces/{namespace}/workspaces/{name}");
        self.change(|world| {
            world.objects.insert(path, object);
        });
    }

    pub fn edit(&self, path: &str, edit: impl FnOnce(&mut Value)) {
        self.change(|world| edit(world.objects.get_mut(path).unwrap()));
    }

    pub fn script(&self, path: &str, script: Script) {
        self.change(|world| {
            world.scripts.insert(path.into(), script);
        });
    }

    pub fn refuse(&self, path: &str, refuse: Refuse) {
        self.change(|world| world.refusals.push((path.into(), refuse)));
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.world.lock().unwrap().asked.clone()
    }

    pub fn heard(&self) -> Vec<u8> {
        self.world.lock().unwrap().heard.concat()
    }

    /// Waits until so many streams are open.
    pub async fn streams(&self, wanted: usize) {
        let reached = async {
            while self.open.load(Ordering::SeqCst) != wanted {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let open = || self.open.load(Ordering::SeqCst);
        if tokio::time::timeout(Duration::from_secs(3), reached)
            .await
            .is_err()
        {
            panic!("{} streams are open, and not {wanted}", open());
        }
    }
}

async fn serve<S>(
    connection: S,
    world: Arc<Mutex<World>>,
    open: Arc<AtomicUsize>,
    certificate: bool,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let (world, open) = (world.clone(), open.clone());
        async move { Ok::<_, Infallible>(answer::answer(request, world, open, certificate).await) }
    });
    // a client that goes away in the middle is what some tests are about
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(connection), service)
        .with_upgrades()
        .await;
}
