//! A server over doubles: a map of objects, and a launcher that keeps one session per kind.

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
    faults::Faults,
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
use tokio::{
    io::{AsyncWriteExt as _, DuplexStream, duplex},
    net::TcpListener,
    sync::mpsc,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::support::{self, Wire};

pub(crate) const BASE: &str = "/apis/subresources.kubevirt.io/v1/namespaces/ns";
pub(crate) const NAME: &str = "localvirt.test.svc";

/// Objects by name, and the patches made to them.
#[derive(Default)]
pub(crate) struct Objects {
    pub(crate) machines: HashMap<String, Machine>,
    pub(crate) instances: HashMap<String, Instance>,
    pub(crate) patches: Mutex<Vec<(Place, Value)>>,
    pub(crate) migrations: Mutex<Vec<(String, Value)>>,
    pub(crate) reviews: Mutex<Vec<SubjectAccessReviewSpec>>,
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
pub(crate) struct OneSession {
    pub(crate) sessions: mpsc::UnboundedSender<DuplexStream>,
    pub(crate) cut: Mutex<HashMap<bool, CancellationToken>>,
    pub(crate) asked: Mutex<Vec<Request>>,
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

pub(crate) struct Nobody;

impl Nudge for Nobody {
    fn nudge(&self) {}
}

pub(crate) struct Server {
    pub(crate) address: String,
    pub(crate) objects: Arc<Objects>,
    pub(crate) launchers: Arc<OneSession>,
    pub(crate) sessions: tokio::sync::Mutex<mpsc::UnboundedReceiver<DuplexStream>>,
    pub(crate) authority: Authority,
    pub(crate) proxy: Leaf,
    pub(crate) app: Arc<App>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.app.shutdown.cancel();
    }
}

impl Server {
    pub(crate) async fn start(objects: Objects) -> Self {
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
    pub(crate) async fn wire(&self, with_certificate: bool) -> Wire {
        let leaf = with_certificate.then_some(&self.proxy);
        let tls = tls::client(self.authority.certificate_pem(), leaf).unwrap();
        Wire::connect(&self.address, NAME, tls).await
    }

    pub(crate) async fn get(&self, path: &str) -> support::Response {
        self.send("GET", path, "").await
    }

    pub(crate) async fn send(&self, method: &str, path: &str, body: &str) -> support::Response {
        self.wire(true)
            .await
            .request(method, path, &JANE, body)
            .await
    }

    /// An open stream, and the guest's end of it.
    pub(crate) async fn open(&self, path: &str) -> (Wire, DuplexStream) {
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

pub(crate) const JANE: [(&str, &str); 2] =
    [("X-Remote-User", "jane"), ("X-Remote-Group", "people")];

pub(crate) fn instance(name: &str, status: Value) -> (String, Instance) {
    let spec = json!({"domain": {"features": {"acpi": {}}}});
    let mut object =
        DynamicObject::new(name, &vmi_resource()).data(json!({"spec": spec, "status": status}));
    object.metadata.namespace = Some("ns".into());
    object.metadata.uid = Some(format!("uid-of-{name}"));
    (name.to_owned(), Instance::read(&object).unwrap())
}

pub(crate) fn machine(name: &str, strategy: &str) -> (String, Machine) {
    let data = json!({"spec": {"runStrategy": strategy, "template": {"spec": {}}}});
    let object = DynamicObject::new(name, &vm_resource()).data(data);
    (name.to_owned(), Machine::read(&object).unwrap())
}

pub(crate) async fn with_demo() -> Server {
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
