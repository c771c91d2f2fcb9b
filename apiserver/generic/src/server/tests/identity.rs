//! Who is believed to ask, and what the audit log says of it.

use super::*;

#[tokio::test]
async fn a_forged_identity_is_judged_as_anonymous() {
    let f = Fixture::start(RequestLimits::default()).await;
    let forged = "X-Remote-User: jane\r\nX-Remote-Group: system:masters\r\n";
    let answer = f.send(None, &get(ROBOT, forged)).await;
    assert_eq!(answer.code(), 403);
    assert_eq!(
        answer.json()["message"],
        "robots.toys.example.com \"r\" is forbidden: User \"system:anonymous\" cannot get resource \
         \"robots\" in API group \"toys.example.com\" in the namespace \"a\": RBAC: no"
    );
    let events = f.end().await;
    assert_eq!(events[0]["user"]["username"], "system:anonymous");
    assert_eq!(
        events[0]["annotations"]["authorization.k8s.io/decision"],
        "forbid"
    );
    assert_eq!(events[0]["sourceIPs"], json!(["127.0.0.1"]));
}

#[tokio::test]
async fn the_front_proxys_user_arrives_whole_and_both_logs_can_be_joined() {
    let f = Fixture::start(RequestLimits::default()).await;
    let more =
        "Audit-ID: from-kas\r\nX-Remote-Group: dev\r\nX-Remote-Extra-Scopes.io%2fA%25: x\r\n";
    let answer = f.proxied("jane", ROBOT, more).await;
    assert_eq!(answer.code(), 200);
    assert_eq!(
        answer.json(),
        json!({"user": "jane", "groups": ["dev", "system:authenticated"],
            "extra": {"scopes.io/a%": ["x"]}, "verb": "get", "audit": "from-kas",
            "client": "10.2.2.2", "leaks": 0})
    );
    assert_eq!(answer.header("audit-id").as_deref(), Some("from-kas"));
    assert_eq!(
        answer.header("cache-control").as_deref(),
        Some("no-cache, private")
    );
    let event = &f.end().await[0];
    assert_eq!(
        (&event["auditID"], &event["user"]["username"]),
        (&json!("from-kas"), &json!("jane"))
    );
    assert_eq!(
        event["sourceIPs"],
        json!(["10.1.1.1", "10.2.2.2", "127.0.0.1"])
    );
    assert_eq!(event["responseStatus"]["code"], 200);
}

#[tokio::test]
async fn probes_are_in_the_audit_log_only_when_they_are_refused() {
    let f = Fixture::start(RequestLimits::default()).await;
    let stranger = f.front.client("stranger");
    for (client, request, code) in [
        (None, get("/livez", ""), 200),
        (None, get("/livez/ping", ""), 403),
        (None, get("/readyz", ""), 403),
        (
            Some(&stranger),
            get("/livez", "X-Remote-User: jane\r\n"),
            401,
        ),
        (None, get("/livez", "").replace("GET", "PUT"), 405),
    ] {
        assert_eq!(f.send(client, &request).await.code(), code, "{request}");
    }
    let jane = f.proxied("jane", "/readyz?verbose", "").await;
    assert_eq!(jane.code(), 200);
    let missing = f.proxied("jane", "/readyz/nothing", "").await;
    assert_eq!(missing.code(), 404);
    let events = f.end().await;
    let told: Vec<_> = events
        .iter()
        .map(|e| {
            (
                e["requestURI"].as_str(),
                e["responseStatus"]["code"].as_u64(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            (Some("/livez/ping"), Some(403)),
            (Some("/readyz"), Some(403)),
            (Some("/livez"), Some(401)),
            (Some("/livez"), Some(405)),
            (Some("/readyz/nothing"), Some(404)),
        ]
    );
}

#[tokio::test]
async fn a_front_proxy_of_another_name_is_401() {
    let f = Fixture::start(RequestLimits::default()).await;
    let stranger = f.front.client("stranger");
    let answer = f
        .send(Some(&stranger), &get(ROBOT, "X-Remote-User: jane\r\n"))
        .await;
    assert_eq!(
        (answer.code(), &answer.json()["message"]),
        (401, &json!("Unauthorized"))
    );
    let events = f.end().await;
    assert_eq!(
        (&events[0]["responseStatus"]["code"], &events[0]["user"]),
        (&json!(401), &json!({}))
    );
}

#[tokio::test]
async fn a_review_that_fails_is_500_and_tells_the_caller_nothing() {
    let f = Fixture::start(RequestLimits::default()).await;
    let answer = f.proxied("mallory", ROBOT, "").await;
    assert_eq!(answer.code(), 500);
    assert!(!answer.0.contains("secret"), "{}", answer.0);
    f.end().await;
}

#[tokio::test]
async fn impersonation_is_refused_and_never_ignored() {
    let f = Fixture::start(RequestLimits::default()).await;
    let answer = f.proxied("jane", ROBOT, "Impersonate-User: root\r\n").await;
    assert_eq!(answer.code(), 403);
    f.end().await;
}
