//! The chain over real connections: what arrives as bytes leaves as the right answer.

mod identity;
mod limits;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use http::{Response, StatusCode};
use http_body_util::BodyExt as _;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::{Notify, watch},
    task::JoinHandle,
};
use tokio_rustls::TlsConnector;

use super::*;
use crate::{
    ApiError, Attributes, Body, Call, UserInfo,
    authn::{CaBundle, RequestHeader, Trust, TrustStore},
    authz::Decision,
    respond, serving,
    test_pki::{Ca, Leaf},
    test_rows::rows,
};

/// Tells what it was given; `slow` waits, `panic` panics, `body` reads the body.
struct Told {
    entered: Arc<Notify>,
    leave: Arc<Notify>,
}

#[async_trait]
impl Endpoints for Told {
    async fn handle(&self, call: Call) -> Response<Body> {
        match call.info.name.as_str() {
            "slow" => {
                self.entered.notify_one();
                self.leave.notified().await;
            }
            "panic" => panic!("in a handler"),
            "body" => {
                if call.request.into_body().collect().await.is_err() {
                    return serving::limits::body_too_large().to_response();
                }
                return respond::text(StatusCode::OK, "read");
            }
            _ => {}
        }
        let user = call.authorized.user();
        let told = json!({
            "user": user.name, "groups": user.groups, "extra": user.extra,
            "verb": call.info.verb, "audit": *call.audit_id,
            "client": call.client.forwarded_for,
            "leaks": call.request.headers().keys().map(|k| k.as_str())
                .filter(|k| k.starts_with("x-remote-") || *k == "authorization").count(),
        });
        respond::json(StatusCode::OK, &told)
    }
}

/// Jane and Joe may do everything, mallory's reviews fail, others may do nothing.
struct ByName;

#[async_trait]
impl Authorizer for ByName {
    async fn decide(&self, user: &UserInfo, attributes: &Attributes) -> Result<Decision, ApiError> {
        match user.name.as_str() {
            _ if attributes.path == "/livez" => Ok(Decision::Allow),
            "jane" | "joe" => Ok(Decision::Allow),
            "mallory" => Err(ApiError::internal("the review failed: secret detail")),
            _ => Ok(Decision::Deny("RBAC: no".to_owned())),
        }
    }
}

#[derive(Clone, Default)]
struct Memory(Arc<parking_lot::Mutex<Vec<u8>>>);

impl std::io::Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

struct Fixture {
    ca: Ca,
    front: Ca,
    address: SocketAddr,
    stop: CancellationToken,
    entered: Arc<Notify>,
    leave: Arc<Notify>,
    audit: Memory,
    done: JoinHandle<Result<(), ServerError>>,
}

impl Fixture {
    async fn start(limits: RequestLimits) -> Self {
        let (ca, front) = (Ca::new("ca"), Ca::new("front"));
        let bundle = |ca: &Ca| CaBundle::from_pem(ca.pem().as_bytes()).unwrap();
        let trust = TrustStore::new(Trust {
            client_ca: Some(Arc::new(bundle(&ca))),
            request_header: Some(Arc::new(RequestHeader {
                ca: bundle(&front),
                allowed_names: vec!["front-proxy-client".into()],
                username_headers: vec!["x-remote-user".parse().unwrap()],
                uid_headers: Vec::new(),
                group_headers: vec!["x-remote-group".parse().unwrap()],
                extra_prefixes: vec!["x-remote-extra-".into()],
            })),
        });
        let (entered, leave) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (audit, metrics, lifecycle) =
            (Memory::default(), Metrics::default(), Lifecycle::default());
        let server = Server::new(Config {
            rows: rows(),
            title: "toys".into(),
            version: VersionInfo::default(),
            authentication: Authentication::new(Arc::new(trust), None),
            authorizer: Arc::new(ByName),
            endpoints: Arc::new(Told {
                entered: entered.clone(),
                leave: leave.clone(),
            }),
            health: Health::new(lifecycle.stopping.clone()),
            audit: AuditLog::writing_to(Box::new(audit.clone()), metrics.clone()).unwrap(),
            metrics,
            limits,
            shutdown: ShutdownPlan::default(),
            lifecycle,
        })
        .unwrap();
        let leaf = ca.server();
        let pair =
            serving::certified_key(leaf.cert_pem.as_bytes(), leaf.key_pem.as_bytes()).unwrap();
        let (_, certificate) = watch::channel(Some(Arc::new(pair)));
        let tcp = serving::bind("127.0.0.1".parse().unwrap(), 0)
            .await
            .unwrap();
        let (address, stop) = (tcp.local_addr().unwrap(), CancellationToken::new());
        let token = stop.clone();
        let done = tokio::spawn(async move { server.run(tcp, &certificate, token).await });
        Self {
            ca,
            front,
            address,
            stop,
            entered,
            leave,
            audit,
            done,
        }
    }

    async fn send(&self, client: Option<&Leaf>, request: &str) -> Answer {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(self.ca.pem().as_bytes()).unwrap())
            .unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match client {
            None => builder.with_no_client_auth(),
            Some(leaf) => {
                let key = PrivateKeyDer::from_pem_slice(leaf.key_pem.as_bytes()).unwrap();
                builder
                    .with_client_auth_cert(vec![leaf.der.clone()], key)
                    .unwrap()
            }
        };
        let tcp = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let mut tls = TlsConnector::from(Arc::new(config))
            .connect(name, tcp)
            .await
            .unwrap();
        tls.write_all(request.as_bytes()).await.unwrap();
        let mut bytes = Vec::new();
        // A close without close_notify still follows everything that was sent.
        let _ = tls.read_to_end(&mut bytes).await;
        Answer(String::from_utf8(bytes).unwrap())
    }

    async fn proxied(&self, user: &str, path: &str, more: &str) -> Answer {
        let proxy = self.front.client("front-proxy-client");
        let headers =
            format!("X-Remote-User: {user}\r\nX-Forwarded-For: 10.1.1.1, 10.2.2.2\r\n{more}");
        self.send(Some(&proxy), &get(path, &headers)).await
    }

    /// Stops the server and gives back the audit events.
    async fn end(self) -> Vec<Value> {
        self.stop.cancel();
        tokio::time::timeout(Duration::from_secs(20), self.done)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        let text = String::from_utf8(self.audit.0.lock().clone()).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

struct Answer(String);

impl Answer {
    fn code(&self) -> u16 {
        self.0["HTTP/1.1 ".len()..][..3].parse().unwrap()
    }

    fn json(&self) -> Value {
        let body = self.0.split_once("\r\n\r\n").unwrap().1;
        serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {}", self.0))
    }

    fn header(&self, name: &str) -> Option<String> {
        let head = self.0.split_once("\r\n\r\n").unwrap().0;
        head.lines().find_map(|line| {
            let (key, value) = line.split_once(": ")?;
            key.eq_ignore_ascii_case(name).then(|| value.to_owned())
        })
    }
}

fn get(path: &str, headers: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n")
}

const ROBOT: &str = "/apis/toys.example.com/v1/namespaces/a/robots/r";
