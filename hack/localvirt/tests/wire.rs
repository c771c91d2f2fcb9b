//! What a client sees on the wire. The cluster and the launchers are doubles: a map of objects, and a launcher of a few
//! lines that keeps one session per kind; the server, its TLS, and the client's bytes are real.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "clippy knows only functions with #[test] as tests, not their helpers"
)]

mod support;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use k8s_openapi::api::{authorization::v1::SubjectAccessReviewSpec, core::v1::ConfigMap};
use kube::core::DynamicObject;
use localvirt::{
    api::{Instance, Machine, vm_resource, vmi_resource},
    checker::Checker,
    dial::{Answer, DialError, Launchers, Target, Way},
    faults::{ANNOTATION, Faults},
    guestless::Guestless,
    launcher::protocol::{Refusal, Reply, Request},
    pki::{Authority, Leaf, Usage},
    server::{
        cluster::{Cluster, Place, Verdict},
        handler::{App, Nudge},
        listener,
        reply::{Failure, Kind},
        route::Named,
        trust::{FrontProxy, Trust},
    },
    tls,
};
use serde_json::{Value, json};
use support::Wire;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
    net::TcpListener,
    sync::mpsc,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

const BASE: &str = "/apis/subresources.kubevirt.io/v1/namespaces/ns";
const NAME: &str = "localvirt.test.svc";

/// Objects by name, and the patches made to them.
#[derive(Default)]
struct Objects {
    machines: HashMap<String, Machine>,
    instances: HashMap<String, Instance>,
    patches: Mutex<Vec<(Place, Value)>>,
    migrations: Mutex<Vec<(String, Value)>>,
    reviews: Mutex<Vec<SubjectAccessReviewSpec>>,
}

#[async_trait]
impl Cluster for Objects {
    async fn machine(&self, object: &Named) -> Result<Machine, Failure> {
        let missing = Failure::NotFound {
            kind: Kind::Machine,
            name: object.name.clone(),
        };
        self.machines.get(&object.name).cloned().ok_or(missing)
    }

    async fn instance(&self, object: &Named) -> Result<Instance, Failure> {
        let missing = Failure::NotFound {
            kind: Kind::Instance,
            name: object.name.clone(),
        };
        self.instances.get(&object.name).cloned().ok_or(missing)
    }

    async fn launcher(&self, vmi: &Instance) -> Result<Target, Failure> {
        Ok(Target {
            way: Way::Pod("127.0.0.1".parse().unwrap()),
            vmi_uid: vmi.uid().to_owned(),
        })
    }

    async fn patch(&self, _: &Named, place: Place, operations: Value) -> Result<(), Failure> {
        self.patches.lock().unwrap().push((place, operations));
        Ok(())
    }

    async fn migrate(&self, object: &Named, selector: &Value) -> Result<(), Failure> {
        let asked = (object.name.clone(), selector.clone());
        self.migrations.lock().unwrap().push(asked);
        Ok(())
    }

    /// `jane` may, with a reason for all others.
    async fn review(&self, spec: SubjectAccessReviewSpec) -> Result<Verdict, Failure> {
        let allowed = spec.user.as_deref() == Some("jane");
        self.reviews.lock().unwrap().push(spec);
        Ok(Verdict {
            allowed,
            reason: "because".into(),
        })
    }
}

/// A launcher that hands out the guest's end of each session, and cuts a session before the next of its kind.
struct OneSession {
    sessions: mpsc::UnboundedSender<DuplexStream>,
    cut: Mutex<HashMap<bool, CancellationToken>>,
    asked: Mutex<Vec<Request>>,
}

#[async_trait]
impl Launchers for OneSession {
    async fn ask(&self, _: &Target, request: &Request) -> Result<Answer, DialError> {
        self.asked.lock().unwrap().push(request.clone());
        let (near, far) = duplex(1 << 20);
        if *request == Request::Screendump {
            let picture = b"a picture";
            let length = picture.len() as u64;
            let (near, mut far) = duplex(64);
            far.write_all(picture).await.unwrap();
            return Ok(Answer {
                reply: Reply::Image { length },
                stream: Box::new(near),
            });
        }
        let is_vnc = matches!(request, Request::Vnc { .. });
        if !is_vnc && *request != Request::Console {
            return Ok(Answer {
                reply: Reply::Done,
                stream: Box::new(near),
            });
        }
        let mine = CancellationToken::new();
        let old = self.cut.lock().unwrap().insert(is_vnc, mine.clone());
        match (old, request) {
            (
                Some(old),
                Request::Vnc {
                    preserve_session: true,
                },
            ) => {
                self.cut.lock().unwrap().insert(true, old);
                let reply = Reply::Refused {
                    refusal: Refusal::ActiveVnc,
                    message: "busy".into(),
                };
                return Ok(Answer {
                    reply,
                    stream: Box::new(near),
                });
            }
            (Some(old), _) => old.cancel(),
            (None, _) => {}
        }
        let (mut guest, outside) = duplex(1 << 20);
        let mut far = far;
        tokio::spawn(async move {
            tokio::select! {
                () = mine.cancelled() => {}
                _ = tokio::io::copy_bidirectional(&mut far, &mut guest) => {}
            }
        });
        self.sessions.send(outside).unwrap();
        Ok(Answer {
            reply: Reply::Stream,
            stream: Box::new(near),
        })
    }
}

struct Nobody;

impl Nudge for Nobody {
    fn nudge(&self) {}
}

struct Server {
    address: String,
    objects: Arc<Objects>,
    launchers: Arc<OneSession>,
    sessions: tokio::sync::Mutex<mpsc::UnboundedReceiver<DuplexStream>>,
    authority: Authority,
    proxy: Leaf,
    app: Arc<App>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.app.shutdown.cancel();
    }
}

impl Server {
    async fn start(objects: Objects) -> Self {
        let authority = Authority::generate().unwrap();
        let front = Authority::generate().unwrap();
        let proxy = front
            .issue(&["front-proxy-client".into()], &[], Usage::Client)
            .unwrap();
        let front_proxy = Arc::new(FrontProxy::default());
        let map = json!({"data": {"requestheader-client-ca-file": front.certificate_pem(), "requestheader-allowed-names": "[\"front-proxy-client\"]"}});
        front_proxy.set(Trust::read(&serde_json::from_value::<ConfigMap>(map).unwrap()).unwrap());
        let serving = authority.issue(&[NAME.into()], &[], Usage::Server).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(
            tls::server(&serving, front_proxy.clone()).unwrap(),
        ));
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap().to_string();
        let (sender, sessions) = mpsc::unbounded_channel();
        let objects = Arc::new(objects);
        let launchers = Arc::new(OneSession {
            sessions: sender,
            cut: Mutex::default(),
            asked: Mutex::default(),
        });
        let app = Arc::new(App {
            cluster: objects.clone(),
            launchers: launchers.clone(),
            front_proxy,
            nudge: Arc::new(Nobody),
            guestless: Guestless::default(),
            checker: Checker::default(),
            faults: Faults::default(),
            tasks: TaskTracker::new(),
            shutdown: CancellationToken::new(),
        });
        tokio::spawn(listener::serve(app.clone(), socket, acceptor));
        Self {
            address,
            objects,
            launchers,
            sessions: tokio::sync::Mutex::new(sessions),
            authority,
            proxy,
            app,
        }
    }

    /// A connection with the front proxy's certificate, or without any.
    async fn wire(&self, with_certificate: bool) -> Wire {
        let leaf = with_certificate.then_some(&self.proxy);
        let tls = tls::client(self.authority.certificate_pem(), leaf).unwrap();
        Wire::connect(&self.address, NAME, tls).await
    }

    async fn get(&self, path: &str) -> support::Response {
        self.send("GET", path, "").await
    }

    async fn send(&self, method: &str, path: &str, body: &str) -> support::Response {
        self.wire(true)
            .await
            .request(method, path, &JANE, body)
            .await
    }

    /// An open stream, and the guest's end of it.
    async fn open(&self, path: &str) -> (Wire, DuplexStream) {
        let mut wire = self.wire(true).await;
        let headers = [
            JANE[0],
            JANE[1],
            ("Sec-WebSocket-Protocol", "plain.kubevirt.io"),
        ];
        let response = wire.upgrade(path, &headers).await;
        assert_eq!(response.code, 101, "{response:?}");
        let guest = self.sessions.lock().await.recv().await.unwrap();
        (wire, guest)
    }
}

const JANE: [(&str, &str); 2] = [("X-Remote-User", "jane"), ("X-Remote-Group", "people")];

fn instance(name: &str, status: Value) -> (String, Instance) {
    let spec = json!({"domain": {"features": {"acpi": {}}}});
    let mut object =
        DynamicObject::new(name, &vmi_resource()).data(json!({"spec": spec, "status": status}));
    object.metadata.namespace = Some("ns".into());
    object.metadata.uid = Some(format!("uid-of-{name}"));
    (name.to_owned(), Instance::read(&object).unwrap())
}

fn machine(name: &str, strategy: &str) -> (String, Machine) {
    let data = json!({"spec": {"runStrategy": strategy, "template": {"spec": {}}}});
    let object = DynamicObject::new(name, &vm_resource()).data(data);
    (name.to_owned(), Machine::read(&object).unwrap())
}

async fn with_demo() -> Server {
    let paused = json!({"phase": "Running", "conditions": [{"type": "Paused", "status": "True"}]});
    Server::start(Objects {
        instances: HashMap::from([
            instance("demo", json!({"phase": "Running"})),
            instance("off", json!({"phase": "Scheduled"})),
            instance("paused", paused),
        ]),
        machines: HashMap::from([machine("halted", "Halted"), machine("demo", "Always")]),
        ..Objects::default()
    })
    .await
}

#[tokio::test]
async fn who_is_not_the_front_proxy_or_not_allowed_is_told_401_in_text() {
    let server = with_demo().await;
    let path = format!("{BASE}/virtualmachineinstances/demo/console");
    let forged = server
        .wire(false)
        .await
        .request("GET", &path, &JANE, "")
        .await;
    assert_eq!(
        (forged.code, forged.body.as_str()),
        (401, "request is not authenticated")
    );
    let nobody = [("X-Remote-User", "joe"), ("X-Remote-Group", "people")];
    let denied = server
        .wire(true)
        .await
        .request("GET", &path, &nobody, "")
        .await;
    assert_eq!((denied.code, denied.body.as_str()), (401, "because"));
    assert!(
        denied
            .header("content-type")
            .unwrap()
            .starts_with("text/plain")
    );
    let reviews = server.objects.reviews.lock().unwrap();
    let asked = reviews[0].resource_attributes.clone().unwrap();
    assert_eq!(
        (asked.verb.as_deref(), asked.subresource.as_deref()),
        (Some("get"), Some("console"))
    );
    assert!(
        server.launchers.asked.lock().unwrap().is_empty(),
        "nobody was dialled"
    );
}

#[tokio::test]
async fn discovery_and_health_need_nobody() {
    let server = with_demo().await;
    for path in [
        "/apis",
        "/apis/subresources.kubevirt.io/v1",
        "/openapi/v2",
        "/openapi/v3",
        "/healthz",
        "/version",
    ] {
        let response = server.wire(false).await.request("GET", path, &[], "").await;
        assert_eq!(response.code, 200, "{path}");
    }
    assert_eq!(server.get("/livez").await.code, 401);
}

#[tokio::test]
async fn errors_have_kubevirts_shapes() {
    let server = with_demo().await;
    let missing = server
        .get(&format!("{BASE}/virtualmachineinstances/nope/console"))
        .await;
    assert_eq!(missing.code, 404);
    assert_eq!(
        missing.header("content-type").as_deref(),
        Some("application/json")
    );
    assert_eq!(
        missing.header("x-content-type-options").as_deref(),
        Some("nosniff")
    );
    assert!(
        missing.body.contains(
            "\n \"message\": \"virtualmachineinstance.kubevirt.io \\\"nope\\\" not found\""
        ),
        "{}",
        missing.body
    );
    let off = server
        .get(&format!("{BASE}/virtualmachineinstances/off/console"))
        .await;
    assert_eq!(off.code, 400);
    assert!(off.body.contains("VMI is not running"));
    let picture = server
        .get(&format!(
            "{BASE}/virtualmachineinstances/nope/vnc/screenshot"
        ))
        .await;
    assert_eq!(
        (picture.code, picture.body.as_str()),
        (500, "virtualmachineinstance.kubevirt.io \"nope\" not found")
    );
    let unknown = server
        .get(&format!("{BASE}/virtualmachines/demo/console"))
        .await;
    assert_eq!(
        (unknown.code, unknown.body.as_str()),
        (404, "404: Page Not Found")
    );
    let method = server
        .send("POST", &format!("{BASE}/virtualmachines/halted/start"), "")
        .await;
    assert_eq!(
        (method.code, method.body.as_str()),
        (405, "405: Method Not Allowed")
    );
}

#[tokio::test]
async fn a_console_carries_bytes_in_binary_frames() {
    let server = with_demo().await;
    let (mut wire, mut guest) = server
        .open(&format!("{BASE}/virtualmachineinstances/demo/console"))
        .await;
    guest.write_all(b"login: ").await.unwrap();
    let frame = wire.frame().await.unwrap();
    assert_eq!(
        (frame.fin, frame.opcode, frame.payload.as_slice()),
        (true, 2, b"login: ".as_slice())
    );
    wire.send(1, b"text is ignored").await;
    wire.send(2, b"root\r").await;
    let mut typed = [0; 5];
    guest.read_exact(&mut typed).await.unwrap();
    assert_eq!(&typed, b"root\r");
    wire.send(9, b"are you there").await;
    let pong = wire.frame().await.unwrap();
    assert_eq!(
        (pong.opcode, pong.payload.as_slice()),
        (10, b"are you there".as_slice())
    );
}

#[tokio::test]
async fn a_subprotocol_is_answered_only_if_it_is_kubevirts() {
    let server = with_demo().await;
    let path = format!("{BASE}/virtualmachineinstances/demo/vnc");
    for (offered, chosen) in [
        ("binary, plain.kubevirt.io", Some("plain.kubevirt.io")),
        ("binary", None),
    ] {
        let mut wire = server.wire(true).await;
        let headers = [
            JANE[0],
            JANE[1],
            ("Sec-WebSocket-Protocol", offered),
            ("Origin", "https://evil.example"),
        ];
        let response = wire.upgrade(&path, &headers).await;
        assert_eq!(response.code, 101);
        assert_eq!(
            response.header("sec-websocket-protocol").as_deref(),
            chosen,
            "{offered}"
        );
    }
}

#[tokio::test]
async fn the_guests_end_cuts_the_client_without_a_close_frame() {
    let server = with_demo().await;
    let (mut wire, mut guest) = server
        .open(&format!("{BASE}/virtualmachineinstances/demo/console"))
        .await;
    guest.write_all(b"bye").await.unwrap();
    assert_eq!(wire.read(3).await, b"bye");
    drop(guest);
    assert_eq!(wire.frame().await, None);
}

#[tokio::test]
async fn a_close_frame_of_the_client_is_echoed() {
    let server = with_demo().await;
    let (mut wire, mut guest) = server
        .open(&format!("{BASE}/virtualmachineinstances/demo/console"))
        .await;
    wire.send(8, &[0x03, 0xe8]).await;
    let echo = wire.frame().await.unwrap();
    assert_eq!(
        (echo.opcode, echo.payload.as_slice()),
        (8, [0x03, 0xe8].as_slice())
    );
    assert_eq!(wire.frame().await, None);
    assert_eq!(
        guest.read(&mut [0; 1]).await.unwrap(),
        0,
        "the guest's side ended"
    );
}

#[tokio::test]
async fn the_last_console_wins_and_the_one_before_is_cut() {
    let server = with_demo().await;
    let path = format!("{BASE}/virtualmachineinstances/demo/console");
    let (mut first, _first_guest) = server.open(&path).await;
    let (mut second, mut guest) = server.open(&path).await;
    assert_eq!(first.frame().await, None, "no close frame");
    guest.write_all(b"yours").await.unwrap();
    assert_eq!(second.read(5).await, b"yours");
}

#[tokio::test]
async fn a_plain_get_cuts_the_session_and_is_refused_afterwards() {
    let server = with_demo().await;
    let path = format!("{BASE}/virtualmachineinstances/demo/console");
    let (mut first, _guest) = server.open(&path).await;
    let plain = server.get(&path).await;
    assert_eq!(plain.code, 400);
    assert!(
        plain
            .header("content-type")
            .unwrap()
            .starts_with("text/plain")
    );
    assert!(
        plain.body.starts_with("Bad Request\n{\n \""),
        "{}",
        plain.body
    );
    assert!(
        plain
            .body
            .contains("'upgrade' token not found in 'Connection' header")
    );
    assert_eq!(first.frame().await, None);
}

#[tokio::test]
async fn a_display_that_is_to_be_preserved_is_not_taken() {
    let server = with_demo().await;
    let path = format!("{BASE}/virtualmachineinstances/demo/vnc");
    let (mut first, mut guest) = server.open(&path).await;
    let mut wire = server.wire(true).await;
    let second = wire
        .upgrade(&format!("{path}?preserveSession=true"), &JANE)
        .await;
    assert_eq!(second.code, 500);
    assert!(
        second
            .body
            .contains("Active VNC connection. Request denied."),
        "{}",
        second.body
    );
    guest.write_all(b"RFB 003.008\n").await.unwrap();
    assert_eq!(first.read(12).await, b"RFB 003.008\n");
    server.open(&path).await;
    assert_eq!(first.frame().await, None);
}

#[tokio::test]
async fn long_reads_are_cut_into_frames_as_gorilla_cuts_them() {
    let server = with_demo().await;
    let (mut wire, mut guest) = server
        .open(&format!("{BASE}/virtualmachineinstances/demo/vnc"))
        .await;
    let picture: Vec<u8> = (0..100_000_u32)
        .map(|n| u8::try_from(n % 251).unwrap())
        .collect();
    guest.write_all(&picture).await.unwrap();
    let (mut seen, mut open) = (Vec::new(), false);
    while seen.len() < picture.len() || open {
        let frame = wire.frame().await.unwrap();
        assert_eq!(
            frame.opcode,
            if open { 0 } else { 2 },
            "continuations continue"
        );
        assert!(frame.payload.len() <= 32 << 10);
        open = !frame.fin;
        seen.extend(frame.payload);
    }
    assert_eq!(seen, picture);
}

#[tokio::test]
async fn a_port_is_dialled_first_and_pinged_every_second() {
    let echo = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = echo.local_addr().unwrap().port();
    let address = json!({"phase": "Running", "interfaces": [{"ipAddress": "127.0.0.1"}]});
    let server = Server::start(Objects {
        instances: HashMap::from([
            instance("demo", address),
            instance("none", json!({"phase": "Running"})),
        ]),
        ..Objects::default()
    })
    .await;
    let none = server
        .get(&format!(
            "{BASE}/virtualmachineinstances/none/portforward/22"
        ))
        .await;
    assert_eq!(none.code, 400);
    assert!(none.body.contains("no network interfaces are present"));
    let sctp = server
        .get(&format!(
            "{BASE}/virtualmachineinstances/demo/portforward/{port}/sctp"
        ))
        .await;
    assert_eq!(sctp.code, 500);
    assert!(
        sctp.body
            .contains("dialing VM: dial sctp: unknown network sctp")
    );
    let mut wire = server.wire(true).await;
    let path = format!("{BASE}/virtualmachineinstances/demo/portforward/{port}/tcp");
    assert_eq!(wire.upgrade(&path, &JANE).await.code, 101);
    let (mut guest, _) = echo.accept().await.unwrap();
    wire.send(2, b"SSH-2.0-").await;
    let mut hello = [0; 8];
    guest.read_exact(&mut hello).await.unwrap();
    assert_eq!(&hello, b"SSH-2.0-");
    let ping = wire.frame().await.unwrap();
    assert_eq!(
        (ping.opcode, ping.payload.as_slice()),
        (9, b"keep alive".as_slice())
    );
    drop(guest);
    loop {
        match wire.frame().await {
            Some(frame) => assert_eq!(frame.opcode, 9, "no close frame: {frame:?}"),
            None => return,
        }
    }
}

#[tokio::test]
async fn puts_answer_with_kubevirts_codes_and_no_body() {
    let server = with_demo().await;
    let start = server
        .send("PUT", &format!("{BASE}/virtualmachines/halted/start"), "")
        .await;
    assert_eq!((start.code, start.body.as_str()), (202, ""));
    let patches = server.objects.patches.lock().unwrap().clone();
    assert_eq!(patches.len(), 1);
    assert_eq!(patches[0].1[1]["value"], "Always");
    let dry = server
        .send(
            "PUT",
            &format!("{BASE}/virtualmachines/halted/start"),
            r#"{"dryRun":["All"]}"#,
        )
        .await;
    assert_eq!(dry.code, 202);
    assert_eq!(
        server.objects.patches.lock().unwrap().len(),
        1,
        "nothing was done"
    );
    let running = server
        .send("PUT", &format!("{BASE}/virtualmachines/demo/start"), "")
        .await;
    assert_eq!(running.code, 409);
    assert!(running.body.contains("VM is already running"));
    let pause = server
        .send(
            "PUT",
            &format!("{BASE}/virtualmachineinstances/demo/pause"),
            "",
        )
        .await;
    assert_eq!((pause.code, pause.body.as_str()), (200, ""));
    let again = server
        .send(
            "PUT",
            &format!("{BASE}/virtualmachineinstances/paused/pause"),
            "",
        )
        .await;
    assert_eq!(again.code, 409);
    assert!(again.body.contains("VMI is already paused"));
    let garbage = server
        .send(
            "PUT",
            &format!("{BASE}/virtualmachines/halted/start"),
            "[[[",
        )
        .await;
    assert_eq!(garbage.code, 400);
    assert!(
        garbage
            .body
            .contains("Can not unmarshal Request body to struct, error: ")
    );
}

fn with_faults(plan: &str) -> (String, Instance) {
    let (name, mut instance) = instance("demo", json!({"phase": "Running", "nodeName": "node1"}));
    instance.meta.annotations = Some([(ANNOTATION.to_owned(), plan.to_owned())].into());
    (name, instance)
}

async fn with_plan(plan: &str) -> Server {
    Server::start(Objects {
        instances: HashMap::from([with_faults(plan)]),
        ..Objects::default()
    })
    .await
}

const CONSOLE: &str =
    "/apis/subresources.kubevirt.io/v1/namespaces/ns/virtualmachineinstances/demo/console";

#[tokio::test]
async fn a_fault_refuses_new_streams_in_kubevirts_words() {
    let server = with_plan("console=refuse").await;
    let refused = server.wire(true).await.upgrade(CONSOLE, &JANE).await;
    assert_eq!(refused.code, 500);
    let text = "Internal error occurred: dial tcp node1:8186: connect: connection refused";
    assert!(refused.body.contains(text), "{}", refused.body);
    assert!(server.launchers.asked.lock().unwrap().is_empty());
    server
        .open(&format!("{BASE}/virtualmachineinstances/demo/vnc"))
        .await;
}

#[tokio::test]
async fn a_fault_closes_or_resets_an_open_stream() {
    for (fault, reset) in [("die", false), ("reset", true)] {
        let server = with_plan("").await;
        let (mut wire, _guest) = server.open(CONSOLE).await;
        let plan = format!("console={fault}").parse().unwrap();
        server.app.faults.publish("uid-of-demo", plan);
        let ended = wire.end().await;
        assert_eq!(
            ended == std::io::ErrorKind::ConnectionReset,
            reset,
            "{fault}: {ended:?}"
        );
    }
}

#[tokio::test]
async fn a_stalled_stream_answers_no_ping_until_the_fault_is_lifted() {
    let server = with_plan("console=stall").await;
    let (mut wire, mut guest) = server.open(CONSOLE).await;
    let limit = std::time::Duration::from_millis(100);
    guest.write_all(b"late").await.unwrap();
    wire.send(9, b"ping").await;
    assert!(tokio::time::timeout(limit, wire.frame()).await.is_err());
    server
        .app
        .faults
        .publish("uid-of-demo", "".parse().unwrap());
    let mut opcodes = [wire.frame().await.unwrap(), wire.frame().await.unwrap()].map(|f| f.opcode);
    opcodes.sort_unstable();
    assert_eq!(opcodes, [2, 10]);
}

#[tokio::test]
async fn the_checker_tells_a_second_holder_from_a_successor() {
    let server = with_demo().await;
    let console = format!("{BASE}/virtualmachineinstances/demo/console");
    let verdict = format!("{BASE}/localvirt/checker");
    for _ in 0..3 {
        let (mut wire, _guest) = server.open(&console).await;
        wire.send(8, &[0x03, 0xe8]).await;
        // Whoever has the answer may open the next: nothing of this one is left.
        assert_eq!(wire.frame().await.unwrap().opcode, 8);
        assert_eq!(
            server.app.checker.report(None)["modes"]["console"]["live"],
            0
        );
    }
    let report: Value = serde_json::from_str(&server.get(&verdict).await.body).unwrap();
    assert_eq!(
        (&report["verdict"], &report["namespace"]),
        (&json!("pass"), &json!("ns"))
    );
    assert_eq!(report["modes"]["console"]["accepted"], 3);

    let _first = server.open(&console).await;
    let _second = server.open(&console).await;
    let report: Value = serde_json::from_str(&server.get(&verdict).await.body).unwrap();
    assert_eq!(report["verdict"], "fail");
    assert_eq!(report["recent"][0]["name"], "demo");
    let reviews = server.objects.reviews.lock().unwrap().clone();
    let asked = reviews.last().unwrap().resource_attributes.clone().unwrap();
    assert_eq!(
        (asked.resource.as_deref(), asked.name.as_deref()),
        (Some("localvirt"), Some("checker"))
    );
    let anew = server.send("DELETE", &verdict, "").await;
    assert_eq!(anew.code, 200);
    assert!(anew.body.contains("\"verdict\": \"pass\""), "{}", anew.body);
}

#[tokio::test]
async fn a_preserving_display_never_fails_the_checker() {
    let server = with_demo().await;
    let path = format!("{BASE}/virtualmachineinstances/demo/vnc?preserveSession=true");
    let (_first, _guest) = server.open(&path).await;
    assert_eq!(
        server.wire(true).await.upgrade(&path, &JANE).await.code,
        500
    );
    let report = server.app.checker.report(Some("ns"));
    assert_eq!(report["verdict"], "pass");
    assert_eq!(report["modes"]["vnc"]["attempts"], 2);
    assert_eq!(report["modes"]["vnc"]["accepted"], 1);
}

#[tokio::test]
async fn facts_of_an_agent_that_is_not_there_are_500_in_text() {
    let server = with_demo().await;
    for facts in ["guestosinfo", "userlist", "filesystemlist"] {
        let path = format!("{BASE}/virtualmachineinstances/demo/{facts}");
        let answer = server.get(&path).await;
        assert_eq!(answer.code, 500, "{facts}");
        let text = "Operation cannot be fulfilled on virtualmachineinstance.kubevirt.io \"demo\": VMI does not have guest agent connected";
        assert_eq!(answer.body, text);
    }
}

#[tokio::test]
async fn a_migration_is_asked_for_by_an_object() {
    let server = with_demo().await;
    let path = format!("{BASE}/virtualmachines/demo/migrate");
    assert_eq!(
        server
            .send("PUT", &path, r#"{"dryRun":["All"]}"#)
            .await
            .code,
        202
    );
    assert!(server.objects.migrations.lock().unwrap().is_empty());
    let selected = r#"{"addedNodeSelector":{"zone":"a"}}"#;
    assert_eq!(server.send("PUT", &path, selected).await.code, 202);
    let asked = server.objects.migrations.lock().unwrap().clone();
    assert_eq!(asked, [("demo".to_owned(), json!({"zone": "a"}))]);
}

#[tokio::test]
async fn a_picture_ignores_whether_the_cursor_is_moved() {
    let server = with_demo().await;
    for query in ["", "?moveCursor=true", "?moveCursor=false"] {
        let path = format!("{BASE}/virtualmachineinstances/demo/vnc/screenshot{query}");
        let picture = server.get(&path).await;
        assert_eq!(picture.code, 200, "{query}");
        assert_eq!(picture.header("content-type").as_deref(), Some("image/png"));
        assert_eq!(picture.body, "a picture");
    }
}
