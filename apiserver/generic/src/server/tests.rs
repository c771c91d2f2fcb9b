//! The chain over real connections: what arrives as bytes leaves as the right answer.

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

#[tokio::test]
async fn a_forged_identity_is_judged_as_anonymous() {
    let f = Fixture::start(RequestLimits::default()).await;
    let forged = "X-Remote-User: jane\r\nX-Remote-Group: system:masters\r\n";
    let answer = f.send(None, &get(ROBOT, forged)).await;
    assert_eq!(answer.code(), 403);
    assert_eq!(
        answer.json()["message"],
        "robots.toys.example.com \"r\" is forbidden: User \"system:anonymous\" cannot get resource \
         \"robots\" in API group \"toys.example.com\" in the namespace \"a\": RBAC: no"
    );
    let events = f.end().await;
    assert_eq!(events[0]["user"]["username"], "system:anonymous");
    assert_eq!(
        events[0]["annotations"]["authorization.k8s.io/decision"],
        "forbid"
    );
    assert_eq!(events[0]["sourceIPs"], json!(["127.0.0.1"]));
}

#[tokio::test]
async fn an_upgrade_that_is_refused_ends_its_connection_and_says_so() {
    let f = Fixture::start(RequestLimits::default()).await;
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
    for path in [ROBOT, "/nowhere"] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n{upgrade}\r\n");
        let whole = tokio::time::timeout(Duration::from_secs(20), f.send(None, &request));
        let answer = whole.await.unwrap();
        assert_eq!(answer.code(), 403, "{path}");
        assert_eq!(answer.header("connection").as_deref(), Some("close"));
    }
    f.end().await;
}

#[tokio::test]
async fn the_front_proxys_user_arrives_whole_and_both_logs_can_be_joined() {
    let f = Fixture::start(RequestLimits::default()).await;
    let more =
        "Audit-ID: from-kas\r\nX-Remote-Group: dev\r\nX-Remote-Extra-Scopes.io%2fA%25: x\r\n";
    let answer = f.proxied("jane", ROBOT, more).await;
    assert_eq!(answer.code(), 200);
    assert_eq!(
        answer.json(),
        json!({"user": "jane", "groups": ["dev", "system:authenticated"],
            "extra": {"scopes.io/a%": ["x"]}, "verb": "get", "audit": "from-kas",
            "client": "10.2.2.2", "leaks": 0})
    );
    assert_eq!(answer.header("audit-id").as_deref(), Some("from-kas"));
    assert_eq!(
        answer.header("cache-control").as_deref(),
        Some("no-cache, private")
    );
    let event = &f.end().await[0];
    assert_eq!(
        (&event["auditID"], &event["user"]["username"]),
        (&json!("from-kas"), &json!("jane"))
    );
    assert_eq!(
        event["sourceIPs"],
        json!(["10.1.1.1", "10.2.2.2", "127.0.0.1"])
    );
    assert_eq!(event["responseStatus"]["code"], 200);
}

#[tokio::test]
async fn probes_are_in_the_audit_log_only_when_they_are_refused() {
    let f = Fixture::start(RequestLimits::default()).await;
    let stranger = f.front.client("stranger");
    for (client, request, code) in [
        (None, get("/livez", ""), 200),
        (None, get("/livez/ping", ""), 403),
        (None, get("/readyz", ""), 403),
        (
            Some(&stranger),
            get("/livez", "X-Remote-User: jane\r\n"),
            401,
        ),
        (None, get("/livez", "").replace("GET", "PUT"), 405),
    ] {
        assert_eq!(f.send(client, &request).await.code(), code, "{request}");
    }
    let jane = f.proxied("jane", "/readyz?verbose", "").await;
    assert_eq!(jane.code(), 200);
    let missing = f.proxied("jane", "/readyz/nothing", "").await;
    assert_eq!(missing.code(), 404);
    let events = f.end().await;
    let told: Vec<_> = events
        .iter()
        .map(|e| {
            (
                e["requestURI"].as_str(),
                e["responseStatus"]["code"].as_u64(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            (Some("/livez/ping"), Some(403)),
            (Some("/readyz"), Some(403)),
            (Some("/livez"), Some(401)),
            (Some("/livez"), Some(405)),
            (Some("/readyz/nothing"), Some(404)),
        ]
    );
}

#[tokio::test]
async fn a_front_proxy_of_another_name_is_401() {
    let f = Fixture::start(RequestLimits::default()).await;
    let stranger = f.front.client("stranger");
    let answer = f
        .send(Some(&stranger), &get(ROBOT, "X-Remote-User: jane\r\n"))
        .await;
    assert_eq!(
        (answer.code(), &answer.json()["message"]),
        (401, &json!("Unauthorized"))
    );
    let events = f.end().await;
    assert_eq!(
        (&events[0]["responseStatus"]["code"], &events[0]["user"]),
        (&json!(401), &json!({}))
    );
}

#[tokio::test]
async fn a_review_that_fails_is_500_and_tells_the_caller_nothing() {
    let f = Fixture::start(RequestLimits::default()).await;
    let answer = f.proxied("mallory", ROBOT, "").await;
    assert_eq!(answer.code(), 500);
    assert!(!answer.0.contains("secret"), "{}", answer.0);
    f.end().await;
}

#[tokio::test]
async fn impersonation_is_refused_and_never_ignored() {
    let f = Fixture::start(RequestLimits::default()).await;
    let answer = f.proxied("jane", ROBOT, "Impersonate-User: root\r\n").await;
    assert_eq!(answer.code(), 403);
    f.end().await;
}

#[tokio::test]
async fn documents_come_from_memory_and_unknown_paths_are_404() {
    let f = Fixture::start(RequestLimits::default()).await;
    assert_eq!(f.send(None, &get("/livez", "")).await.code(), 200);
    for (path, code) in [
        ("/readyz", 200),
        ("/metrics", 200),
        ("/apis", 200),
        ("/apis/toys.example.com/v1", 200),
        ("/openapi/v2", 200),
        ("/openapi/v3", 200),
        ("/version", 200),
        ("/api", 404),
        ("/apis/other.io/v1/things", 404),
        ("/%zz", 400),
    ] {
        assert_eq!(f.proxied("jane", path, "").await.code(), code, "{path}");
    }
    assert_eq!(
        f.send(None, &get("/apis", "")).await.code(),
        403,
        "discovery is authorized too"
    );
    f.end().await;
}

#[tokio::test]
async fn one_users_requests_leave_room_for_anothers() {
    let limits = RequestLimits {
        max_inflight_per_user: 1,
        max_watches_per_user: 1,
        ..RequestLimits::default()
    };
    let f = Arc::new(Fixture::start(limits).await);
    let slow = tokio::spawn({
        let (f, path) = (
            f.clone(),
            "/apis/toys.example.com/v1/namespaces/a/robots/slow",
        );
        async move { f.proxied("jane", path, "").await.code() }
    });
    f.entered.notified().await;
    let refused = f.proxied("jane", ROBOT, "").await;
    assert_eq!(
        (refused.code(), refused.header("retry-after").as_deref()),
        (429, Some("1"))
    );
    assert_eq!(f.proxied("joe", ROBOT, "").await.code(), 200);
    f.leave.notify_one();
    assert_eq!(slow.await.unwrap(), 200);
    assert_eq!(f.proxied("jane", ROBOT, "").await.code(), 200);
    Arc::into_inner(f).unwrap().end().await;
}

#[tokio::test]
async fn the_limit_is_429_but_watches_and_documents_pass() {
    let limits = RequestLimits {
        max_inflight: 1,
        ..RequestLimits::default()
    };
    let f = Arc::new(Fixture::start(limits).await);
    let slow = tokio::spawn({
        let f = f.clone();
        async move {
            f.proxied(
                "jane",
                "/apis/toys.example.com/v1/namespaces/a/robots/slow",
                "",
            )
            .await
            .code()
        }
    });
    f.entered.notified().await;
    let refused = f.proxied("jane", ROBOT, "").await;
    assert_eq!(
        (refused.code(), refused.header("retry-after").as_deref()),
        (429, Some("1"))
    );
    let watch = f
        .proxied("jane", "/apis/toys.example.com/v1/robots?watch=1", "")
        .await;
    assert_eq!(watch.json()["verb"], "watch");
    assert_eq!(
        f.proxied("jane", "/apis/toys.example.com/v1", "")
            .await
            .code(),
        200
    );
    f.leave.notify_one();
    assert_eq!(slow.await.unwrap(), 200);
    assert_eq!(
        f.proxied("jane", ROBOT, "").await.code(),
        200,
        "the place is free again"
    );
    Arc::into_inner(f).unwrap().end().await;
}

#[tokio::test]
async fn a_request_that_takes_too_long_is_504() {
    let f = Fixture::start(RequestLimits::default()).await;
    let slow = "/apis/toys.example.com/v1/namespaces/a/robots/slow";
    let answer = f.proxied("jane", &format!("{slow}?timeout=1ms"), "").await;
    assert_eq!(
        (answer.code(), &answer.json()["reason"]),
        (504, &json!("Timeout"))
    );
    let answer = f.proxied("jane", &format!("{slow}?timeout=soon"), "").await;
    assert_eq!(answer.code(), 400);
    f.end().await;
}

#[tokio::test]
async fn a_panic_is_500_with_an_event_and_the_server_lives_on() {
    let f = Fixture::start(RequestLimits::default()).await;
    let panic = "/apis/toys.example.com/v1/namespaces/a/robots/panic";
    assert_eq!(f.proxied("jane", panic, "").await.code(), 500);
    assert_eq!(f.proxied("jane", ROBOT, "").await.code(), 200);
    let codes: Vec<_> = f
        .end()
        .await
        .iter()
        .map(|e| e["responseStatus"]["code"].clone())
        .collect();
    assert_eq!(codes, [500, 200]);
}

#[tokio::test]
async fn a_body_over_the_limit_is_413_declared_or_not() {
    let f = Fixture::start(RequestLimits::default()).await;
    let proxy = f.front.client("front-proxy-client");
    let path = "/apis/toys.example.com/v1/namespaces/a/robots/body";
    let head =
        format!("PUT {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Remote-User: jane\r\n");
    let declared = format!(
        "{head}Content-Length: {}\r\n\r\n",
        serving::limits::MAX_BODY_BYTES + 1
    );
    assert_eq!(f.send(Some(&proxy), &declared).await.code(), 413);
    let chunk = "x".repeat(serving::limits::MAX_BODY_BYTES);
    let fits = format!(
        "{head}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{chunk}\r\n0\r\n\r\n",
        chunk.len()
    );
    assert_eq!(f.send(Some(&proxy), &fits).await.code(), 200);
    let over = format!(
        "{head}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{chunk}\r\n1\r\nx\r\n0\r\n\r\n",
        chunk.len()
    );
    assert_eq!(f.send(Some(&proxy), &over).await.code(), 413);
    f.end().await;
}
