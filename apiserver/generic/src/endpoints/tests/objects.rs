//! Objects, their verbs and bodies, and what is not served.

use super::*;

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

#[tokio::test]
async fn the_audit_id_travels_with_each_write() {
    let b = bench().await;
    b.create("a").await;
    assert_eq!(b.storage.contexts()[0].audit_id.as_deref(), Some("audit-1"));
}
