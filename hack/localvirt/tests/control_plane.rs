//! localvirt as it is deployed, in front of a control plane of its own: the shipped manifests, the ServiceAccount's token
//! and nothing more. There is no kubelet here, so the test does what one would do to a Pod, and a launcher of a few lines
//! stands in for QEMU; the certificates between it and localvirt are those in the launcher's Secret.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy knows only functions with #[test] as tests, not their helpers"
)]

#[path = "support/stack.rs"]
mod stack;
mod support;

use std::sync::Arc;

use k8s_openapi::api::{
    authorization::v1::SubjectAccessReview,
    core::v1::{Pod, Secret},
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::DynamicObject,
};
use localvirt::{
    api::vm_resource,
    launcher::{
        protocol::{Phase, Reply, Request, Status, read_line, write_line},
        spec::{SeedSource, Spec},
    },
    pki::Leaf,
    tls,
};
use serde_json::{Value, json};
use stack::{Stack, until};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

const BASE: &str = "/apis/subresources.kubevirt.io/v1/namespaces/team";

/// A launcher that has a guest of two lines: it greets, and echoes what is typed. It takes localvirt's certificate only.
fn launch(secret: &Secret, listener: TcpListener) {
    let data = secret.data.clone().unwrap();
    let text = |key: &str| String::from_utf8(data[key].0.clone()).unwrap();
    let leaf = Leaf {
        certificate_pem: text("tls.crt"),
        key_pem: text("tls.key"),
    };
    let roots = Arc::new(tls::roots(&text("ca.crt")).unwrap());
    let verifier =
        rustls::server::WebPkiClientVerifier::builder_with_provider(roots, tls::provider());
    let acceptor = TlsAcceptor::from(Arc::new(
        tls::server(&leaf, verifier.build().unwrap()).unwrap(),
    ));
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut stream = acceptor.accept(stream).await.unwrap();
                match read_line::<Request, _>(&mut stream).await.unwrap() {
                    Request::Status => write_line(&mut stream, &Reply::Status(running()))
                        .await
                        .unwrap(),
                    Request::Console => {
                        write_line(&mut stream, &Reply::Stream).await.unwrap();
                        stream.write_all(b"login: ").await.unwrap();
                        let mut buffer = [0; 64];
                        while let Ok(length @ 1..) = stream.read(&mut buffer).await {
                            stream.write_all(&buffer[..length]).await.unwrap();
                        }
                    }
                    _ => write_line(&mut stream, &Reply::Done).await.unwrap(),
                }
            });
        }
    });
}

fn running() -> Status {
    Status {
        phase: Phase::Running,
        accelerator: "tcg".into(),
        agent_connected: false,
        console_active: false,
        vnc_active: false,
    }
}

fn machine(name: &str, domain: Value) -> DynamicObject {
    let mut vm = DynamicObject::new(name, &vm_resource()).data(json!({"spec": {
        "runStrategy": "Always",
        "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {
                "domain": domain,
                "networks": [{"name": "default", "pod": {}}],
                "volumes": [
                    {"name": "root", "containerDisk": {"image": "example.test/guest:1"}},
                    {"name": "seed", "cloudInitNoCloud": {"secretRef": {"name": "seed"}}}
                ]
            }
        }
    }}));
    vm.metadata.namespace = Some("team".into());
    vm
}

fn domain() -> Value {
    json!({
        "memory": {"guest": "128Mi"},
        "devices": {
            "disks": [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "seed", "disk": {"bus": "virtio"}}],
            "interfaces": [{"name": "default", "masquerade": {}, "ports": [{"port": 22}]}]
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_lives_through_kube_apiserver() {
    // A free port for the launchers, so that runs side by side do not meet.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let stack = Stack::start(&[
        "--launcher-image=example.test/launcher:1",
        &format!("--control-port={port}"),
    ])
    .await;
    stack.kubectl(&["create", "namespace", "team"]).await;
    stack
        .kubectl(&[
            "create",
            "secret",
            "generic",
            "seed",
            "-n",
            "team",
            "--from-literal=userdata=#cloud-config",
        ])
        .await;
    discovery(&stack).await;
    refused(&stack).await;

    stack
        .vms()
        .create(&PostParams::default(), &machine("demo", domain()))
        .await
        .unwrap();
    let pod = stack.launcher().await;
    let vmi = stack.vmis().get("demo").await.unwrap();
    let labels = pod.labels();
    assert_eq!(labels["kubevirt.io/created-by"], vmi.uid().unwrap());
    assert_eq!(
        (
            labels["vm.kubevirt.io/name"].as_str(),
            labels["app"].as_str()
        ),
        ("demo", "demo")
    );
    stack.printable("demo", "Starting").await;

    let secrets: Api<Secret> = Api::namespaced(stack.client.clone(), "team");
    let secret = secrets.get(&pod.name_any()).await.unwrap();
    let spec = Spec::from_json(&secret.data.as_ref().unwrap()["spec.json"].0).unwrap();
    let seed = SeedSource::Mounted("/seeds/user".into());
    assert_eq!(spec.cloud_init.unwrap().user_data, seed);
    let volumes = pod.spec.clone().unwrap().volumes.unwrap();
    let mounted = volumes.iter().find(|v| v.name == "seed-user").unwrap();
    let mounted = mounted.secret.clone().unwrap();
    assert_eq!(mounted.secret_name.as_deref(), Some("seed"));
    let localvirt = "system:serviceaccount:localvirt:localvirt";
    assert!(
        may(
            &stack,
            localvirt,
            json!({"verb": "create", "resource": "secrets"})
        )
        .await
    );
    assert!(
        !may(
            &stack,
            localvirt,
            json!({"verb": "get", "resource": "secrets", "name": "seed"})
        )
        .await
    );

    let address = listener.local_addr().unwrap().ip();
    launch(&secret, listener);
    stack.run_pod(&pod, address).await;
    stack.printable("demo", "Running").await;
    stack
        .kubectl(&[
            "wait",
            "--for=condition=Ready",
            "--timeout=60s",
            "vm/demo",
            "-n",
            "team",
        ])
        .await;
    let vmi = stack.vmis().get("demo").await.unwrap();
    assert_eq!(
        vmi.data["status"]["activePods"],
        json!({pod.uid().unwrap(): "node1"})
    );
    assert_eq!(
        vmi.data["status"]["interfaces"][0]["ipAddress"],
        json!(address)
    );
    assert_eq!(vmi.labels()["kubevirt.io/nodeName"], "node1");

    console(&stack).await;
    stop_and_start(&stack, &pod).await;
    delete(&stack).await;
}

/// Whether this user may do this in `team`.
async fn may(stack: &Stack, user: &str, mut attributes: Value) -> bool {
    attributes["namespace"] = json!("team");
    let reviews: Api<SubjectAccessReview> = Api::all(stack.client.clone());
    let review = json!({"spec": {"user": user, "resourceAttributes": attributes}});
    let review = serde_json::from_value(review).unwrap();
    let answer = reviews
        .create(&PostParams::default(), &review)
        .await
        .unwrap();
    answer.status.unwrap().allowed
}

async fn discovery(stack: &Stack) {
    let resources = stack
        .kubectl(&["get", "--raw", "/apis/subresources.kubevirt.io/v1"])
        .await;
    assert!(resources.contains("virtualmachineinstances/console"));
    let all = stack
        .kubectl(&["api-resources", "--api-group=kubevirt.io"])
        .await;
    assert!(all.contains("virtualmachineinstances"), "{all}");
    // The parents are kubevirt.io's alone: a bare name stays unambiguous.
    let none = stack
        .kubectl(&["get", "virtualmachines", "-A", "-o", "name"])
        .await;
    assert_eq!(none.trim(), "");
    let mine = stack
        .kubectl(&[
            "api-resources",
            "--api-group=subresources.kubevirt.io",
            "-o",
            "name",
        ])
        .await;
    assert_eq!(mine.trim(), "");
    // kube-apiserver asks a server for its OpenAPI a second after it has become available.
    until("the OpenAPI of the group", || async {
        let openapi = stack.kubectl(&["get", "--raw", "/openapi/v3"]).await;
        openapi
            .contains("apis/subresources.kubevirt.io/v1")
            .then_some(())
    })
    .await;
}

/// A machine that no instance can be made of says why, and gets up once it is mended.
async fn refused(stack: &Stack) {
    let mut domain = domain();
    domain.as_object_mut().unwrap().remove("memory");
    stack
        .vms()
        .create(&PostParams::default(), &machine("weak", domain))
        .await
        .unwrap();
    let failure = until("a Failure", || async {
        let vm = stack.vms().get("weak").await.unwrap();
        let list = vm.data["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        list.into_iter().find(|c| c["type"] == "Failure")
    })
    .await;
    assert!(
        failure["message"].as_str().unwrap().contains("no memory"),
        "{failure}"
    );
    let mended = json!({"spec": {"template": {"spec": {"domain": {"memory": {"guest": "64Mi"}}}}}});
    stack
        .vms()
        .patch("weak", &PatchParams::default(), &Patch::Merge(mended))
        .await
        .unwrap();
    until("an instance", || async {
        stack.vmis().get_opt("weak").await.unwrap()
    })
    .await;
    stack
        .vms()
        .delete("weak", &DeleteParams::default())
        .await
        .unwrap();
    // Its Pod was never on a node, so it goes at once, and the finalizers with it.
    until("the machine to go", || async {
        stack
            .vms()
            .get_opt("weak")
            .await
            .unwrap()
            .is_none()
            .then_some(())
    })
    .await;
}

async fn console(stack: &Stack) {
    let path = format!("{BASE}/virtualmachineinstances/demo/console");
    let editor = format!("Bearer {}", stack.user("editor", "edit").await);
    let viewer = format!("Bearer {}", stack.user("viewer", "view").await);
    // The roles are aggregated by a controller, which may take a moment.
    let asked = json!({"verb": "get", "group": "subresources.kubevirt.io",
        "resource": "virtualmachineinstances", "subresource": "console", "name": "demo"});
    until("the editor's rights", || async {
        let allowed = may(stack, "system:serviceaccount:team:editor", asked.clone()).await;
        allowed.then_some(())
    })
    .await;
    let mut wire = stack.wire().await;
    let denied = wire.upgrade(&path, &[("Authorization", &viewer)]).await;
    assert_eq!(denied.code, 403, "{denied:?}");
    let mut wire = stack.wire().await;
    let headers = [
        ("Authorization", editor.as_str()),
        ("Sec-WebSocket-Protocol", "plain.kubevirt.io"),
    ];
    let upgraded = wire.upgrade(&path, &headers).await;
    assert_eq!(upgraded.code, 101, "{upgraded:?}");
    assert_eq!(
        upgraded.header("sec-websocket-protocol").as_deref(),
        Some("plain.kubevirt.io")
    );
    assert_eq!(wire.read(7).await, b"login: ");
    wire.send(2, b"root").await;
    assert_eq!(wire.read(4).await, b"root");
}

async fn put(stack: &Stack, path: &str) -> u16 {
    let request = http::Request::put(path).body(Vec::new()).unwrap();
    let answer = stack
        .client
        .send(request.map(kube::client::Body::from))
        .await
        .unwrap();
    answer.status().as_u16()
}

async fn stop_and_start(stack: &Stack, first: &Pod) {
    let path = format!("{BASE}/virtualmachines/demo");
    assert_eq!(put(stack, &format!("{path}/start")).await, 409);
    assert_eq!(put(stack, &format!("{path}/stop")).await, 202);
    stack.printable("demo", "Stopping").await;
    stack.reap(first).await;
    stack.printable("demo", "Stopped").await;
    assert!(stack.vmis().get_opt("demo").await.unwrap().is_none());
    assert_eq!(put(stack, &format!("{path}/start")).await, 202);
    let second = stack.launcher().await;
    assert_ne!(second.name_any(), first.name_any());
    // A launcher that dies before its guest ran is waited for before the next one.
    let dead = json!({"status": {"phase": "Failed"}});
    stack
        .pods()
        .patch_status(
            &second.name_any(),
            &PatchParams::default(),
            &Patch::Merge(dead),
        )
        .await
        .unwrap();
    stack.printable("demo", "CrashLoopBackOff").await;
    let vm = until("the failure to be counted", || async {
        let vm = stack.vms().get("demo").await.unwrap();
        (!vm.data["status"]["startFailure"].is_null()).then_some(vm)
    })
    .await;
    assert_eq!(vm.data["status"]["startFailure"]["consecutiveFailCount"], 1);
}

async fn delete(stack: &Stack) {
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
    assert!(stack.vmis().get_opt("demo").await.unwrap().is_none());
    let launchers = ListParams::default().labels("kubevirt.io=virt-launcher");
    until("the launchers to go", || async {
        let list = stack.pods().list(&launchers).await.unwrap();
        list.items.is_empty().then_some(())
    })
    .await;
}
