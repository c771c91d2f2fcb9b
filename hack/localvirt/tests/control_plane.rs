//! localvirt as it is deployed, in front of a control plane of its own: the shipped manifests, the ServiceAccount's token
//! and nothing more. There is no kubelet here, so the test does what one would do to a Pod, and a launcher of a few lines
//! stands in for QEMU; the certificates between it and localvirt are those in the launcher's Secret.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy knows only functions with #[test] as tests, not their helpers"
)]

mod support;

use std::{net::IpAddr, path::PathBuf, sync::Arc, time::Duration};

use base64::Engine as _;
use k8s_openapi::api::{
    authorization::v1::SubjectAccessReview,
    core::v1::{Pod, Secret},
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::DynamicObject,
};
use localcluster::harness::{ControlPlane, external_name_service, wait_available};
use localvirt::{
    api::{vm_resource, vmi_resource},
    launcher::{
        protocol::{Phase, Reply, Request, Status, read_line, write_line},
        spec::Spec,
    },
    options::Options,
    pki::Leaf,
    run::Localvirt,
    tls,
};
use serde_json::{Value, json};
use support::Wire;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

const LIMIT: Duration = Duration::from_secs(60);
const BASE: &str = "/apis/subresources.kubevirt.io/v1/namespaces/team";

/// A control plane with localvirt in front of nothing.
struct Stack {
    plane: ControlPlane,
    client: Client,
    shutdown: CancellationToken,
}

impl Drop for Stack {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name)
}

impl Stack {
    /// With the socket on which its launchers are asked: a free port, so that runs side by side do not meet.
    async fn start() -> (Self, TcpListener) {
        let plane = ControlPlane::start().await.unwrap();
        let client = plane.client().unwrap();
        let launcher = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stack = Self {
            plane,
            client,
            shutdown: CancellationToken::new(),
        };
        stack.apply(&folder("crds")).await;
        for file in ["00-namespace.yaml", "rbac.yaml", "user-roles.yaml"] {
            stack.apply(&folder("deploy").join(file)).await;
        }
        stack
            .kubectl(&[
                "wait",
                "--for=condition=Established",
                "--timeout=60s",
                "crd",
                "--all",
            ])
            .await;
        external_name_service(&stack.client, "localvirt", "localvirt")
            .await
            .unwrap();
        let options = Options {
            namespace: "localvirt".into(),
            service: "localvirt".into(),
            listen: "127.0.0.1:0".parse().unwrap(),
            launcher_image: "example.test/launcher:1".into(),
            control_port: launcher.local_addr().unwrap().port(),
            kubeconfig: Some(stack.service_account("localvirt", "localvirt").await),
        };
        let localvirt = Localvirt::start(&options).await.unwrap();
        let port = localvirt.address().unwrap().port();
        tokio::spawn(localvirt.run(stack.shutdown.clone()));
        stack.apply(&folder("deploy/apiservice.yaml")).await;
        let patch = json!({"spec": {"service": {"port": port}}}).to_string();
        stack
            .kubectl(&[
                "patch",
                "apiservice",
                "v1.subresources.kubevirt.io",
                "--type=merge",
                "-p",
                &patch,
            ])
            .await;
        wait_available(&stack.client, "v1.subresources.kubevirt.io")
            .await
            .unwrap();
        (stack, launcher)
    }

    async fn kubectl(&self, args: &[&str]) -> String {
        self.plane.kubectl(args.iter().copied()).await.unwrap()
    }

    async fn apply(&self, file: &std::path::Path) {
        self.kubectl(&["apply", "--server-side", "-f", &file.to_string_lossy()])
            .await;
    }

    async fn token(&self, namespace: &str, name: &str) -> String {
        let token = self
            .kubectl(&["create", "token", name, "-n", namespace, "--duration=1h"])
            .await;
        token.trim().to_owned()
    }

    /// A kubeconfig with nothing but the ServiceAccount's token.
    async fn service_account(&self, namespace: &str, name: &str) -> PathBuf {
        let token = self.token(namespace, name).await;
        let admin = kube::config::Kubeconfig::read_from(self.plane.kubeconfig()).unwrap();
        let cluster = admin.clusters.first().unwrap();
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [cluster],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "c", "context": {"cluster": cluster.name, "user": "u"}}],
        });
        let path = self.plane.dir().join(format!("{name}.kubeconfig"));
        std::fs::write(&path, config.to_string()).unwrap();
        path
    }

    /// A ServiceAccount in `team` with one of Kubernetes' roles; its token.
    async fn user(&self, name: &str, role: &str) -> String {
        self.kubectl(&["create", "serviceaccount", name, "-n", "team"])
            .await;
        let binding = ["create", "rolebinding", name, "-n", "team"];
        let (role, account) = (
            format!("--clusterrole={role}"),
            format!("--serviceaccount=team:{name}"),
        );
        self.kubectl(&[&binding[..], &[role.as_str(), account.as_str()]].concat())
            .await;
        self.token("team", name).await
    }

    /// Bytes to and from kube-apiserver.
    async fn wire(&self) -> Wire {
        let config = self.plane.config();
        let url = &config.cluster_url;
        let host = url.host().unwrap().trim_matches(['[', ']']).to_owned();
        let pem: String = config
            .root_cert
            .unwrap()
            .iter()
            .map(|der| pem_of(der))
            .collect();
        let address = format!("{}:{}", url.host().unwrap(), url.port_u16().unwrap());
        Wire::connect(&address, &host, tls::client(&pem, None).unwrap()).await
    }

    fn vms(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), "team", &vm_resource())
    }

    fn vmis(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), "team", &vmi_resource())
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "team")
    }

    /// The one launcher that is not on its way out.
    async fn launcher(&self) -> Pod {
        until("a launcher", || async {
            let list = self
                .pods()
                .list(&ListParams::default().labels("kubevirt.io=virt-launcher"))
                .await
                .unwrap();
            list.items
                .into_iter()
                .find(|p| p.metadata.deletion_timestamp.is_none())
        })
        .await
    }

    async fn printable(&self, name: &str, want: &str) {
        until(&format!("{name} to be {want}"), || async {
            let vm = self.vms().get(name).await.unwrap();
            (vm.data["status"]["printableStatus"] == want).then_some(())
        })
        .await;
    }

    /// What scheduler and kubelet do to a Pod that starts.
    async fn run_pod(&self, pod: &Pod, address: IpAddr) {
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod.name_any()},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "node1"}});
        let bound: Result<Value, _> = self
            .pods()
            .create_subresource("binding", &pod.name_any(), &PostParams::default(), &binding)
            .await;
        bound.unwrap();
        let status = json!({"status": {
            "phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
            "conditions": [{"type": "Ready", "status": "True"}],
        }});
        self.pods()
            .patch_status(
                &pod.name_any(),
                &PatchParams::default(),
                &Patch::Merge(status),
            )
            .await
            .unwrap();
    }

    /// What a kubelet does at the end of a Pod that is being deleted.
    async fn reap(&self, pod: &Pod) {
        until("the launcher's deletion", || async {
            let pod = self.pods().get(&pod.name_any()).await.unwrap();
            pod.metadata.deletion_timestamp
        })
        .await;
        let now = DeleteParams {
            grace_period_seconds: Some(0),
            ..DeleteParams::default()
        };
        self.pods().delete(&pod.name_any(), &now).await.unwrap();
    }
}

fn pem_of(der: &[u8]) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<&str> = text
        .as_bytes()
        .chunks(64)
        .map(|c| std::str::from_utf8(c).unwrap())
        .collect();
    format!(
        "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
        lines.join("\n")
    )
}

/// Waits for a condition, and says which one did not come.
async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut look: impl FnMut() -> F) -> T {
    let found = tokio::time::timeout(LIMIT, async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    found
        .await
        .unwrap_or_else(|_| panic!("waited in vain for {what}"))
}

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
    let (stack, listener) = Stack::start().await;
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
    assert_eq!(spec.cloud_init.unwrap().user_data, "#cloud-config");

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
    let reviews: Api<SubjectAccessReview> = Api::all(stack.client.clone());
    let review = serde_json::from_value(json!({"spec": {
        "user": "system:serviceaccount:team:editor",
        "resourceAttributes": {"verb": "get", "group": "subresources.kubevirt.io", "namespace": "team",
            "resource": "virtualmachineinstances", "subresource": "console", "name": "demo"},
    }}))
    .unwrap();
    until("the editor's rights", || async {
        let answer = reviews.create(&PostParams::default(), &review).await;
        answer.unwrap().status.unwrap().allowed.then_some(())
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
