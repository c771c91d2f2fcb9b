//! `workspaces/portforward/{port}` and `workspaces/ssh?mode=tunnel`.

use std::io::ErrorKind;

use futures::SinkExt as _;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_tungstenite::tungstenite::Message;

use super::world::{Client, MACHINE, World, closed, data};

const TUNNEL: [(&str, &str); 1] = [("sec-websocket-protocol", "v1.tunnel.kubeworkspaces.io")];
const BINARY: [(&str, &str); 1] = [("sec-websocket-protocol", "binary")];

/// A forward whose other end is ours.
async fn forward(
    world: &World,
    path: &str,
    headers: &[(&'static str, &str)],
) -> (Client, TcpStream) {
    let listener = world.pods.listen().await;
    let (client, _) = world.open(path, headers).await.unwrap();
    let (guest, _) = listener.accept().await.unwrap();
    (client, guest)
}

async fn read(guest: &mut TcpStream, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    guest.read_exact(&mut bytes).await.unwrap();
    bytes
}

async fn refusal(world: &World, path: &str) -> (u16, String) {
    let (code, status) = world.open(path, &BINARY).await.unwrap_err();
    (
        code,
        status["message"].as_str().unwrap_or_default().to_owned(),
    )
}

#[tokio::test]
async fn each_direction_of_a_tunnel_ends_by_itself() {
    let world = World::new("vm").await;
    let (mut client, mut guest) = forward(&world, "demo/portforward/8080", &TUNNEL).await;
    let dialled = world.pods.dialled.lock().clone();
    assert_eq!(dialled, ["10.1.0.9:8080".parse().unwrap()]);
    client
        .send(Message::binary(&b"\x00GET /"[..]))
        .await
        .unwrap();
    client.send(Message::binary(&b"\x01"[..])).await.unwrap();
    let mut request = Vec::new();
    guest.read_to_end(&mut request).await.unwrap();
    assert_eq!(request, b"GET /", "the guest reads an end");
    guest.write_all(b"answer").await.unwrap();
    assert_eq!(data(&mut client, 7).await, b"\x00answer");
    drop(guest);
    assert_eq!(data(&mut client, 1).await, b"\x01");
    let close = closed(&mut client).await.unwrap();
    assert_eq!(u16::from(close.code), 1000);
}

#[tokio::test]
async fn the_guest_may_end_first_and_still_listen() {
    let world = World::new("vm").await;
    let (mut client, mut guest) = forward(&world, "demo/portforward/http", &TUNNEL).await;
    guest.write_all(b"banner").await.unwrap();
    guest.shutdown().await.unwrap();
    assert_eq!(data(&mut client, 8).await, b"\x00banner\x01");
    client.send(Message::binary(&b"\x00bye"[..])).await.unwrap();
    assert_eq!(read(&mut guest, 3).await, b"bye");
    client.send(Message::binary(&b"\x01"[..])).await.unwrap();
    assert_eq!(guest.read(&mut [0; 1]).await.unwrap(), 0);
    let close = closed(&mut client).await.unwrap();
    assert_eq!(
        (u16::from(close.code), close.reason.as_str()),
        (1000, "the other side ended the connection")
    );
}

#[tokio::test]
async fn without_a_word_for_an_end_the_last_bytes_still_arrive() {
    let world = World::new("vm").await;
    let (mut client, mut guest) = forward(&world, "demo/portforward/8080", &BINARY).await;
    client.send(Message::binary(&b"ping"[..])).await.unwrap();
    assert_eq!(read(&mut guest, 4).await, b"ping");
    let download = vec![7; 300 * 1024];
    let sent = download.clone();
    let sending = tokio::spawn(async move { guest.write_all(&sent).await });
    assert!(data(&mut client, download.len()).await == download);
    sending.await.unwrap().unwrap();
    let close = closed(&mut client).await.unwrap();
    assert_eq!(u16::from(close.code), 1000);
}

#[tokio::test]
async fn forwards_are_not_exclusive_and_a_broken_one_disturbs_nobody() {
    let world = World::new("vm").await;
    let (one, _guest) = forward(&world, "demo/portforward/8080", &BINARY).await;
    let (mut two, mut guest) = forward(&world, "demo/portforward/8080", &BINARY).await;
    drop(one);
    two.send(Message::binary(&b"x"[..])).await.unwrap();
    assert_eq!(read(&mut guest, 1).await, b"x");
}

#[tokio::test]
async fn ports_have_several_spellings_and_only_declared_ones_are_reached() {
    let world = World::new("vm").await;
    for path in [
        "demo/portforward/8080/tcp",
        "demo/portforward/22",
        "demo:http/portforward",
        "demo:8080/portforward/8080",
    ] {
        let _stream = forward(&world, path, &BINARY).await;
    }
    world.pods.dialled.lock().clear();
    for (path, code, words) in [
        ("demo/portforward", 400, "which port?"),
        ("demo/portforward?ports=8080", 400, "which port?"),
        ("demo/portforward/8080/udp", 400, "UDP is not forwarded"),
        ("demo/portforward/53", 400, "UDP is not forwarded"),
        ("demo/portforward/8080/sctp", 400, "only TCP"),
        ("demo/portforward/0", 400, "is no port"),
        ("demo/portforward/nope", 400, "declared are 8080 (http)"),
        (
            "demo/portforward/6443",
            403,
            "not declared by the workspace",
        ),
        ("demo:http/portforward/22", 400, "two ports"),
        ("demo/portforward/1/tcp/2", 404, "could not find"),
        ("demo:22/console", 404, "\"demo:22\" not found"),
    ] {
        let (got, message) = refusal(&world, path).await;
        assert_eq!(got, code, "{path}: {message}");
        assert!(message.contains(words), "{path}: {message}");
    }
    assert!(world.pods.dialled.lock().is_empty());
}

#[tokio::test]
async fn a_guest_says_where_to_dial_and_is_not_believed() {
    let mut world = World::new("vm").await;
    world.edit_machine(|vmi| {
        vmi["status"]["interfaces"] = json!([{"ipAddress": "169.254.169.254"}]);
    });
    let _stream = forward(&world, "demo/ssh?mode=tunnel", &BINARY).await;
    let dialled = world.pods.dialled.lock().clone();
    assert_eq!(dialled, ["10.1.0.9:22".parse().unwrap()]);
    // Nor is KubeVirt asked to dial it for us.
    *world.pods.refuse.lock() = Some(ErrorKind::HostUnreachable);
    let (code, message) = refusal(&world, "demo/portforward/8080").await;
    assert_eq!(code, 503);
    assert!(
        message.contains("10.1.0.9:8080: no route to host"),
        "{message}"
    );
    assert!(world.nothing_dialled());
}

#[tokio::test]
async fn kubevirt_forwards_where_the_pod_network_is_not_reachable() {
    let mut world = World::new("vm").await;
    world.edit_machine(|vmi| {
        vmi["status"]["interfaces"] = json!([{"ipAddress": "10.1.0.9"}]);
    });
    *world.pods.refuse.lock() = Some(ErrorKind::NetworkUnreachable);
    let (mut client, _) = world.open("demo/portforward/8080", &TUNNEL).await.unwrap();
    let (uri, mut upstream) = world.dialled().await;
    assert!(uri.ends_with("/portforward/8080"), "{uri}");
    client.send(Message::binary(&b"\x00x"[..])).await.unwrap();
    assert_eq!(data(&mut upstream, 1).await, b"x");
    client.send(Message::binary(&b"\x01"[..])).await.unwrap();
    assert!(closed(&mut upstream).await.is_some());
    drop(upstream);
    let close = closed(&mut client).await.unwrap();
    assert_eq!(u16::from(close.code), 1000);
    assert!(close.reason.contains("no half-close"), "{}", close.reason);
    // A refusal may come from a policy in between; if KubeVirt is refused too, it was the guest's.
    *world.pods.refuse.lock() = Some(ErrorKind::ConnectionRefused);
    assert!(world.open("demo/portforward/8080", &TUNNEL).await.is_ok());
    *world.cluster.refuse_all.lock() = Some((500, "dial tcp: connection refused".into()));
    let (code, message) = refusal(&world, "demo/portforward/8080").await;
    assert_eq!(code, 503);
    assert!(
        message.contains("10.1.0.9:8080: connection refused"),
        "{message}"
    );
    assert!(message.contains("nothing listens"), "{message}");
}

#[tokio::test]
async fn a_guest_that_changes_its_word_during_the_dial_is_not_reached_through_kubevirt() {
    let mut world = World::new("vm").await;
    world.edit_machine(|vmi| {
        vmi["status"]["interfaces"] = json!([{"ipAddress": "10.1.0.9"}]);
    });
    *world.pods.refuse.lock() = Some(ErrorKind::NetworkUnreachable);
    let mut lying = world.cluster.objects.lock()[MACHINE].clone();
    lying["status"]["interfaces"] = json!([{"ipAddress": "127.0.0.1"}]);
    *world.cluster.swap.lock() = Some((MACHINE.to_owned(), lying));
    let (code, message) = refusal(&world, "demo/portforward/8080").await;
    assert_eq!(code, 409);
    assert!(message.contains("not its pod's"), "{message}");
    let (_, mut upstream) = world.dialled().await;
    assert!(closed(&mut upstream).await.is_none(), "cut, nothing passed");
}

#[tokio::test]
async fn pods_that_lead_elsewhere_are_refused_by_their_address() {
    let world = World::new("vm").await;
    for (edit, words) in [
        (
            json!({"status": {"podIPs": [{"ip": "127.0.0.1"}]}}),
            "127.0.0.1",
        ),
        (
            json!({"status": {"podIPs": [{"ip": "fe80::1"}]}}),
            "fe80::1",
        ),
        (
            json!({"spec": {"hostNetwork": true, "nodeName": "n1"}}),
            "hostNetwork",
        ),
        (
            json!({"status": {"podIPs": [{"ip": "192.0.2.1"}], "hostIP": "192.0.2.1"}}),
            "192.0.2.1",
        ),
    ] {
        let before = world.cluster.objects.lock()[super::world::PODS].clone();
        world.edit_pod(|pod| merge(pod, &edit));
        let (code, message) = refusal(&world, "demo/portforward/8080").await;
        assert_eq!(code, 409, "{message}");
        assert!(message.contains(words), "{message}");
        let mut objects = world.cluster.objects.lock();
        objects.insert(super::world::PODS.to_owned(), before);
    }
    // A pod that merely carries the label is not the machine's.
    world.edit_pod(|pod| pod["metadata"]["uid"] = json!("another"));
    assert_eq!(refusal(&world, "demo/portforward/8080").await.0, 400);
    assert!(world.pods.dialled.lock().is_empty());
}

fn merge(into: &mut Value, edit: &Value) {
    for (section, fields) in edit.as_object().unwrap() {
        for (key, value) in fields.as_object().unwrap() {
            into[section][key] = value.clone();
        }
    }
}

#[tokio::test]
async fn a_paused_machine_answers_no_connection_but_shows_itself() {
    let world = World::new("vm").await;
    world.edit_machine(|vmi| {
        vmi["status"]["conditions"] = json!([{"type": "Paused", "status": "True"}]);
    });
    for path in ["demo/portforward/8080", "demo/ssh?mode=tunnel"] {
        let (code, message) = refusal(&world, path).await;
        assert_eq!(code, 409, "{path}");
        assert!(message.contains("virtctl unpause vm demo"), "{message}");
    }
    assert!(world.open("demo/console", &BINARY).await.is_ok());
    assert!(world.open("demo/vnc", &BINARY).await.is_ok());
}

#[tokio::test]
async fn a_containers_port_is_reached_through_its_kubelet() {
    let mut world = World::new("container").await;
    let (mut client, _) = world.open("demo/portforward/8080", &TUNNEL).await.unwrap();
    let (uri, mut kubelet) = world.dialled().await;
    assert!(
        uri.ends_with("/pods/demo-0/portforward?ports=8080"),
        "{uri}"
    );
    for number in [&b"\x00\x90\x1f"[..], &b"\x01\x90\x1f"[..]] {
        kubelet.send(Message::binary(number)).await.unwrap();
    }
    client
        .send(Message::binary(&b"\x00ping"[..]))
        .await
        .unwrap();
    assert_eq!(data(&mut kubelet, 5).await, b"\x00ping");
    kubelet
        .send(Message::binary(&b"\x00pong"[..]))
        .await
        .unwrap();
    assert_eq!(data(&mut client, 5).await, b"\x00pong");
    let failed = b"\x01error forwarding port 8080 to pod x, uid : connection refused";
    kubelet.send(Message::binary(&failed[..])).await.unwrap();
    let close = closed(&mut client).await.unwrap();
    assert_eq!(u16::from(close.code), 1011);
    assert!(
        close.reason.contains("connection refused"),
        "{}",
        close.reason
    );
}

#[tokio::test]
async fn a_container_on_its_nodes_network_lends_no_ports() {
    let mut world = World::new("container").await;
    world.edit_pod(|pod| pod["spec"]["hostNetwork"] = json!(true));
    let (code, message) = refusal(&world, "demo/portforward/8080").await;
    assert_eq!(code, 409);
    assert!(message.contains("hostNetwork"), "{message}");
    assert!(world.nothing_dialled());
}

#[tokio::test]
async fn ssh_to_a_container_is_told_what_to_use_instead() {
    let world = World::new("container").await;
    let (code, message) = refusal(&world, "demo/ssh?mode=tunnel").await;
    assert_eq!(code, 400);
    assert!(
        message.contains("kubectl exec") && message.contains("kubectl cp"),
        "{message}"
    );
    let (code, message) = refusal(&world, "demo/ssh?mode=both").await;
    assert_eq!(code, 400);
    assert!(message.contains("terminal"), "{message}");
}

#[tokio::test]
async fn the_target_is_checked_again_after_the_dial() {
    let mut world = World::new("container").await;
    let mut swapped = world.cluster.objects.lock()[super::world::PODS].clone();
    swapped["items"][0]["metadata"]["uid"] = json!("other");
    *world.cluster.swap.lock() = Some((super::world::PODS.to_owned(), swapped));
    assert_eq!(refusal(&world, "demo/portforward/8080").await.0, 400);
    let (_, mut kubelet) = world.dialled().await;
    assert!(closed(&mut kubelet).await.is_some(), "told goodbye");
}

#[tokio::test]
async fn without_an_upgrade_one_sees_ones_own_forwards() {
    let world = World::new("vm").await;
    for path in ["demo/portforward", "demo/portforward/8080"] {
        let (code, body) = world.request("GET", path).await;
        let list: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((code, &list["kind"]), (200, &json!("WorkspaceSessionList")));
        assert_eq!(list["items"], json!([]));
    }
    assert_eq!(world.request("POST", "demo/portforward/8080").await.0, 400);
}

#[tokio::test]
async fn a_tunnel_that_is_misspoken_ends_with_1002() {
    let world = World::new("vm").await;
    let (mut client, _guest) = forward(&world, "demo/portforward/8080", &TUNNEL).await;
    client
        .send(Message::binary(&b"\x07what"[..]))
        .await
        .unwrap();
    let close = closed(&mut client).await.unwrap();
    assert_eq!(u16::from(close.code), 1002);
}

#[tokio::test]
async fn s_10_a_machine_that_goes_away_ends_its_forwards_with_the_reason() {
    for (edit, code) in [
        (json!({"phase": "Failed"}), 4006),
        (json!({"nodeName": "n2"}), 4005),
    ] {
        let world = World::new("vm").await;
        let (mut client, _guest) = forward(&world, "demo/portforward/8080", &TUNNEL).await;
        world.edit_machine(|vmi| {
            for (key, value) in edit.as_object().unwrap() {
                vmi["status"][key] = value.clone();
            }
        });
        let close = closed(&mut client).await.unwrap();
        assert_eq!(u16::from(close.code), code, "{edit}");
    }
    let world = World::new("vm").await;
    let (mut client, _guest) = forward(&world, "demo/ssh?mode=tunnel", &BINARY).await;
    let objects = world.cluster.objects.clone();
    objects.lock().remove(super::world::MACHINE);
    let close = closed(&mut client).await.unwrap();
    assert_eq!(u16::from(close.code), 4006);
}
