//! What is bounded, contained and ended.

use super::*;

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
