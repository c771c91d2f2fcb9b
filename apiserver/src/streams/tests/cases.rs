//! Cases from public bug reports, by their names.

use serde_json::{Value, json};

use super::world::World;

/// Everything that upgrades.
const STREAMS: [&str; 4] = [
    "demo/console",
    "demo/vnc",
    "demo/ssh?mode=tunnel",
    "demo/portforward/22",
];

#[tokio::test]
async fn s_06_the_token_is_never_chosen_and_the_joined_list_counts() {
    const TOKEN: &str = "base64url.bearer.authorization.k8s.io.c2VjcmV0";
    let list = |items: &[&str]| items.join(", ");
    let header = "sec-websocket-protocol";
    for path in STREAMS {
        let mut world = World::new("vm").await;
        let _listener = world.pods.listen().await;
        for (offered, expected) in [
            (
                vec![list(&[TOKEN, "plain.kubevirt.io"])],
                Some("plain.kubevirt.io"),
            ),
            (vec![list(&["binary"])], Some("binary")),
            (vec![], None),
            (vec![list(&["foo", "binary"])], Some("binary")),
            (
                vec![list(&[TOKEN, "foo"]), list(&["binary"])],
                Some("binary"),
            ),
            (vec![list(&[TOKEN])], None),
        ] {
            let headers: Vec<_> = offered
                .iter()
                .map(|value| (header, value.as_str()))
                .collect();
            let (code, chosen) = world.handshake(path, &headers).await;
            assert_eq!(
                (code, chosen.as_deref()),
                (101, expected),
                "{path} {offered:?}"
            );
            world.at_rest().await;
        }
        let (code, status) = world.open(path, &[(header, "foo")]).await.unwrap_err();
        assert_eq!(code, 400);
        assert!(!status.to_string().contains("foo"), "{status}");
    }
}

#[tokio::test]
async fn s_07_odd_but_legal_upgrades_are_accepted_and_another_version_is_named() {
    let world = World::new("vm").await;
    let plain = [("sec-websocket-protocol", "binary")];
    let (_client, _) = world.open("demo/console", &plain).await.unwrap();
    let wrong = [("sec-websocket-version", "7")];
    let (code, status) = world.open("demo/vnc", &wrong).await.unwrap_err();
    assert_eq!((code, &status["code"]), (426, &json!(426)));
}

#[tokio::test]
async fn s_13_ipv6_addresses_are_dialled_and_bracketed_in_words() {
    let world = World::new("vm").await;
    world.edit_pod(|pod| pod["status"]["podIPs"] = json!([{"ip": "2001:db8::1a:22"}]));
    for path in ["demo/ssh?mode=tunnel", "demo/portforward/8080"] {
        let listener = world.pods.listen().await;
        let _stream = world.open(path, &[]).await.unwrap();
        drop(listener);
    }
    let dialled = world.pods.dialled.lock().clone();
    let expected = ["[2001:db8::1a:22]:22", "[2001:db8::1a:22]:8080"];
    assert_eq!(dialled, expected.map(|address| address.parse().unwrap()));
    *world.pods.refuse.lock() = Some(std::io::ErrorKind::ConnectionRefused);
    let (_, status) = world.open("demo/portforward/8080", &[]).await.unwrap_err();
    let message = status["message"].as_str().unwrap();
    assert!(
        message.contains("[2001:db8::1a:22]:8080: connection refused"),
        "{message}"
    );
}

#[tokio::test]
async fn x_02_reading_everything_opens_nothing_and_creating_alone_does_not_either() {
    let mut world = World::new("vm").await;
    let _listener = world.pods.listen().await;
    for (verbs, code) in [
        (vec!["get"], 403),
        (vec!["create"], 403),
        (vec!["get", "create"], 101),
    ] {
        *world.verbs.0.lock() = verbs.iter().copied().collect();
        for path in STREAMS {
            let got = match world.open(path, &[("upgrade", "WebSocket")]).await {
                Ok(_) => 101,
                Err((code, status)) => {
                    assert_eq!(status["reason"], "Forbidden", "{path}");
                    code
                }
            };
            assert_eq!(got, code, "{path} with {verbs:?}");
            if code == 403 {
                assert!(world.nothing_dialled(), "{path} with {verbs:?}");
                assert!(world.pods.dialled.lock().is_empty());
            }
            world.at_rest().await;
        }
    }
    *world.verbs.0.lock() = ["get"].into();
    for path in [
        "demo/console",
        "demo/vnc",
        "demo/ssh",
        "demo/portforward/22",
    ] {
        let path = path.replace("ssh", "ssh?mode=tunnel");
        assert_eq!(world.request("GET", &path).await.0, 200, "{path}");
    }
}

#[tokio::test]
async fn what_is_addressed_with_a_port_needs_the_rights_on_its_workspace_too() {
    let world = World::new("vm").await;
    let _listener = world.pods.listen().await;
    *world.verbs.1.lock() = Some("demo:8080");
    let (code, status) = world.open("demo:8080/portforward", &[]).await.unwrap_err();
    assert_eq!(code, 403, "{status}");
    *world.verbs.1.lock() = None;
    assert!(world.open("demo:8080/portforward", &[]).await.is_ok());
}

#[tokio::test]
async fn a_user_with_a_thousand_groups_is_served_and_their_session_names_a_few() {
    let world = World::new("vm").await;
    let groups: Vec<String> = (0..1000).map(|i| format!("g{i}")).collect();
    let headers: Vec<_> = groups.iter().map(|g| ("x-group", g.as_str())).collect();
    let (_client, _) = world.open("demo/vnc", &headers).await.unwrap();
    let (code, body) = world.request("GET", "demo/vnc").await;
    let session: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((code, &session["spec"]["groupCount"]), (200, &json!(1000)));
    assert_eq!(session["spec"]["groups"].as_array().unwrap().len(), 32);
}
