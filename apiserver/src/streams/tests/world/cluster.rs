//! A scripted cluster: objects, upgrades, screenshots.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use apiserver_generic::{
    Body,
    call::{BodyError, full},
};
use http::{Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::{
    body::{Frame, Incoming},
    upgrade::Upgraded,
};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{handshake::derive_accept_key, protocol::Role},
};

use super::MACHINE;

pub(in crate::streams::tests) type Upstream = WebSocketStream<TokioIo<Upgraded>>;

const INSTANCES: &str = "/apis/kubevirt.io/v1/namespaces/t1/virtualmachineinstances";

/// What the scripted cluster knows, and what it does with a dial.
#[derive(Clone)]
pub(in crate::streams::tests) struct Cluster {
    pub(in crate::streams::tests) objects: Arc<Mutex<BTreeMap<String, Value>>>,
    /// Answers a dial with this status instead of an upgrade.
    pub(in crate::streams::tests) refuse: Arc<Mutex<Option<(u16, String)>>>,
    /// Objects that appear while a dial is under way.
    pub(in crate::streams::tests) swap: Arc<Mutex<Option<(String, Value)>>>,
    /// The same for every dial until it is taken away.
    pub(in crate::streams::tests) refuse_all: Arc<Mutex<Option<(u16, String)>>>,
    /// What a screenshot is answered with: code, type and body.
    pub(in crate::streams::tests) screenshot: Arc<Mutex<(u16, &'static str, Vec<u8>)>>,
    dials: mpsc::UnboundedSender<(String, Upstream)>,
}

impl Cluster {
    /// An empty one, which hands over who dials it.
    pub(super) fn new(dials: mpsc::UnboundedSender<(String, Upstream)>) -> Self {
        Self {
            objects: Arc::default(),
            refuse: Arc::default(),
            swap: Arc::default(),
            refuse_all: Arc::default(),
            screenshot: Arc::default(),
            dials,
        }
    }
}

impl Cluster {
    /// Answers like kube-apiserver.
    pub(super) async fn answer(self, mut request: Request<Incoming>) -> Response<Body> {
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

pub(super) fn json_response(status: StatusCode, value: &Value) -> Response<Body> {
    let response = Response::builder().status(status);
    let response = response.header(header::CONTENT_TYPE, "application/json");
    response.body(full(value.to_string())).unwrap()
}
