//! Watches: what they begin with, tell and end with.

use super::*;

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
