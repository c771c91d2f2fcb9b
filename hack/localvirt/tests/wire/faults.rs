//! Streams that fail on demand.

use std::collections::HashMap;

use localvirt::{api::Instance, faults::ANNOTATION};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

use crate::doubles::{BASE, JANE, Objects, Server, instance};

fn with_faults(plan: &str) -> (String, Instance) {
    let (name, mut instance) = instance("demo", json!({"phase": "Running", "nodeName": "node1"}));
    instance.meta.annotations = Some([(ANNOTATION.to_owned(), plan.to_owned())].into());
    (name, instance)
}

async fn with_plan(plan: &str) -> Server {
    Server::start(Objects {
        instances: HashMap::from([with_faults(plan)]),
        ..Objects::default()
    })
    .await
}

const CONSOLE: &str =
    "/apis/subresources.kubevirt.io/v1/namespaces/ns/virtualmachineinstances/demo/console";

#[tokio::test]
async fn a_fault_refuses_new_streams_in_kubevirts_words() {
    let server = with_plan("console=refuse").await;
    let refused = server.wire(true).await.upgrade(CONSOLE, &JANE).await;
    assert_eq!(refused.code, 500);
    let text = "Internal error occurred: dial tcp node1:8186: connect: connection refused";
    assert!(refused.body.contains(text), "{}", refused.body);
    assert!(server.launchers.asked.lock().unwrap().is_empty());
    server
        .open(&format!("{BASE}/virtualmachineinstances/demo/vnc"))
        .await;
}

#[tokio::test]
async fn a_fault_closes_or_resets_an_open_stream() {
    for (fault, reset) in [("die", false), ("reset", true)] {
        let server = with_plan("").await;
        let (mut wire, _guest) = server.open(CONSOLE).await;
        let plan = format!("console={fault}").parse().unwrap();
        server.app.faults.publish("uid-of-demo", plan);
        let ended = wire.end().await;
        assert_eq!(
            ended == std::io::ErrorKind::ConnectionReset,
            reset,
            "{fault}: {ended:?}"
        );
    }
}

#[tokio::test]
async fn a_stalled_stream_answers_no_ping_until_the_fault_is_lifted() {
    let server = with_plan("console=stall").await;
    let (mut wire, mut guest) = server.open(CONSOLE).await;
    let limit = std::time::Duration::from_millis(100);
    guest.write_all(b"late").await.unwrap();
    wire.send(9, b"ping").await;
    assert!(tokio::time::timeout(limit, wire.frame()).await.is_err());
    server
        .app
        .faults
        .publish("uid-of-demo", "".parse().unwrap());
    let mut opcodes = [wire.frame().await.unwrap(), wire.frame().await.unwrap()].map(|f| f.opcode);
    opcodes.sort_unstable();
    assert_eq!(opcodes, [2, 10]);
}
