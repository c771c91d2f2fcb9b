//! Streams from a client's socket to a scripted KubeVirt's or pod's, and back. `workspaces/console` is
//! here; other modes have files of their own.

mod cases;
mod display;
mod ports;
mod proxy;
mod sshd;
mod table;
mod terminal;
mod world;

use apiserver_generic::admission::NamespacePhase;
use futures::SinkExt as _;
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;

use self::world::{MACHINE, PODS, World, closed, data};

const PLAIN: [(&str, &str); 1] = [("sec-websocket-protocol", "plain.kubevirt.io")];

/// The rest of an opening handshake.
const UPGRADE: &str = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                       sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

#[tokio::test]
async fn bytes_pass_both_ways_and_a_second_caller_is_told_who_holds_the_line() {
    let mut world = World::new("vm").await;
    let (mut client, chosen) = world.connect(&PLAIN, "").await.unwrap();
    assert_eq!(chosen.as_deref(), Some("plain.kubevirt.io"));
    let (uri, mut upstream) = world.dialled().await;
    assert!(
        uri.ends_with("/virtualmachineinstances/demo/console"),
        "{uri}"
    );
    client.send(Message::binary(&b"ls\r"[..])).await.unwrap();
    assert_eq!(data(&mut upstream, 3).await, b"ls\r");
    upstream
        .send(Message::binary(&b"\xff\xfe$ "[..]))
        .await
        .unwrap();
    assert_eq!(data(&mut client, 4).await, b"\xff\xfe$ ");

    let (code, status) = world.connect(&[("x-user", "joe")], "").await.unwrap_err();
    assert_eq!((code, &status["reason"]), (409, &json!("Conflict")));
    assert_eq!(
        status["details"]["causes"][0],
        json!({
        "reason": "SessionHeld", "message": "jane", "field": "spec.user"})
    );
    let (code, facts) = world.ask("GET").await;
    assert_eq!(
        (code, &facts["status"]["inUse"], &facts["spec"]["user"]),
        (200, &json!(true), &json!("jane"))
    );
    assert!(world.nothing_dialled());

    client.close(None).await.unwrap();
    assert!(closed(&mut upstream).await.is_some());
    drop(upstream);
    assert!(closed(&mut client).await.is_some());
    assert!(!world.has_session().await, "gone before the client knows");
    assert!(world.connect(&PLAIN, "").await.is_ok());
}

#[tokio::test]
async fn reading_everything_opens_nothing() {
    let mut world = World::new("vm").await;
    world.verbs.0.lock().remove("create");
    let (code, status) = world.connect(&PLAIN, "").await.unwrap_err();
    assert_eq!(code, 403);
    assert!(
        status["message"]
            .as_str()
            .unwrap()
            .contains("cannot create resource \"workspaces/console\"")
    );
    let (code, facts) = world.ask("GET").await;
    assert_eq!(
        (code, &facts["kind"], &facts["status"]["inUse"]),
        (200, &json!("WorkspaceSession"), &json!(false))
    );
    world.verbs.0.lock().insert("create");
    let (code, _) = world
        .connect(&[("origin", "https://evil.example.org")], "")
        .await
        .unwrap_err();
    assert_eq!(code, 403);
    let (code, status) = world.ask("POST").await;
    assert_eq!(code, 400);
    assert!(
        status["message"]
            .as_str()
            .unwrap()
            .contains("upgrade required")
    );
    // Only a GET shows that its caller may `get`, be it an upgrade or not.
    let upgrade = [
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    for (method, expected) in [("POST", 400), ("PUT", 403), ("DELETE", 403)] {
        let (code, _) = world.request_with(method, "demo/console", &upgrade).await;
        assert_eq!(code, expected, "{method}");
    }
    let unknown = [("sec-websocket-protocol", "foo")];
    assert_eq!(world.connect(&unknown, "").await.unwrap_err().0, 400);
    assert!(world.nothing_dialled());
    assert!(!world.has_session().await);
}

#[tokio::test]
async fn a_machine_that_does_not_run_is_refused_with_what_to_do() {
    let mut world = World::new("vm").await;
    let set_phase = |phase: &str| {
        let mut objects = world.cluster.objects.lock();
        objects.get_mut(MACHINE).unwrap()["status"]["phase"] = json!(phase);
    };
    set_phase("Scheduling");
    let (code, status) = world.connect(&PLAIN, "").await.unwrap_err();
    assert_eq!(
        (code, &status["details"]["retryAfterSeconds"]),
        (400, &json!(2))
    );
    set_phase("Failed");
    assert_eq!(world.connect(&PLAIN, "").await.unwrap_err().0, 409);
    set_phase("Running");
    world
        .edit_workspace(|w| {
            w.metadata_mut().insert(
                "annotations".into(),
                json!({"kubeworkspaces.io/stopped": "now"}),
            );
        })
        .await;
    let (code, status) = world.connect(&PLAIN, "").await.unwrap_err();
    assert_eq!(code, 409);
    assert!(
        status["message"]
            .as_str()
            .unwrap()
            .contains("kubectl workspace start demo")
    );
    assert!(world.nothing_dialled());
}

#[tokio::test]
async fn a_refusal_of_kubevirt_is_translated_and_frees_the_claim() {
    let world = World::new("vm").await;
    let text = r#"{"kind":"Status","message":"VMI is not running","code":400}"#;
    *world.cluster.refuse.lock() = Some((400, text.into()));
    let (code, status) = world.connect(&PLAIN, "").await.unwrap_err();
    assert_eq!(code, 400);
    assert!(
        status["message"]
            .as_str()
            .unwrap()
            .contains("VMI is not running")
    );
    assert!(!world.has_session().await);
    assert!(world.connect(&PLAIN, "").await.is_ok());
}

#[tokio::test]
async fn a_machine_that_was_swapped_during_the_dial_is_never_shown() {
    let mut world = World::new("vm").await;
    let mut foreign = world.cluster.objects.lock()[MACHINE].clone();
    foreign["metadata"]["uid"] = json!("other");
    *world.cluster.swap.lock() = Some((MACHINE.to_owned(), foreign));
    let (code, _) = world.connect(&PLAIN, "").await.unwrap_err();
    assert_eq!(code, 400);
    assert!(!world.has_session().await);
    let (_, mut upstream) = world.dialled().await;
    assert!(
        closed(&mut upstream).await.is_some(),
        "told goodbye before its name was given up"
    );
}

#[tokio::test]
async fn a_dial_whose_caller_has_gone_is_ended_in_order() {
    let mut world = World::new("vm").await;
    let client = world.ask_blindly("demo/console", UPGRADE).await;
    let (_, mut upstream) = world.dialled().await;
    drop(client);
    closed(&mut upstream).await;
    drop(upstream);
    world.at_rest().await;
    assert!(world.connect(&PLAIN, "").await.is_ok());
}

#[tokio::test]
async fn one_users_crowd_is_429_and_another_user_comes_in() {
    let world = World::new("container").await;
    let crowd = (0..60).map(|_| world.connect(&PLAIN, ""));
    let crowd = futures::future::join_all(crowd).await;
    let refused: Vec<_> = crowd.iter().filter_map(|r| r.as_ref().err()).collect();
    assert!(
        refused.len() < 41,
        "a second's worth comes in: {} of 60 did not",
        refused.len()
    );
    let (code, status) = refused.first().expect("60 at once are too many");
    assert_eq!((*code, &status["reason"]), (429, &json!("TooManyRequests")));
    assert_eq!(status["details"]["retryAfterSeconds"], 1);
    let joe = [PLAIN[0], ("x-user", "joe")];
    assert!(world.connect(&joe, "").await.is_ok());
}

#[tokio::test]
async fn the_end_of_the_guest_is_named() {
    let mut world = World::new("vm").await;
    let (mut client, _) = world.connect(&PLAIN, "").await.unwrap();
    let (_, upstream) = world.dialled().await;
    world.cluster.objects.lock().remove(MACHINE);
    drop(upstream);
    let close = closed(&mut client).await.unwrap();
    assert_eq!(u16::from(close.code), 4006);
    assert!(!world.has_session().await);
}

#[tokio::test]
async fn the_end_of_the_pod_is_named_and_is_no_guests() {
    let mut world = World::new("container").await;
    let (mut client, _) = world.connect(&PLAIN, "").await.unwrap();
    let (_, upstream) = world.dialled().await;
    world
        .cluster
        .objects
        .lock()
        .insert(PODS.to_owned(), json!({"items": []}));
    drop(upstream);
    let close = closed(&mut client).await.unwrap();
    assert_eq!(u16::from(close.code), 4006);
    assert!(close.reason.contains("the pod is gone"), "{}", close.reason);
}

#[tokio::test]
async fn an_end_that_nothing_explains_says_so_after_a_second() {
    let mut world = World::new("vm").await;
    let (mut client, _) = world.connect(&PLAIN, "").await.unwrap();
    drop(world.dialled().await);
    let close = closed(&mut client).await.unwrap();
    assert_eq!(
        (u16::from(close.code), close.reason.as_str()),
        (1011, "cut by the upstream")
    );
}

#[tokio::test]
async fn a_drain_tells_how_to_come_back_and_leaves_no_session() {
    let mut world = World::new("vm").await;
    let (mut client, _) = world.connect(&PLAIN, "").await.unwrap();
    let (_, mut upstream) = world.dialled().await;
    world.draining.cancel();
    assert!(closed(&mut upstream).await.is_some());
    drop(upstream);
    let close = closed(&mut client).await.unwrap();
    assert_eq!(u16::from(close.code), 1001);
    assert!(close.reason.contains("connect again"));
    assert!(!world.has_session().await);
    assert_eq!(world.connect(&PLAIN, "").await.unwrap_err().0, 503);
}

#[tokio::test]
async fn a_deleted_workspace_is_the_reason_when_its_session_is_collected() {
    let mut world = World::new("vm").await;
    let (mut client, _) = world.connect(&PLAIN, "").await.unwrap();
    let _upstream = world.dialled().await;
    world.delete_workspace().await;
    let close = closed(&mut client).await.unwrap();
    assert_eq!(u16::from(close.code), 4004);
}

#[tokio::test]
async fn whatever_goes_first_when_a_namespace_is_deleted_the_workspace_was_deleted() {
    let gone: [(&str, &str, serde_json::Value); 2] = [
        ("vm", MACHINE, json!(null)),
        ("container", PODS, json!({"items": []})),
    ];
    for (kind, path, left) in gone {
        let mut world = World::new(kind).await;
        let (mut client, _) = world.connect(&PLAIN, "").await.unwrap();
        let (_, upstream) = world.dialled().await;
        *world.namespace.0.lock() = Some(NamespacePhase::Terminating);
        match left.is_null() {
            true => world.cluster.objects.lock().remove(path),
            false => world.cluster.objects.lock().insert(path.to_owned(), left),
        };
        drop(upstream);
        let close = closed(&mut client).await.unwrap();
        assert_eq!(u16::from(close.code), 4004, "{kind}: {}", close.reason);
    }
}

#[tokio::test]
async fn a_session_that_goes_with_its_namespace_was_not_ended_by_an_administrator() {
    for (phase, expected) in [
        (NamespacePhase::Terminating, 4004),
        (NamespacePhase::Active, 4007),
    ] {
        let mut world = World::new("vm").await;
        let (mut client, _) = world.connect(&PLAIN, "").await.unwrap();
        let _upstream = world.dialled().await;
        *world.namespace.0.lock() = Some(phase);
        world.delete_session("console").await;
        let close = closed(&mut client).await.unwrap();
        assert_eq!(u16::from(close.code), expected, "{}", close.reason);
    }
}

#[tokio::test]
async fn a_takeover_ends_the_first_and_needs_delete_unless_it_is_ones_own() {
    let mut world = World::new("vm").await;
    let (mut first, _) = world.connect(&PLAIN, "").await.unwrap();
    let (_, mut upstream) = world.dialled().await;
    let joe = [("x-user", "joe")];
    assert_eq!(
        world.connect(&joe, "?takeover=true").await.unwrap_err().0,
        403
    );
    world.verbs.0.lock().insert("delete");
    let (second, close, ()) = tokio::join!(
        world.connect(&joe, "?takeover=true"),
        closed(&mut first),
        async { drop(closed(&mut upstream).await) },
    );
    let close = close.unwrap();
    assert_eq!(
        (u16::from(close.code), close.reason.as_str()),
        (1000, "taken over by another user")
    );
    assert!(second.is_ok());
    let (_, facts) = world.ask("GET").await;
    assert_eq!(facts["spec"]["user"], "joe");
}

#[tokio::test]
async fn a_container_workspace_is_a_shell_with_an_exit_status_for_several_at_once() {
    let mut world = World::new("container").await;
    let v5 = [("sec-websocket-protocol", "v5.channel.k8s.io")];
    let (mut one, chosen) = world.connect(&v5, "").await.unwrap();
    assert_eq!(chosen.as_deref(), Some("v5.channel.k8s.io"));
    let (uri, mut shell) = world.dialled().await;
    assert!(
        uri.contains("/pods/demo-0/exec?container=main&stdin=true&stdout=true&tty=true&command="),
        "{uri}"
    );
    let _two = world.connect(&PLAIN, "").await.unwrap();
    one.send(Message::binary(&b"\x04{\"Width\":200,\"Height\":50}"[..]))
        .await
        .unwrap();
    assert_eq!(
        data(&mut shell, 1).await,
        b"\x04{\"Width\":200,\"Height\":50}"
    );
    let status = br#"{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"7"}]}}"#;
    shell
        .send(Message::binary([&[3], &status[..]].concat()))
        .await
        .unwrap();
    let told = data(&mut one, 1).await;
    assert_eq!(told[0], 3);
    assert!(String::from_utf8_lossy(&told).contains(r#""message":"7""#));
    assert_eq!(u16::from(closed(&mut one).await.unwrap().code), 1000);
}

#[tokio::test]
async fn a_shell_without_a_terminal_has_errors_apart_and_an_end_of_input() {
    let mut world = World::new("container").await;
    let v5 = [("sec-websocket-protocol", "v5.channel.k8s.io")];
    let (mut client, _) = world.connect(&v5, "?tty=false").await.unwrap();
    let (uri, mut shell) = world.dialled().await;
    assert!(
        uri.contains("/exec?container=main&stdin=true&stdout=true&stderr=true&command="),
        "{uri}"
    );
    shell.send(Message::binary(&b"\x02oops"[..])).await.unwrap();
    assert_eq!(data(&mut client, 5).await, b"\x02oops");
    let size = Message::binary(&b"\x04{\"Width\":200,\"Height\":50}"[..]);
    client.send(size).await.unwrap();
    client
        .send(Message::binary(&b"\xff\x00"[..]))
        .await
        .unwrap();
    assert_eq!(data(&mut shell, 2).await, b"\xff\x00", "and no size");
}

#[tokio::test]
async fn a_scratch_workspace_is_reached_through_its_replica_set() {
    let mut world = World::new("scratch").await;
    let _client = world.connect(&PLAIN, "").await.unwrap();
    let (uri, _) = world.dialled().await;
    assert!(uri.contains("/pods/demo-5d-x/exec?"), "{uri}");
}
