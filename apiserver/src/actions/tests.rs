//! Actions over a scripted cluster: what is asked of it, with what, and what is not.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use apiserver_generic::{
    ApiError, Attributes, Authorizer, Body, Call, Connect, Key, Object, Registry, Strategy,
    UserInfo,
    audit::Record,
    authn::Via,
    authz::{Decision, authorize},
    call::{ClientAddress, full},
    registry::{Parts, Writer},
    request::RequestInfo,
    storage::MemoryStorage,
};
use apiservice::resources::{ImageStrategy, WorkspaceStrategy};
use async_trait::async_trait;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

const VM: &str = "/apis/kubevirt.io/v1/namespaces/t1/virtualmachines/demo";
const VMI: &str = "/apis/kubevirt.io/v1/namespaces/t1/virtualmachineinstances/demo";
const SOFT: &str =
    "/apis/subresources.kubevirt.io/v1/namespaces/t1/virtualmachineinstances/demo/softreboot";
const HARD: &str =
    "/apis/subresources.kubevirt.io/v1/namespaces/t1/virtualmachineinstances/demo/reset";

struct Everybody;

#[async_trait]
impl Authorizer for Everybody {
    async fn decide(&self, _: &UserInfo, _: &Attributes) -> Result<Decision, ApiError> {
        Ok(Decision::Allow)
    }
}

/// A write that the cluster was asked for.
#[derive(Clone, Debug, PartialEq)]
struct Asked {
    method: String,
    path: String,
    body: Value,
}

#[derive(Clone, Default)]
struct Cluster {
    objects: Arc<Mutex<BTreeMap<String, Value>>>,
    asked: Arc<Mutex<Vec<Asked>>>,
    /// What writes are answered with, if not with success.
    refuse: Arc<Mutex<Option<(u16, Value)>>>,
}

impl Cluster {
    fn client(&self) -> kube::Client {
        let cluster = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let cluster = cluster.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await?.to_bytes();
                let (code, answer) = cluster.answer(&parts, &body);
                let response = Response::builder().status(code);
                let response = response.body(kube::client::Body::from(answer.into_bytes()));
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>(response?)
            }
        });
        kube::Client::new(service, "default")
    }

    fn answer(&self, parts: &http::request::Parts, body: &[u8]) -> (u16, String) {
        let path = parts.uri.path();
        if parts.method == "GET" {
            return match self.objects.lock().get(path) {
                Some(object) => (200, object.to_string()),
                None => (404, status(404, "not found").to_string()),
            };
        }
        self.asked.lock().push(Asked {
            method: parts.method.to_string(),
            path: path.to_owned(),
            body: serde_json::from_slice(body).unwrap_or_default(),
        });
        match self.refuse.lock().take() {
            Some((code, answer)) => (code, answer.to_string()),
            None if path.starts_with("/apis/subresources") => (202, String::new()),
            None => (
                200,
                json!({"kind": "Status", "status": "Success"}).to_string(),
            ),
        }
    }
}

fn status(code: u16, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": "", "code": code})
}

struct World {
    cluster: Cluster,
    workspaces: Registry,
    uid: String,
    handlers: BTreeMap<&'static str, Arc<dyn Connect>>,
    stop: CancellationToken,
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl World {
    /// A vm workspace `demo`, whose machine runs.
    async fn new() -> Self {
        let (cluster, stop, tasks) = (
            Cluster::default(),
            CancellationToken::new(),
            TaskTracker::new(),
        );
        let start = |strategy: Arc<dyn Strategy>| {
            let parts = Parts::new(strategy, Arc::new(MemoryStorage::default()));
            Registry::start(parts, &tasks, &stop)
        };
        let workspaces = start(Arc::new(WorkspaceStrategy::new()));
        let images = start(Arc::new(ImageStrategy::new()));
        let object = json!({"metadata": {"name": "demo", "namespace": "t1"}, "spec": {"type": "vm",
            "template": {"spec": {"containers": [{"name": "a", "image": "i:1"}]}}}});
        let object = Object::from_value(object).unwrap();
        let writer = Writer::server("test");
        let made = workspaces.create(&writer, Some("t1"), object);
        let uid = made.await.unwrap().object.uid().unwrap().to_owned();
        let handlers = super::handlers(&cluster.client(), &workspaces, &images);
        let world = Self {
            cluster,
            workspaces,
            uid,
            handlers: handlers.into_iter().collect(),
            stop,
        };
        world.machine(&world.uid, json!({"phase": "Running"}));
        world
    }

    /// The machine of a workspace of this UID, and its instance.
    fn machine(&self, workspace: &str, told: Value) {
        let owner = |api: &str, kind: &str, uid: &str| json!([{"apiVersion": api, "kind": kind, "name": "demo", "uid": uid, "controller": true}]);
        let vm = json!({"metadata": {"name": "demo", "uid": "vm-uid",
            "ownerReferences": owner("kubeworkspaces.io/v1alpha1", "Workspace", workspace)}});
        let vmi = json!({"metadata": {"name": "demo", "uid": "vmi-uid",
            "ownerReferences": owner("kubevirt.io/v1", "VirtualMachine", "vm-uid")}, "status": told});
        let mut objects = self.cluster.objects.lock();
        for (path, kind, mut object) in [
            (VM, "VirtualMachine", vm),
            (VMI, "VirtualMachineInstance", vmi),
        ] {
            object["apiVersion"] = json!("kubevirt.io/v1");
            object["kind"] = json!(kind);
            objects.insert(path.to_owned(), object);
        }
    }

    async fn post(&self, action: &str, query: &str, body: &str) -> (u16, Value) {
        let request = Request::post(format!("/{action}{query}"));
        let user = UserInfo {
            name: "jane".into(),
            ..UserInfo::default()
        };
        let authorizer = Arc::new(Everybody);
        let call = Call {
            authorized: authorize(&*authorizer, &user, Attributes::default())
                .await
                .unwrap(),
            info: RequestInfo {
                namespace: "t1".into(),
                name: "demo".into(),
                ..RequestInfo::default()
            },
            request: request.body(full(body.to_owned())).unwrap(),
            audit_id: "audit-1".into(),
            client: ClientAddress {
                peer: SocketAddr::from(([192, 0, 2, 7], 1)),
                forwarded_for: None,
                via: Via::Token,
            },
            authorizer,
            draining: CancellationToken::new(),
            streams: TaskTracker::new(),
            audit: Record::none(),
            stopwatch: apiserver_generic::stopwatch::Stopwatch::start(),
        };
        match self.handlers[action].connect(call).await {
            Ok(response) => read(response).await,
            Err(error) => (error.reason.code().as_u16(), error.to_status()),
        }
    }

    fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.cluster.asked.lock())
    }

    async fn stopped(&self) -> bool {
        let key = Key::namespaced("t1", "demo");
        let latest = apiserver_generic::cache::Freshness::Latest;
        let object = self.workspaces.get(&key, latest).await.unwrap();
        object.annotation(apiservice::v1alpha1::STOPPED).is_some()
    }
}

async fn read(response: Response<Body>) -> (u16, Value) {
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&body).unwrap_or_default())
}

fn put(path: &str) -> Asked {
    Asked {
        method: "PUT".into(),
        path: path.into(),
        body: json!({}),
    }
}

#[tokio::test]
async fn a_reboot_asks_kubevirt_and_says_how() {
    let world = World::new().await;
    let (code, told) = world.post("reboot", "", "").await;
    assert_eq!((code, &told["status"]), (200, &json!("Success")), "{told}");
    assert_eq!(told["details"]["uid"], world.uid.as_str());
    assert_eq!(world.asked(), [put(SOFT)]);
    let (code, _) = world.post("reboot", "", r#"{"force": true}"#).await;
    assert_eq!((code, world.asked()), (200, vec![put(HARD)]));
    for (query, body) in [("?dryRun=All", ""), ("", r#"{"dryRun": ["All"]}"#)] {
        let (code, _) = world.post("reboot", query, body).await;
        assert_eq!((code, world.asked()), (200, vec![]), "{query}{body}");
    }
}

#[tokio::test]
async fn kubevirts_refusal_is_told_in_its_words() {
    let world = World::new().await;
    *world.cluster.refuse.lock() = Some((409, status(409, "VMI neither has the agent connected")));
    let (code, told) = world.post("reboot", "", "").await;
    assert_eq!(code, 409);
    let message = told["message"].as_str().unwrap();
    assert!(
        message.contains("VMI neither has the agent connected"),
        "{message}"
    );
    *world.cluster.refuse.lock() = Some((403, status(403, "forbidden")));
    let (code, told) = world.post("reboot", "", "").await;
    assert_eq!(code, 500, "our own rights are not the caller's: {told}");
}

#[tokio::test]
async fn a_reset_deletes_the_instance_of_that_uid() {
    let world = World::new().await;
    let (code, told) = world.post("reset", "", "").await;
    assert_eq!(code, 200, "{told}");
    let asked = world.asked();
    assert_eq!(
        (asked[0].method.as_str(), asked[0].path.as_str()),
        ("DELETE", VMI)
    );
    assert_eq!(asked[0].body["preconditions"]["uid"], "vmi-uid");
    assert_eq!(asked[0].body.get("dryRun"), None);
    world.post("reset", "?dryRun=All", "").await;
    assert_eq!(world.asked()[0].body["dryRun"], json!(["All"]));

    *world.cluster.refuse.lock() = Some((409, status(409, "the UID in the precondition")));
    let (code, told) = world.post("reset", "", "").await;
    assert_eq!(code, 409);
    assert!(
        told["message"]
            .as_str()
            .unwrap()
            .contains("was replaced meanwhile")
    );
}

#[tokio::test]
async fn nothing_is_asked_for_a_machine_of_somebody_else() {
    let world = World::new().await;
    world.machine("another workspace", json!({"phase": "Running"}));
    for action in ["reboot", "reset"] {
        let (code, told) = world.post(action, "", "").await;
        assert_eq!(code, 409, "{told}");
        assert!(
            told["message"]
                .as_str()
                .unwrap()
                .contains("does not belong to it")
        );
    }
    assert_eq!(world.asked(), []);
}

#[tokio::test]
async fn power_is_an_annotation_and_nothing_else() {
    let world = World::new().await;
    world.post("stop", "?dryRun=All", "").await;
    assert!(!world.stopped().await);
    let (code, _) = world.post("stop", "", "").await;
    assert_eq!((code, world.stopped().await), (200, true));
    assert_eq!(world.post("reboot", "", "").await.0, 409);
    let (code, told) = world.post("reset", "", "").await;
    assert_eq!(code, 200, "{told}");
    let (code, told) = world.post("start", "", r#"{"paused": true}"#).await;
    assert_eq!(code, 409, "nobody has seen it stopped: {told}");
    let (code, _) = world.post("start", "", "").await;
    assert_eq!((code, world.stopped().await), (200, false));
    assert_eq!(world.asked(), [], "the controller acts, not the action");
}
