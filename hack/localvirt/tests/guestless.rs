//! Machines without a guest behind a real kube-apiserver, without a node: what tests of streams are made of.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy knows only functions with #[test] as tests, not their helpers"
)]

#[path = "support/stack.rs"]
mod stack;
mod support;

use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    core::DynamicObject,
};
use localvirt::{
    api::{is_controlled_by, migration_resource, vm_resource},
    guestless::NODES,
};
use serde_json::{Value, json};
use stack::{Stack, until};
use support::Wire;

const BASE: &str = "/apis/subresources.kubevirt.io/v1/namespaces/team";
const GREETING: &str = "localvirt: there is no guest here, and what you type comes back\r\n";

fn machine(name: &str) -> DynamicObject {
    let mut vm = DynamicObject::new(name, &vm_resource()).data(json!({"spec": {
        "runStrategy": "Always",
        "template": { "spec": {
            "domain": {"memory": {"guest": "128Mi"}, "devices": {}},
            "volumes": [{"name": "root", "containerDisk": {"image": "example.test/guest:1"}}],
        } }
    }}));
    vm.metadata.namespace = Some("team".into());
    vm
}

/// A stack with this machine running, and the token of somebody who may open its streams.
async fn running(name: &str) -> (Stack, String) {
    let stack = Stack::start(&["--without-kubelet"]).await;
    stack.kubectl(&["create", "namespace", "team"]).await;
    create(&stack, name).await;
    let token = format!("Bearer {}", stack.user("admin", "admin").await);
    let path = format!("{BASE}/virtualmachineinstances/{name}/vnc/screenshot");
    // The roles are aggregated by a controller, which may take a moment.
    until("the role", || async {
        let answer = get(&stack, &token, &path).await;
        (answer.code == 200).then_some(())
    })
    .await;
    (stack, token)
}

async fn create(stack: &Stack, name: &str) {
    let created = stack
        .vms()
        .create(&PostParams::default(), &machine(name))
        .await;
    created.unwrap();
    stack.printable(name, "Running").await;
}

async fn get(stack: &Stack, token: &str, path: &str) -> support::Response {
    let mut wire = stack.wire().await;
    wire.request("GET", path, &[("Authorization", token)], "")
        .await
}

async fn open(stack: &Stack, token: &str, path: &str) -> Wire {
    let mut wire = stack.wire().await;
    let headers = [
        ("Authorization", token),
        ("Sec-WebSocket-Protocol", "plain.kubevirt.io"),
    ];
    let upgraded = wire.upgrade(path, &headers).await;
    assert_eq!(upgraded.code, 101, "{upgraded:?}");
    wire
}

async fn console(stack: &Stack, token: &str, name: &str) -> Wire {
    let path = format!("{BASE}/virtualmachineinstances/{name}/console");
    let mut wire = open(stack, token, &path).await;
    assert_eq!(wire.read(GREETING.len()).await, GREETING.as_bytes());
    wire
}

async fn verdict(stack: &Stack) -> Value {
    let path = format!("{BASE}/localvirt/checker");
    serde_json::from_str(&stack.kubectl(&["get", "--raw", &path]).await).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_without_a_guest_is_reached_by_the_same_chain_of_uids() {
    let (stack, token) = running("demo").await;
    let vm = stack.vms().get("demo").await.unwrap();
    let vmi = stack.vmis().get("demo").await.unwrap();
    let pod = stack.launcher().await;
    assert!(is_controlled_by(&vmi.metadata, &vm.uid().unwrap()));
    assert!(is_controlled_by(&pod.metadata, &vmi.uid().unwrap()));
    let status = &vmi.data["status"];
    assert_eq!(
        status["activePods"],
        json!({ pod.uid().unwrap(): NODES[0] })
    );
    assert_eq!(status["nodeName"], NODES[0]);
    assert_eq!(status["interfaces"][0]["ipAddress"], "192.0.2.1");
    let bound = pod.spec.as_ref().unwrap().node_name.as_deref();
    assert_eq!(bound, Some(NODES[0]));
    let pod_status = pod.status.unwrap();
    assert_eq!(pod_status.pod_ip.as_deref(), Some("192.0.2.1"));
    assert!(pod_status.message.unwrap().contains("written by localvirt"));

    let mut wire = console(&stack, &token, "demo").await;
    wire.send(2, b"hello").await;
    assert_eq!(wire.read(5).await, b"hello");
    let port = format!("{BASE}/virtualmachineinstances/demo/portforward/8080");
    let mut port = open(&stack, &token, &port).await;
    port.send(2, b"SSH-2.0").await;
    assert_eq!(port.read(7).await, b"SSH-2.0");
    let display = format!("{BASE}/virtualmachineinstances/demo/vnc?preserveSession=true");
    let mut display = open(&stack, &token, &display).await;
    assert_eq!(display.read(12).await, b"RFB 003.008\n");

    // An end that nobody asked for: what a kubelet would write of a Pod that died.
    let failed = Patch::Merge(json!({"status": {"phase": "Failed"}}));
    let name = pod.metadata.name.unwrap();
    stack
        .pods()
        .patch_status(&name, &PatchParams::default(), &failed)
        .await
        .unwrap();
    assert_eq!(wire.frame().await, None);
    assert_eq!(display.frame().await, None);
    // Always is started again, with another Pod.
    until("another instance", || async {
        let again = stack.vmis().get_opt("demo").await.unwrap()?;
        (again.uid() != vmi.uid() && again.data["status"]["phase"] == "Running").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_consoles_twenty_at_a_time_are_opened_and_the_checker_counts_them() {
    const MACHINES: usize = 20;
    const ROUNDS: usize = 10;
    let (stack, token) = running("m0").await;
    futures::future::join_all((1..MACHINES).map(|n| {
        let stack = &stack;
        async move { create(stack, &format!("m{n}")).await }
    }))
    .await;
    for _ in 0..ROUNDS {
        let opened = (0..MACHINES).map(|n| {
            let (stack, token) = (&stack, &token);
            async move { console(stack, token, &format!("m{n}")).await }
        });
        let mut wires = futures::future::join_all(opened).await;
        let live = verdict(&stack).await["modes"]["console"]["live"].clone();
        assert_eq!(live, MACHINES);
        for wire in &mut wires {
            wire.send(8, &[0x03, 0xe8]).await;
            assert_eq!(wire.frame().await.unwrap().opcode, 8);
        }
    }
    let report = verdict(&stack).await;
    assert_eq!(report["verdict"], "pass", "{report}");
    assert_eq!(report["modes"]["console"]["accepted"], MACHINES * ROUNDS);
    let mut first = console(&stack, &token, "m0").await;
    let _second = console(&stack, &token, "m0").await;
    assert_eq!(first.frame().await, None);
    let report = verdict(&stack).await;
    assert_eq!(report["verdict"], "fail");
    assert_eq!(report["modes"]["console"]["violations"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_by_annotation_strikes_streams_that_are_open() {
    let (stack, token) = running("demo").await;
    let mut wire = console(&stack, &token, "demo").await;
    let annotate = |value: &'static str| {
        let fault = format!("localvirt.kubeworkspaces.io/faults={value}");
        let stack = &stack;
        async move {
            let args = [
                "annotate",
                "vmi",
                "demo",
                "-n",
                "team",
                "--overwrite",
                &fault,
            ];
            stack.kubectl(&args).await;
        }
    };
    annotate("console=die").await;
    assert_eq!(wire.frame().await, None);
    annotate("console=refuse").await;
    let path = format!("{BASE}/virtualmachineinstances/demo/console");
    let headers = [("Authorization", token.as_str())];
    let refused = stack.wire().await.upgrade(&path, &headers).await;
    assert_eq!(refused.code, 500);
    assert!(
        refused.body.contains("connection refused"),
        "{}",
        refused.body
    );
    annotate("").await;
    console(&stack, &token, "demo").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_moves_the_machine_to_another_node_and_cuts_its_streams() {
    let (stack, token) = running("demo").await;
    let migrations: Api<DynamicObject> =
        Api::namespaced_with(stack.client.clone(), "team", &migration_resource());
    for (from, to) in [(NODES[0], NODES[1]), (NODES[1], NODES[0])] {
        let before = stack.vmis().get("demo").await.unwrap();
        assert_eq!(before.data["status"]["nodeName"], from);
        let mut wire = console(&stack, &token, "demo").await;
        let name = format!("to-{to}");
        let mut migration = DynamicObject::new(&name, &migration_resource())
            .data(json!({"spec": {"vmiName": "demo"}}));
        migration.metadata.namespace = Some("team".into());
        migrations
            .create(&PostParams::default(), &migration)
            .await
            .unwrap();
        let both = until("two active launchers", || async {
            let vmi = stack.vmis().get("demo").await.unwrap();
            let pods = vmi.data["status"]["activePods"]
                .as_object()
                .unwrap()
                .clone();
            (pods.len() == 2).then_some(vmi)
        })
        .await;
        assert_eq!(both.data["status"]["nodeName"], from);
        let nodes: Vec<&Value> = both.data["status"]["activePods"]
            .as_object()
            .unwrap()
            .values()
            .collect();
        assert!(nodes.contains(&&json!(from)) && nodes.contains(&&json!(to)));
        stack.printable("demo", "Migrating").await;

        assert_eq!(wire.frame().await, None, "no close frame");
        let moved = stack.vmis().get("demo").await.unwrap();
        assert_eq!(
            moved.data["status"]["nodeName"], to,
            "it is known where the guest is"
        );
        assert_eq!(moved.uid(), before.uid());
        console(&stack, &token, "demo").await;
        until("the end of the migration", || async {
            let migration = migrations.get(&name).await.unwrap();
            let vmi = stack.vmis().get("demo").await.unwrap();
            let alone = vmi.data["status"]["activePods"].as_object().unwrap().len() == 1;
            (migration.data["status"]["phase"] == "Succeeded" && alone).then_some(())
        })
        .await;
        stack.printable("demo", "Running").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_without_a_guest_is_paused_stopped_and_deleted_as_any_other() {
    let (stack, token) = running("demo").await;
    let put = |path: &'static str| {
        let (stack, token) = (&stack, &token);
        async move {
            let path = format!("{BASE}/{path}");
            let headers = [("Authorization", token.as_str())];
            let mut wire = stack.wire().await;
            wire.request("PUT", &path, &headers, "").await.code
        }
    };
    assert_eq!(put("virtualmachineinstances/demo/pause").await, 200);
    stack.printable("demo", "Paused").await;
    assert_eq!(put("virtualmachineinstances/demo/pause").await, 409);
    assert_eq!(put("virtualmachineinstances/demo/unpause").await, 200);
    stack.printable("demo", "Running").await;
    let mut wire = console(&stack, &token, "demo").await;
    assert_eq!(put("virtualmachines/demo/stop").await, 202);
    assert_eq!(wire.frame().await, None);
    stack.printable("demo", "Stopped").await;
    let paused = format!("{BASE}/virtualmachines/demo/start");
    let headers = [("Authorization", token.as_str())];
    let started = stack
        .wire()
        .await
        .request("PUT", &paused, &headers, r#"{"paused":true}"#)
        .await;
    assert_eq!(started.code, 202);
    stack.printable("demo", "Paused").await;
    stack
        .vms()
        .delete("demo", &DeleteParams::default())
        .await
        .unwrap();
    until("the machine to go", || async {
        stack
            .vms()
            .get_opt("demo")
            .await
            .unwrap()
            .is_none()
            .then_some(())
    })
    .await;
    assert!(
        stack
            .pods()
            .list(&Default::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );
}
