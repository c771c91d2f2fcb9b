//! Serving over real TLS connections, down to the bytes where they matter.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::{Notify, watch},
    task::JoinHandle,
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::*;
use crate::{
    Body,
    call::full,
    respond,
    test_pki::{Ca, Leaf},
};

/// Answers by path: what it saw of the peer, an echo after an upgrade, a panic, or slowly.
struct Echo {
    streams: TaskTracker,
    entered: Arc<Notify>,
    leave: Arc<Notify>,
}

#[async_trait]
impl Handler for Echo {
    async fn answer(&self, mut request: Request<Body>, peer: &Peer) -> Response<Body> {
        match request.uri().path() {
            "/panic" => panic!("on request"),
            "/slow" => {
                self.entered.notify_one();
                self.leave.notified().await;
                respond::text(StatusCode::OK, "late")
            }
            "/echo" => {
                let upgrade = hyper::upgrade::on(&mut request);
                self.streams.spawn(async move {
                    let mut io = TokioIo::new(upgrade.await.unwrap());
                    let mut bytes = [0; 64];
                    while let Ok(n @ 1..) = io.read(&mut bytes).await {
                        io.write_all(&bytes[..n]).await.unwrap();
                    }
                });
                let mut response = Response::new(full(""));
                *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                let headers = response.headers_mut();
                headers.insert("connection", "Upgrade".parse().unwrap());
                headers.insert("upgrade", "echo".parse().unwrap());
                response
            }
            _ => {
                let groups = request.headers().get_all("x-remote-group").iter().count();
                let (version, certificates) = (request.version(), peer.certificates.len());
                let text = format!("{version:?} {certificates} certificates {groups} groups");
                respond::text(StatusCode::OK, text)
            }
        }
    }
}

struct Server {
    ca: Ca,
    address: std::net::SocketAddr,
    certificate: watch::Sender<Option<Arc<rustls::sign::CertifiedKey>>>,
    stop: CancellationToken,
    entered: Arc<Notify>,
    leave: Arc<Notify>,
    done: JoinHandle<()>,
}

fn pair(leaf: &Leaf) -> Option<Arc<rustls::sign::CertifiedKey>> {
    let pair = certified_key(leaf.cert_pem.as_bytes(), leaf.key_pem.as_bytes()).unwrap();
    Some(Arc::new(pair))
}

impl Server {
    async fn start() -> Self {
        let ca = Ca::new("serving");
        let (certificate, current) = watch::channel(pair(&ca.server()));
        let (entered, leave) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let streams = TaskTracker::new();
        let handler = Echo {
            streams: streams.clone(),
            entered: entered.clone(),
            leave: leave.clone(),
        };
        let tcp = bind("127.0.0.1".parse().unwrap(), 0).await.unwrap();
        let address = tcp.local_addr().unwrap();
        let listener = Listener::new(tcp, &current, Arc::new(handler)).unwrap();
        let stop = CancellationToken::new();
        let shutdown = Shutdown {
            stop: stop.clone(),
            grace: Duration::from_secs(20),
            streams,
        };
        Self {
            ca,
            address,
            certificate,
            stop,
            entered,
            leave,
            done: tokio::spawn(listener.run(shutdown)),
        }
    }

    async fn connect(&self, alpn: &str, client: Option<&Leaf>) -> TlsStream<TcpStream> {
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_slice(self.ca.pem().as_bytes()).unwrap();
        roots.add(ca).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match client {
            None => builder.with_no_client_auth(),
            Some(leaf) => {
                let key = PrivateKeyDer::from_pem_slice(leaf.key_pem.as_bytes()).unwrap();
                builder
                    .with_client_auth_cert(vec![leaf.der.clone()], key)
                    .unwrap()
            }
        };
        config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
        let tcp = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config))
            .connect(name, tcp)
            .await
            .unwrap()
    }

    /// Writes bytes and reads until the server closes.
    async fn raw(&self, request: &str, client: Option<&Leaf>) -> String {
        let mut tls = self.connect("http/1.1", client).await;
        tls.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // A server that closes without close_notify still sent what it had to say.
        let _ = tls.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    }

    async fn end(self) {
        self.stop.cancel();
        tokio::time::timeout(Duration::from_secs(10), self.done)
            .await
            .unwrap()
            .unwrap();
    }
}

fn get(path: &str, headers: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n")
}

#[tokio::test]
async fn http2_and_http1_share_a_port() {
    let server = Server::start().await;
    assert!(
        server
            .raw(&get("/", ""), None)
            .await
            .ends_with("HTTP/1.1 0 certificates 0 groups")
    );
    let tls = server.connect("h2", None).await;
    assert_eq!(tls.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (mut send, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(tls))
            .await
            .unwrap();
    tokio::spawn(connection);
    let mut request = Request::get("https://localhost/")
        .body(Empty::<bytes::Bytes>::new())
        .unwrap();
    for n in 0..1_000 {
        let group = format!("group-{n}-with-a-name-of-some-length")
            .parse()
            .unwrap();
        request.headers_mut().append("x-remote-group", group);
    }
    let body = send
        .send_request(request)
        .await
        .unwrap()
        .collect()
        .await
        .unwrap()
        .to_bytes();
    assert_eq!(body, "HTTP/2.0 0 certificates 1000 groups");
    drop(send);
    server.end().await;
}

#[tokio::test]
async fn any_client_certificate_is_recorded_and_none_is_judged() {
    let server = Server::start().await;
    let stranger = Ca::new("nobody knows").client("stranger");
    let answer = server.raw(&get("/", ""), Some(&stranger)).await;
    assert!(answer.ends_with("1 certificates 0 groups"), "{answer}");
    server.end().await;
}

#[tokio::test]
async fn a_thousand_groups_fit_and_too_many_headers_are_a_status() {
    let server = Server::start().await;
    let lines = |n: usize| "X-Remote-Group: a-group-with-a-name\r\n".repeat(n);
    let answer = server.raw(&get("/", &lines(1_000)), None).await;
    assert!(answer.ends_with("1000 groups"), "{answer}");
    let long = format!(
        "X-Remote-User: {}\r\n",
        "x".repeat(limits::MAX_HEADER_BYTES)
    );
    for headers in [lines(limits::MAX_HEADERS), long] {
        let answer = server.raw(&get("/", &headers), None).await;
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
        assert!(answer.contains(r#""kind":"Status""#), "{answer}");
    }
    server.end().await;
}

#[tokio::test]
async fn an_upgrade_passes_bytes_both_ways_and_shutdown_waits_for_it() {
    let server = Server::start().await;
    let mut tls = server.connect("http/1.1", None).await;
    let head = "GET /echo HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";
    tls.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(tls.read_u8().await.unwrap());
    }
    assert!(answer.starts_with(b"HTTP/1.1 101 "));
    server.stop.cancel();
    tls.write_all(b"ping").await.unwrap();
    let mut echo = [0; 4];
    tls.read_exact(&mut echo).await.unwrap();
    assert_eq!(&echo, b"ping");
    assert!(!server.done.is_finished());
    tls.shutdown().await.unwrap();
    server.end().await;
}

#[tokio::test]
async fn a_panic_ends_one_request_only() {
    let server = Server::start().await;
    let answer = server.raw(&get("/panic", ""), None).await;
    assert!(
        answer.starts_with("HTTP/1.1 500 ") && answer.contains(r#""kind":"Status""#),
        "{answer}"
    );
    assert!(
        server
            .raw(&get("/", ""), None)
            .await
            .starts_with("HTTP/1.1 200 ")
    );
    server.end().await;
}

#[tokio::test]
async fn shutdown_lets_requests_finish_and_takes_no_new_ones() {
    let server = Server::start().await;
    let mut idle = server.connect("http/1.1", None).await;
    let mut busy = server.connect("http/1.1", None).await;
    busy.write_all(get("/slow", "").as_bytes()).await.unwrap();
    server.entered.notified().await;
    server.stop.cancel();
    let mut nothing = Vec::new();
    let _ = idle.read_to_end(&mut nothing).await;
    assert!(nothing.is_empty(), "the idle connection just ends");
    assert!(
        TcpStream::connect(server.address).await.is_err(),
        "nobody listens any more"
    );
    server.leave.notify_one();
    let mut answer = Vec::new();
    let _ = busy.read_to_end(&mut answer).await;
    assert!(answer.ends_with(b"late"));
    server.end().await;
}

#[tokio::test]
async fn the_next_handshake_shows_the_new_certificate() {
    let server = Server::start().await;
    let shown = |tls: TlsStream<TcpStream>| {
        tls.get_ref().1.peer_certificates().unwrap()[0]
            .clone()
            .into_owned()
    };
    let first = shown(server.connect("http/1.1", None).await);
    let next = server.ca.server();
    server.certificate.send_replace(pair(&next));
    let second = shown(server.connect("http/1.1", None).await);
    assert_ne!(first, second);
    assert_eq!(second, next.der);
    server.end().await;
}

#[tokio::test]
async fn a_swapped_symlink_is_noticed_and_a_broken_pair_is_left_aside() {
    let (ca, dir) = (Ca::new("files"), tempfile::tempdir().unwrap());
    let write = |name: &str, leaf: &Leaf, key: &str| {
        let at = dir.path().join(name);
        std::fs::create_dir(&at).unwrap();
        std::fs::write(at.join("tls.crt"), &leaf.cert_pem).unwrap();
        std::fs::write(at.join("tls.key"), key).unwrap();
        let (new, link) = (dir.path().join("..new"), dir.path().join("..data"));
        std::os::unix::fs::symlink(name, &new).unwrap();
        std::fs::rename(new, link).unwrap();
    };
    let [one, two, three] = [ca.server(), ca.server(), ca.server()];
    write("1", &one, &one.key_pem);
    for file in ["tls.crt", "tls.key"] {
        let target = std::path::Path::new("..data").join(file);
        std::os::unix::fs::symlink(target, dir.path().join(file)).unwrap();
    }
    let [cert, key] = ["tls.crt", "tls.key"].map(|f| dir.path().join(f));
    let source = Arc::new(FileCertificate::load(cert, key).unwrap());
    let mut current = source.subscribe();
    let stop = CancellationToken::new();
    let follow = tokio::spawn(source.follow(stop.clone()));
    write("2", &two, &one.key_pem);
    write("3", &three, &three.key_pem);
    let seen = tokio::time::timeout(Duration::from_secs(10), current.changed());
    seen.await.unwrap().unwrap();
    let shown = current.borrow().as_ref().unwrap().cert[0].clone();
    assert_eq!(shown, three.der);
    stop.cancel();
    follow.await.unwrap();
}

#[test]
fn a_key_of_another_certificate_is_refused() {
    let ca = Ca::new("ca");
    let (one, two) = (ca.server(), ca.server());
    let error = certified_key(one.cert_pem.as_bytes(), two.key_pem.as_bytes()).unwrap_err();
    assert!(matches!(error, CertificateError::Mismatch(_)), "{error}");
    let error = certified_key(b"", two.key_pem.as_bytes()).unwrap_err();
    assert!(matches!(error, CertificateError::Empty), "{error}");
}

#[test]
fn a_certificate_serves_in_its_time_only() {
    let ca = Ca::new("ca");
    let leaf = ca.issue(|params| {
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    });
    let (publish, current) = watch::channel(None);
    let at = |year| {
        let now = rcgen::date_time_ymd(year, 1, 1).unix_timestamp();
        check_current(&current, now)
    };
    assert!(at(2020).unwrap_err().contains("no serving certificate"));
    publish.send_replace(pair(&leaf));
    assert_eq!(at(2020), Ok(()));
    assert!(
        at(2019)
            .unwrap_err()
            .contains("not valid before 2020-01-01")
    );
    assert!(at(2022).unwrap_err().contains("expired at 2021-01-01"));
    publish.send_replace(pair(&ca.server()));
    assert_eq!(at(2022), Ok(()), "a new one makes it ready again");
}
