//! Answers that are no streams: who is refused, errors, actions, facts, pictures.

use serde_json::json;

use crate::doubles::{BASE, JANE, with_demo};

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
