//! What passes, and how.

use serde_json::json;

use super::*;
use crate::streams::tests::world::{closed, data};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

#[tokio::test]
async fn s_21_a_guest_is_asked_for_what_was_asked_for() {
    let proxied = Proxied::new().await;
    for (target, expected) in [
        ("", "/"),
        ("/", "/"),
        ("?a=1", "/?a=1"),
        ("/a/b/", "/a/b/"),
        ("/a%2Fb?q=1&q=2%20x;y", "/a%2Fb?q=1&q=2%20x;y"),
        ("//x", "//x"),
        ("/%E4?%zz", "/%E4?%zz"),
    ] {
        let (client, mut guest, head) = proxied
            .exchange(&format!("GET {target}"), "connection: close\r\n")
            .await;
        assert!(
            head.starts_with(&format!("GET {expected} HTTP/1.1\r\n")),
            "{head}"
        );
        assert_eq!(header(&head, "host"), ["localhost:8080"]);
        assert_eq!(header(&head, "x-forwarded-for"), ["192.0.2.7"]);
        assert_eq!(header(&head, "x-forwarded-host"), ["kw.example.org"]);
        assert_eq!(header(&head, "x-forwarded-prefix"), [PREFIX]);
        assert_eq!(header(&head, "connection"), ["close"]);
        guest.send(OK).await;
        let answer = client.rest().await;
        assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
        let policy = "sandbox allow-scripts allow-forms allow-popups";
        assert_eq!(header(&answer, "content-security-policy"), [policy]);
    }
    assert_eq!(
        proxied.world.pods.dialled.lock()[0],
        "10.1.0.9:8080".parse().unwrap()
    );
}

#[tokio::test]
async fn s_21_what_leads_nowhere_is_refused_before_anything_is_dialled() {
    let proxied = Proxied::new().await;
    for target in ["/../../secrets", "/%2e%2e/x", "/a%2f..%2fb"] {
        let answer = proxied.refused(&format!("GET {target}"), "").await;
        assert_eq!(code(&answer), 400, "{answer}");
        assert!(answer.contains("dot segment"), "{answer}");
    }
    for (name, expected, words) in [
        ("demo:http", 0, ""),
        ("demo:8080", 0, ""),
        ("demo:6443", 403, "declared are 8080 (http)"),
        ("demo:22", 403, "port 22 is not declared"),
        ("demo:nope", 400, "declared are 8080 (http)"),
        ("demo:53", 400, "UDP"),
        ("demo:0", 400, "is no port"),
        ("demo:", 400, "is no port"),
        ("nobody", 404, "not found"),
    ] {
        let path = format!("{name}/proxy/");
        if expected == 0 {
            let asking = proxied.world.request("GET", &path);
            let answering = async {
                let mut guest = proxied.guest().await;
                let head = guest.head().await;
                guest.send(OK).await;
                head
            };
            let ((code, body), head) = tokio::join!(asking, answering);
            assert_eq!((code, body.as_slice()), (200, &b"ok"[..]), "{name}");
            let prefix = PREFIX.replace("demo", name);
            assert_eq!(header(&head, "x-forwarded-prefix"), [prefix]);
            continue;
        }
        proxied.world.pods.dialled.lock().clear();
        let (code, body) = proxied.world.request("GET", &path).await;
        let body = String::from_utf8_lossy(&body);
        assert_eq!(code, expected, "{name}: {body}");
        assert!(body.contains(words), "{name}: {body}");
        assert!(proxied.world.pods.dialled.lock().is_empty(), "{name}");
    }
}

#[tokio::test]
async fn x_02_each_request_needs_get_and_create_and_the_verb_of_its_method() {
    let proxied = Proxied::new().await;
    let verbs = &proxied.world.verbs.0;
    let upgrade = "connection: upgrade\r\nupgrade: websocket\r\n";
    for (allowed, line, headers, expected) in [
        (&["get"][..], "GET /", "", 403),
        (&["get"], "HEAD /", "", 403),
        (&["get"], "GET /", upgrade, 403),
        (&["create"], "GET /", "", 403),
        (&["create"], "POST /", "", 403),
        (&["get", "create"], "GET /", "", 200),
        (&["get", "create"], "HEAD /", "", 200),
        (&["get", "create"], "POST /", "", 200),
        (&["get", "create"], "PUT /", "", 403),
        (&["update"], "PUT /", "", 403),
        (&["get", "create", "update"], "PUT /", "", 200),
        (&["get", "create", "update"], "PATCH /", "", 403),
        (&["get", "create", "patch"], "PATCH /", "", 200),
        (&["get", "create", "delete"], "DELETE /", "", 200),
        (&["get", "create", "delete"], "OPTIONS /", "", 403),
    ] {
        verbs.lock().clear();
        verbs.lock().extend(allowed.iter().copied());
        if expected == 403 {
            let answer = proxied.refused(line, headers).await;
            assert_eq!(code(&answer), 403, "{allowed:?} {line}: {answer}");
            continue;
        }
        let answer = proxied.answered(line, headers, OK).await;
        assert_eq!(code(&answer), 200, "{allowed:?} {line}: {answer}");
        proxied.world.pods.dialled.lock().clear();
    }
    // The right on `demo:http` alone is none on `demo`.
    verbs.lock().extend(["get", "create"]);
    *proxied.world.verbs.1.lock() = Some("demo:http");
    let (code, _) = proxied.world.request("GET", "demo:http/proxy/").await;
    assert_eq!(code, 403);
    assert!(proxied.world.pods.dialled.lock().is_empty());
}

#[tokio::test]
async fn bodies_stream_both_ways_at_once() {
    let proxied = Proxied::new().await;
    let mut client = proxied
        .ask(
            "POST /echo",
            "transfer-encoding: chunked\r\n\r\n3\r\none\r\n",
        )
        .await;
    let mut guest = proxied.guest().await;
    let head = guest.head().await;
    assert_eq!(header(&head, "transfer-encoding"), ["chunked"]);
    assert!(header(&head, "content-length").is_empty(), "{head}");
    guest.expect("3\r\none\r\n").await;
    let answer = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-type: text/event-stream\r\n\r\n4\r\nback\r\n";
    guest.send(answer).await;
    let head = client.head().await;
    assert_eq!(header(&head, "content-type"), ["text/event-stream"]);
    client.expect("4\r\nback\r\n").await;
    client.send("3\r\ntwo\r\n0\r\n\r\n").await;
    guest.expect("3\r\ntwo\r\n0\r\n\r\n").await;
    guest.send("1\r\n!\r\n0\r\n\r\n").await;
    client.expect("1\r\n!\r\n0\r\n\r\n").await;
}

#[tokio::test]
async fn a_guest_that_does_not_read_stops_its_client() {
    let proxied = Proxied::new().await;
    let mut client = proxied
        .ask("PUT /big", "content-length: 1073741824\r\n\r\n")
        .await;
    let mut guest = proxied.guest().await;
    let head = guest.head().await;
    assert_eq!(header(&head, "content-length"), ["1073741824"]);
    let mut sent = 0;
    let piece = [7; 64 * 1024];
    while let Ok(Ok(written)) = timeout(Duration::from_millis(500), client.0.write(&piece)).await {
        sent += written;
        assert!(sent < 64 << 20, "{sent} bytes are somewhere");
    }
    guest
        .send("HTTP/1.1 413 Too Much\r\ncontent-length: 0\r\n\r\n")
        .await;
    assert_eq!(code(&client.head().await), 413);
}

#[tokio::test]
async fn a_client_that_goes_is_gone_for_the_guest_and_the_other_way_round() {
    let proxied = Proxied::new().await;
    let (client, guest, _) = proxied.exchange("GET /slow", "").await;
    drop(client);
    guest.left().await;

    let (client, mut guest, _) = proxied.exchange("GET /events", "").await;
    guest.send("HTTP/1.1 200 OK\r\n\r\ndata: 1\n\n").await;
    drop(client);
    let flooding = async { while guest.0.write_all(&[b'x'; 1024]).await.is_ok() {} };
    timeout(SOON, flooding).await.unwrap();

    let (mut client, mut guest, _) = proxied.exchange("GET /events", "").await;
    guest.send("HTTP/1.1 200 OK\r\n\r\nall").await;
    drop(guest);
    let head = client.head().await;
    assert_eq!(header(&head, "transfer-encoding"), ["chunked"]);
    client.expect("3\r\nall\r\n0\r\n\r\n").await;
}

#[tokio::test]
async fn a_body_is_asked_of_the_client_when_the_guest_wants_it() {
    let proxied = Proxied::new().await;
    let expecting = "content-length: 4\r\nexpect: 100-continue\r\n\r\n";
    let mut client = proxied.ask("PUT /no", expecting).await;
    let mut guest = proxied.guest().await;
    assert_eq!(header(&guest.head().await, "expect"), ["100-continue"]);
    guest
        .send("HTTP/1.1 417 No\r\ncontent-length: 0\r\n\r\n")
        .await;
    assert_eq!(code(&client.head().await), 417, "and no 100 before it");

    let mut client = proxied.ask("PUT /yes", expecting).await;
    let mut guest = proxied.guest().await;
    guest.head().await;
    guest.send("HTTP/1.1 100 Continue\r\n\r\n").await;
    assert_eq!(code(&client.head().await), 100);
    client.send("body").await;
    guest.expect("body").await;
    guest.send(OK).await;
    assert_eq!(code(&client.head().await), 200);
}

#[tokio::test]
async fn answers_without_a_body_have_none() {
    let proxied = Proxied::new().await;
    for (line, answer, length) in [
        (
            "HEAD /",
            "HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n",
            Some("7"),
        ),
        ("GET /", "HTTP/1.1 204 None\r\n\r\n", None),
        (
            "GET /",
            "HTTP/1.1 304 Same\r\netag: \"1\"\r\ncontent-length: 7\r\n\r\n",
            None,
        ),
    ] {
        let got = proxied.answered(line, "", answer).await;
        let (head, body) = got.split_once("\r\n\r\n").unwrap();
        assert_eq!(body, "", "{got}");
        assert_eq!(header(head, "content-length").first().copied(), length);
        assert_eq!(code(&got), code(answer));
    }
}

#[tokio::test]
async fn trailers_pass() {
    let proxied = Proxied::new().await;
    let headers = "te: trailers\r\n";
    let answer = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n2\r\nok\r\n0\r\nx-sum: 7\r\n\r\n";
    let got = proxied.answered("GET /", headers, answer).await;
    assert!(got.ends_with("2\r\nok\r\n0\r\nx-sum: 7\r\n\r\n"), "{got}");
}

#[tokio::test]
async fn what_no_head_may_say_no_trailer_says() {
    let proxied = Proxied::new().await;
    let names = "trailer: x-sum, x-remote-user, cookie, impersonate-user\r\n";
    let body = "2\r\nok\r\n0\r\nx-sum: 7\r\nx-remote-user: admin\r\ncookie: token=1\r\nimpersonate-user: x\r\n\r\n";
    let rest = format!(
        "{names}transfer-encoding: chunked\r\nconnection: close\r\nte: trailers\r\n\r\n{body}"
    );
    let client = proxied.ask("POST /", &rest).await;
    let mut guest = proxied.guest().await;
    guest.head().await;
    guest.expect("2\r\nok\r\n0\r\nx-sum: 7\r\n\r\n").await;
    let answer = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: clear-site-data, x-sum\r\n\r\n\
        2\r\nok\r\n0\r\nclear-site-data: \"*\"\r\nx-sum: 8\r\n\r\n";
    guest.send(answer).await;
    let got = client.rest().await;
    assert!(got.ends_with("2\r\nok\r\n0\r\nx-sum: 8\r\n\r\n"), "{got}");
}

#[tokio::test]
async fn cookies_of_the_guest_come_back_to_it_and_no_others_do() {
    let proxied = Proxied::new().await;
    let answer = "HTTP/1.1 200 OK\r\nset-cookie: sid=1; Path=/; Domain=example.org\r\ncontent-length: 0\r\n\r\n";
    let got = proxied.answered("GET /", "", answer).await;
    let set = header(&got, "set-cookie")[0].to_owned();
    let (cookie, rest) = set.split_once(';').unwrap();
    assert_eq!(rest, format!(" Path={PREFIX}/"));
    let headers = format!("cookie: token=secret; {cookie}; sid=2\r\n");
    let (_client, _guest, head) = proxied.exchange("GET /", &headers).await;
    assert_eq!(header(&head, "cookie"), ["sid=1"]);
}

#[tokio::test]
async fn a_page_asks_for_many_things_at_once() {
    let proxied = Proxied::new().await;
    let asking = async {
        for _ in 0..40 {
            let answer = proxied.answered("GET /asset", "", OK).await;
            assert_eq!(code(&answer), 200, "{answer}");
        }
    };
    timeout(SOON, asking).await.unwrap();
}

#[tokio::test]
async fn a_containers_port_is_reached_through_its_kubelet() {
    use futures::SinkExt as _;
    use tokio_tungstenite::tungstenite::Message;
    let mut proxied = Proxied::of(World::new("container").await).await;
    let mut client = proxied.ask("GET /x", "connection: close\r\n\r\n").await;
    let (uri, mut kubelet) = proxied.world.dialled().await;
    assert_eq!(
        uri,
        "/api/v1/namespaces/t1/pods/demo-0/portforward?ports=8080"
    );
    for port in [&b"\x00\x90\x1f"[..], b"\x01\x90\x1f"] {
        kubelet.send(Message::binary(port)).await.unwrap();
    }
    let head = data(&mut kubelet, 10).await;
    assert!(head.starts_with(b"\x00GET /x HT"), "{head:?}");
    let answer = format!("\0{OK}");
    kubelet
        .send(Message::binary(answer.into_bytes()))
        .await
        .unwrap();
    assert_eq!(code(&client.head().await), 200);
    client.expect("ok").await;
    assert!(closed(&mut kubelet).await.is_some(), "told goodbye");

    let client = proxied.ask("GET /x", "connection: close\r\n\r\n").await;
    let (_, mut kubelet) = proxied.world.dialled().await;
    for message in [
        &b"\x00\x90\x1f"[..],
        b"\x01\x90\x1f",
        b"\x01error forwarding port 8080 to pod x, uid : connection refused",
    ] {
        kubelet.send(Message::binary(message)).await.unwrap();
    }
    let answer = client.rest().await;
    assert_eq!(code(&answer), 503, "{answer}");
    assert!(answer.contains("connection refused"), "{answer}");
}

#[tokio::test]
async fn a_machine_that_is_not_there_is_not_dialled() {
    let proxied = Proxied::new().await;
    proxied.world.edit_machine(|vmi| {
        vmi["status"]["conditions"] = json!([{"type": "Paused", "status": "True"}]);
    });
    let answer = proxied.refused("GET /", "").await;
    assert_eq!(code(&answer), 409, "{answer}");
    proxied
        .world
        .edit_machine(|vmi| vmi["metadata"]["uid"] = json!("other"));
    proxied.world.drop_workspace().await;
    let answer = proxied.refused("GET /", "").await;
    assert_eq!(code(&answer), 404, "{answer}");
}
