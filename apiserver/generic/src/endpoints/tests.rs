//! HTTP against a group over the storage double: what clients send, and what they get.

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

#[tokio::test]
async fn an_object_lives_through_its_verbs() {
    let b = bench().await;
    b.create("a").await;
    let (code, found) = b.get(ask("GET", &named("a"))).await;
    assert_eq!((code, &found["kind"]), (200, &json!("Widget")));
    let (code, again) = b.get(ask("POST", BASE).json(widget("a"))).await;
    assert_eq!((code, &again["reason"]), (409, &json!("AlreadyExists")));
    let patch = ask("PATCH", &named("a")).body(MERGE, json!({"spec": {"size": 2}}));
    let (code, patched) = b.get(patch).await;
    assert_eq!((code, &patched["metadata"]["generation"]), (200, &json!(2)));
    let (code, stale) = b.get(ask("PUT", &named("a")).json(found)).await;
    assert_eq!((code, &stale["reason"]), (409, &json!("Conflict")));
    let (code, status) = b.get(ask("DELETE", &named("a"))).await;
    assert_eq!((code, &status["status"]), (200, &json!("Success")));
    assert_eq!(status["details"]["uid"], patched["metadata"]["uid"]);
    assert_eq!(b.get(ask("GET", &named("a"))).await.0, 404);
}

#[tokio::test]
async fn bodies_that_do_not_fit_are_400_413_or_415() {
    let b = bench().await;
    let other = json!({"apiVersion": "example.com/v2", "metadata": {"name": "a"}});
    let elsewhere = json!({"metadata": {"name": "a", "namespace": "other"}});
    let huge = json!({"metadata": {"name": "a"}, "spec": {"colour": "x".repeat(3 << 20)}});
    for (ask, code) in [
        (ask("POST", BASE).json(other), 400),
        (ask("POST", BASE).json(elsewhere), 400),
        (ask("POST", BASE).body("application/json", "{"), 400),
        (ask("POST", BASE).body("application/json", "[]"), 400),
        (ask("POST", BASE).json(json!({"kind": "Gadget"})), 422),
        (ask("POST", BASE).json(huge), 413),
        (
            ask("POST", BASE).body("application/vnd.kubernetes.protobuf", "k8s"),
            415,
        ),
        (
            ask("POST", &format!("{BASE}?dryRun=No")).json(widget("a")),
            422,
        ),
        (ask("PUT", &named("a")).json(json!({"spec": {}})), 400),
        (
            ask("PATCH", &named("a")).body("application/apply-patch+yaml", "{}"),
            415,
        ),
        (
            ask("PATCH", &named("a")).body("application/strategic-merge-patch+json", "{}"),
            415,
        ),
        (
            ask("PATCH", &format!("{}?force=true", named("a"))).body(MERGE, "{}"),
            422,
        ),
        (ask("PATCH", &named("a")).body(MERGE, "[]"), 400),
    ] {
        let uri = format!("{:?}", ask.0.uri_ref());
        let (is, status) = b.get(ask).await;
        assert_eq!(is, code, "{uri}: {status}");
        assert_eq!(status["kind"], "Status");
    }
}

#[tokio::test]
async fn paths_that_are_not_served_are_404_and_verbs_405() {
    let b = bench().await;
    for (method, uri, code) in [
        ("GET", "/apis/example.com/v1/namespaces/ns/gadgets", 404),
        ("GET", "/apis/example.com/v2/namespaces/ns/widgets", 404),
        (
            "GET",
            "/apis/example.com/v1/namespaces/ns/widgets/a/nothing",
            404,
        ),
        (
            "GET",
            "/apis/example.com/v1/namespaces/ns/widgets/a/status/more",
            404,
        ),
        ("POST", ALL, 405),
        ("DELETE", ALL, 405),
        ("PUT", BASE, 405),
        (
            "DELETE",
            "/apis/example.com/v1/namespaces/ns/widgets/a/status",
            405,
        ),
        (
            "POST",
            "/apis/example.com/v1/namespaces/ns/widgets/a/port/80",
            405,
        ),
    ] {
        let (is, status) = b.get(ask(method, uri)).await;
        assert_eq!(is, code, "{method} {uri}: {status}");
    }
    let (_, status) = b.get(ask("GET", "/apis/example.com/v2/widgets/a")).await;
    assert_eq!(
        status["message"],
        "the server could not find the requested resource"
    );
}

#[tokio::test]
async fn streaming_subresources_go_to_their_handler() {
    let b = bench().await;
    let response = b.send(ask("GET", &format!("{}/port/80", named("a")))).await;
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(bytes, "80");
    assert_eq!(
        b.send(ask("GET", &format!("{}/port/80/x", named("a"))))
            .await
            .status(),
        404
    );
}

#[tokio::test]
async fn unknown_and_duplicate_fields_are_named_in_json_and_yaml() {
    let b = bench().await;
    let json = r#"{"metadata":{"name":"a"},"spec":{"size":1,"size":2,"foo":3}}"#;
    let yaml = "metadata: {name: b}\nspec:\n  size: 1\n  size: 2\n  foo: 3\n";
    for (kind, text) in [("application/json", json), ("application/yaml", yaml)] {
        let uri = |v: &str| format!("{BASE}?fieldValidation={v}");
        let (code, strict) = b.get(ask("POST", &uri("Strict")).body(kind, text)).await;
        assert_eq!(code, 400);
        let message = strict["message"].as_str().unwrap();
        assert!(
            message.ends_with(
                "strict decoding error: duplicate field \"spec.size\", unknown field \"spec.foo\""
            ),
            "{message}"
        );
        let ignored = b
            .send(ask("POST", &uri("Ignore&dryRun=All")).body(kind, text))
            .await;
        assert_eq!(ignored.headers().get_all(header::WARNING).iter().count(), 0);
        let warned = b.send(ask("POST", BASE).body(kind, text)).await;
        assert_eq!(warned.status(), 201);
        assert_eq!(warned.headers().get_all(header::WARNING).iter().count(), 2);
    }
}

#[tokio::test]
async fn lists_have_kind_version_and_items_even_when_empty() {
    let b = bench().await;
    let (code, list) = b.get(ask("GET", ALL)).await;
    assert_eq!(
        (code, &list["kind"], &list["apiVersion"]),
        (200, &json!("WidgetList"), &json!("example.com/v1"))
    );
    assert_eq!(list["items"], json!([]));
    assert_ne!(
        list["metadata"]["resourceVersion"]
            .as_str()
            .unwrap_or_default(),
        ""
    );
    b.create("a").await;
    let (_, list) = b.get(ask("GET", ALL)).await;
    assert_eq!(
        (&list["items"][0]["kind"], &list["items"][0]["apiVersion"]),
        (&json!("Widget"), &json!("example.com/v1"))
    );
}

#[tokio::test]
async fn chunks_show_one_state_and_count_down() {
    let b = bench().await;
    for name in ["a", "b", "c", "d", "e"] {
        b.create(name).await;
    }
    let (mut uri, mut names, mut counts, mut versions) =
        (format!("{ALL}?limit=2"), vec![], vec![], vec![]);
    loop {
        let (code, page) = b.get(ask("GET", &uri)).await;
        assert_eq!(code, 200, "{page}");
        names.extend(
            page["items"]
                .as_array()
                .unwrap()
                .iter()
                .map(|i| i["metadata"]["name"].as_str().unwrap().to_owned()),
        );
        counts.push(page["metadata"]["remainingItemCount"].clone());
        versions.push(page["metadata"]["resourceVersion"].clone());
        b.send(ask("DELETE", &named("b"))).await;
        b.get(ask("POST", BASE).json(widget("aa"))).await;
        match page["metadata"]["continue"].as_str() {
            Some(token) => uri = format!("{ALL}?limit=2&continue={token}"),
            None => break,
        }
    }
    assert_eq!(names, ["a", "b", "c", "d", "e"]);
    assert_eq!(counts, [json!(3), json!(1), Value::Null]);
    versions.dedup();
    assert_eq!(versions.len(), 1);
}

#[tokio::test]
async fn a_continue_token_is_bound_to_its_selectors_and_to_history() {
    let b = bench().await;
    for name in ["a", "b", "c"] {
        b.create(name).await;
    }
    let (_, page) = b
        .get(ask("GET", &format!("{ALL}?limit=1&labelSelector=team%3Da")))
        .await;
    assert_eq!(page["metadata"].get("remainingItemCount"), None);
    let token = page["metadata"]["continue"].as_str().unwrap();
    assert_eq!(
        b.get(ask("GET", &format!("{ALL}?limit=1&continue={token}")))
            .await
            .0,
        400
    );
    assert_eq!(
        b.get(ask("GET", &format!("{ALL}?continue=nonsense")))
            .await
            .0,
        400
    );
    // A replica that begins now knows nothing of the past, and the backend has forgotten it.
    b.create("d").await;
    b.storage.compact();
    let late = Bench {
        group: Group::new().resource(fresh_registry(&b).await),
        ..bench().await
    };
    let uri = format!("{ALL}?limit=1&labelSelector=team%3Da&continue={token}");
    let (code, status) = late.get(ask("GET", &uri)).await;
    assert_eq!((code, &status["reason"]), (410, &json!("Expired")));
    let token = status["metadata"]["continue"].as_str().unwrap();
    let uri = format!("{ALL}?labelSelector=team%3Da&continue={token}");
    let (code, rest) = late.get(ask("GET", &uri)).await;
    assert_eq!((code, rest["items"].as_array().unwrap().len()), (200, 3));
}

async fn fresh_registry(b: &Bench) -> Registry {
    let parts = Parts::new(Arc::new(Widgets::new()), Arc::new(b.storage.clone()));
    let registry = Registry::start(parts, &TaskTracker::new(), &CancellationToken::new());
    registry.ready().await;
    registry
}

#[tokio::test]
async fn selectors_narrow_lists_and_unsupported_ones_are_named() {
    let b = bench().await;
    b.create("a").await;
    b.create("b").await;
    for (query, count) in [
        ("labelSelector=team%3Da", 2),
        ("labelSelector=team%21%3Da", 0),
        ("fieldSelector=metadata.name%3Da", 1),
        ("fieldSelector=metadata.namespace%3Dother", 0),
    ] {
        let (code, list) = b.get(ask("GET", &format!("{ALL}?{query}"))).await;
        assert_eq!(
            (code, list["items"].as_array().unwrap().len()),
            (200, count),
            "{query}"
        );
    }
    let (code, status) = b
        .get(ask("GET", &format!("{ALL}?fieldSelector=spec.x%3D1")))
        .await;
    assert_eq!(
        (code, &status["message"]),
        (400, &json!("field label not supported: spec.x"))
    );
}

#[tokio::test]
async fn tables_and_metadata_are_answered_as_asked() {
    let b = bench().await;
    b.create("a").await;
    let (_, table) = b.get(ask("GET", ALL).accept(TABLE)).await;
    assert_eq!(
        (&table["kind"], &table["apiVersion"]),
        (&json!("Table"), &json!("meta.k8s.io/v1"))
    );
    assert_eq!(table["columnDefinitions"][0]["name"], "Name");
    assert_eq!(table["rows"][0]["cells"], json!(["a", 1]));
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let (_, none) = b
        .get(ask("GET", &format!("{ALL}?includeObject=None")).accept(TABLE))
        .await;
    assert_eq!(none["rows"][0].get("object"), None);
    let beta = "application/json;as=Table;v=v1beta1;g=meta.k8s.io";
    let (_, one) = b.get(ask("GET", &named("a")).accept(beta)).await;
    assert_eq!(
        (&one["apiVersion"], one["rows"].as_array().unwrap().len()),
        (&json!("meta.k8s.io/v1beta1"), 1)
    );
    let metadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let (_, list) = b.get(ask("GET", ALL).accept(metadata)).await;
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(list["items"][0].get("spec"), None);
    assert_eq!(b.get(ask("GET", &named("a")).accept(metadata)).await.0, 406);
    assert_eq!(b.get(ask("GET", ALL).accept("text/html")).await.0, 406);
}

#[tokio::test]
async fn yaml_comes_back_as_yaml() {
    let b = bench().await;
    b.create("a").await;
    for uri in [named("a"), ALL.to_owned(), named("missing")] {
        let response = b.send(ask("GET", &uri).accept("application/yaml")).await;
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/yaml");
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        assert!(parse_yaml(&bytes).unwrap().value["kind"].is_string());
    }
}

#[tokio::test]
async fn status_is_written_through_its_subresource_only() {
    let b = bench().await;
    b.create("a").await;
    let patch = || json!({"status": {"phase": "Done"}, "spec": {"size": 9}});
    let (_, main) = b.get(ask("PATCH", &named("a")).body(MERGE, patch())).await;
    assert_eq!(
        (&main["spec"]["size"], main.get("status")),
        (&json!(9), None)
    );
    let status = format!("{}/status", named("a"));
    let (code, done) = b
        .get(ask("PATCH", &status).body(
            MERGE,
            json!({"status": {"phase": "Done"}, "spec": {"size": 1}}),
        ))
        .await;
    assert_eq!(
        (code, &done["status"]["phase"], &done["spec"]["size"]),
        (200, &json!("Done"), &json!(9))
    );
    assert_eq!(
        b.get(ask("GET", &status)).await.1["status"]["phase"],
        "Done"
    );
}

#[tokio::test]
async fn deletion_reads_its_options() {
    let b = bench().await;
    b.create("a").await;
    let wrong = json!({"preconditions": {"uid": "other"}});
    assert_eq!(b.get(ask("DELETE", &named("a")).json(wrong)).await.0, 409);
    let (code, dry) = b
        .get(ask("DELETE", &format!("{}?dryRun=All", named("a"))))
        .await;
    assert_eq!((code, &dry["status"]), (200, &json!("Success")));
    let foreground = json!({"propagationPolicy": "Foreground"});
    let (code, marked) = b.get(ask("DELETE", &named("a")).json(foreground)).await;
    assert_eq!(
        (code, &marked["metadata"]["finalizers"]),
        (200, &json!(["foregroundDeletion"]))
    );
    let free = json!([{"op": "remove", "path": "/metadata/finalizers"}]);
    let freed = ask("PATCH", &named("a")).body("application/json-patch+json", free);
    assert_eq!(b.get(freed).await.0, 200);
    assert_eq!(b.get(ask("GET", &named("a"))).await.0, 404);
}

#[tokio::test]
async fn deletecollection_deletes_what_it_selects() {
    let b = bench().await;
    b.create("a").await;
    b.create("b").await;
    let uri = format!("{BASE}?fieldSelector=metadata.name%3Da");
    let (code, list) = b.get(ask("DELETE", &uri)).await;
    assert_eq!((code, list["items"].as_array().unwrap().len()), (200, 1));
    let (_, left) = b.get(ask("GET", ALL)).await;
    assert_eq!(left["items"][0]["metadata"]["name"], "b");
}

const WATCH_LIST: &str =
    "watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";

#[tokio::test]
async fn watchlist_marks_the_end_of_the_initial_events() {
    let b = bench().await;
    for count in [0, 1, 200] {
        for i in 0..count {
            b.get(ask("POST", BASE).json(widget(&format!("w{i}"))))
                .await;
        }
        let mut lines = b
            .watch(&format!("{BASE}?{WATCH_LIST}"), "application/json")
            .await;
        for _ in 0..count {
            assert_eq!(lines.next().await.unwrap().0, "ADDED");
        }
        let (kind, mark) = lines.next().await.unwrap();
        assert_eq!(
            (kind.as_str(), &mark["kind"]),
            ("BOOKMARK", &json!("Widget"))
        );
        assert_eq!(
            mark["metadata"]["annotations"],
            json!({"k8s.io/initial-events-end": "true"})
        );
        assert!(mark["metadata"]["resourceVersion"].is_string());
    }
}

#[tokio::test]
async fn a_watch_from_a_list_tells_every_change_once() {
    let b = bench().await;
    b.create("a").await;
    let (_, list) = b.get(ask("GET", ALL)).await;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let mut lines = b
        .watch(
            &format!("{ALL}?watch=1&resourceVersion={version}&labelSelector=team"),
            "application/json",
        )
        .await;
    b.create("b").await;
    b.send(ask("PATCH", &named("b")).body(MERGE, json!({"metadata": {"labels": null}})))
        .await;
    b.send(ask("DELETE", &named("a"))).await;
    for expected in ["ADDED b", "DELETED b", "DELETED a"] {
        let (kind, object) = lines.next().await.unwrap();
        assert_eq!(
            format!("{kind} {}", object["metadata"]["name"].as_str().unwrap()),
            expected
        );
    }
    b.draining.cancel();
    assert!(lines.next().await.is_none());
}

#[tokio::test]
async fn a_version_that_is_too_old_is_an_error_event() {
    let b = bench().await;
    let mut lines = b
        .watch(
            &format!("{ALL}?watch=1&resourceVersion=0001"),
            "application/json",
        )
        .await;
    b.create("a").await;
    assert_eq!(lines.next().await.unwrap().0, "ADDED");
    b.storage.compact();
    let late = Bench {
        group: Group::new().resource(fresh_registry(&b).await),
        ..bench().await
    };
    let mut lines = late
        .watch(
            &format!("{ALL}?watch=1&resourceVersion=1"),
            "application/json",
        )
        .await;
    let (kind, status) = lines.next().await.unwrap();
    assert_eq!(
        (kind.as_str(), &status["code"], &status["reason"]),
        ("ERROR", &json!(410), &json!("Expired"))
    );
    assert_eq!(
        (&status["kind"], &status["apiVersion"]),
        (&json!("Status"), &json!("v1"))
    );
    assert!(lines.next().await.is_none());
}

#[tokio::test]
async fn a_watch_ends_when_its_time_is_over_after_a_bookmark() {
    let b = bench().await;
    let uri = format!("{ALL}?watch=1&resourceVersion=0&timeoutSeconds=3&allowWatchBookmarks=true");
    let mut lines = b.watch(&uri, "application/json").await;
    let (kind, mark) = lines.next().await.unwrap();
    assert_eq!(
        (kind.as_str(), mark["metadata"].get("annotations")),
        ("BOOKMARK", None)
    );
    assert!(lines.next().await.is_none());
}

#[tokio::test]
async fn watched_tables_have_their_columns_once() {
    let b = bench().await;
    b.create("a").await;
    b.create("b").await;
    let mut lines = b.watch(&format!("{ALL}?watch=1"), TABLE).await;
    let columns = [lines.next().await.unwrap().1, lines.next().await.unwrap().1]
        .map(|table| table["columnDefinitions"].as_array().unwrap().len());
    assert_eq!(columns, [2, 0]);
}

#[tokio::test]
async fn the_audit_id_travels_with_each_write() {
    let b = bench().await;
    b.create("a").await;
    assert_eq!(b.storage.contexts()[0].audit_id.as_deref(), Some("audit-1"));
}

/// `watch/…/NAME` is authorized for that name: RBAC with `resourceNames` must not open the rest.
#[tokio::test]
async fn a_watch_of_one_name_tells_of_no_other() {
    let b = bench().await;
    b.create("other").await;
    b.create("mine").await;
    let uri = "/apis/example.com/v1/watch/namespaces/ns/widgets/mine";
    let mut lines = b.watch(uri, "application/json").await;
    let (_, first) = lines.next().await.unwrap();
    assert_eq!(first["metadata"]["name"], "mine");
    b.create("third").await;
    let patch = json!({"metadata": {"labels": {"seen": "yes"}}});
    let change = ask("PATCH", &format!("{BASE}/mine")).body(MERGE, patch);
    assert_eq!(b.get(change).await.0, 200);
    let (_, second) = lines.next().await.unwrap();
    assert_eq!(second["metadata"]["labels"]["seen"], "yes");
}
