//! HTTP against a group over the storage double: what clients send, and what they get.

mod lists;
mod objects;
mod watches;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use http::{Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::*;
use crate::{
    UserInfo,
    authz::{Loopback, authorize},
    call::ClientAddress,
    registry::Parts,
    request::RequestInfo,
    storage::MemoryStorage,
    test_widgets::Widgets,
};

const BASE: &str = "/apis/example.com/v1/namespaces/ns/widgets";
const ALL: &str = "/apis/example.com/v1/widgets";
const MERGE: &str = "application/merge-patch+json";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

struct Echo;

#[async_trait]
impl Connect for Echo {
    async fn connect(&self, call: Call) -> Result<Response<Body>, ApiError> {
        Ok(Response::new(body(call.info.rest.join("|"))))
    }
}

struct Bench {
    group: Group,
    storage: MemoryStorage,
    draining: CancellationToken,
    _stop: tokio_util::sync::DropGuard,
}

async fn bench() -> Bench {
    let storage = MemoryStorage::default();
    let stop = CancellationToken::new();
    let parts = Parts::new(Arc::new(Widgets::new()), Arc::new(storage.clone()));
    let registry = Registry::start(parts, &TaskTracker::new(), &stop);
    registry.ready().await;
    Bench {
        group: Group::new()
            .resource(registry)
            .connect("widgets", "port", Arc::new(Echo)),
        storage,
        draining: CancellationToken::new(),
        _stop: stop.drop_guard(),
    }
}

/// A request in the making.
struct Ask(http::request::Builder, Vec<u8>);

fn ask(method: &str, uri: &str) -> Ask {
    Ask(Request::builder().method(method).uri(uri), Vec::new())
}

impl Ask {
    fn accept(self, value: &str) -> Self {
        Self(self.0.header(header::ACCEPT, value), self.1)
    }

    fn body(self, kind: &str, bytes: impl ToString) -> Self {
        let builder = self.0.header(header::CONTENT_TYPE, kind);
        Self(builder, bytes.to_string().into_bytes())
    }

    fn json(self, body: Value) -> Self {
        self.body("application/json", body)
    }
}

impl Bench {
    async fn send(&self, ask: Ask) -> Response<Body> {
        let request = ask.0.body(body(ask.1)).unwrap();
        let info = RequestInfo::parse(request.method(), request.uri()).unwrap();
        let user = UserInfo::default();
        let authorized = authorize(&Loopback, &user, info.attributes())
            .await
            .unwrap();
        let call = Call {
            authorized,
            info,
            request,
            audit_id: "audit-1".into(),
            client: ClientAddress {
                peer: ([127, 0, 0, 1], 1).into(),
                forwarded_for: None,
                via: crate::authn::Via::Token,
            },
            authorizer: Arc::new(Loopback),
            draining: self.draining.clone(),
            streams: TaskTracker::new(),
            audit: crate::audit::Record::none(),
            stopwatch: crate::stopwatch::Stopwatch::start(),
        };
        self.group.handle(call).await
    }

    async fn get(&self, ask: Ask) -> (u16, Value) {
        let response = self.send(ask).await;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&bytes).unwrap())
    }

    async fn create(&self, name: &str) -> Value {
        let (code, object) = self.get(ask("POST", BASE).json(widget(name))).await;
        assert_eq!(code, 201, "{object}");
        object
    }

    /// Opens a watch whose lines are read one by one.
    async fn watch(&self, uri: &str, accept: &str) -> Lines {
        let response = self.send(ask("GET", uri).accept(accept)).await;
        assert_eq!(response.status(), StatusCode::OK);
        Lines(response.into_body(), Vec::new())
    }
}

struct Lines(Body, Vec<u8>);

impl Lines {
    /// The next event as its type and object; `None` at the end of the stream.
    async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some(end) = self.1.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.1.drain(..=end).collect();
                let event: Value = serde_json::from_slice(&line).unwrap();
                let kind = event["type"].as_str().unwrap().to_owned();
                return Some((kind, event["object"].clone()));
            }
            let frame = tokio::time::timeout(Duration::from_secs(10), self.0.frame());
            let frame = frame.await.expect("an event in time")?.unwrap();
            self.1.extend(frame.into_data().unwrap());
        }
    }
}

fn widget(name: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"team": "a"}}, "spec": {"size": 1}})
}

fn named(name: &str) -> String {
    format!("{BASE}/{name}")
}

/// Another registry over the same storage, as after a restart.
async fn fresh_registry(b: &Bench) -> Registry {
    let parts = Parts::new(Arc::new(Widgets::new()), Arc::new(b.storage.clone()));
    let registry = Registry::start(parts, &TaskTracker::new(), &CancellationToken::new());
    registry.ready().await;
    registry
}
