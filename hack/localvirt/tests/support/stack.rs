//! localvirt in front of a control plane of its own, as it is deployed.

#![allow(dead_code, reason = "each test file uses what it needs")]

use std::{net::IpAddr, path::PathBuf, time::Duration};

use base64::Engine as _;
use clap::Parser as _;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::DynamicObject,
};
use localcluster::harness::{ControlPlane, external_name_service, wait_available};
use localvirt::{
    api::{vm_resource, vmi_resource},
    options::Options,
    run::Localvirt,
    setup::API_SERVICES,
    tls,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::support::Wire;

/// How long anything may take.
const LIMIT: Duration = Duration::from_secs(60);

/// A control plane with localvirt in front of nothing: the shipped manifests, the ServiceAccount's token, no more.
pub(crate) struct Stack {
    pub(crate) plane: ControlPlane,
    pub(crate) client: Client,
    pub(crate) shutdown: CancellationToken,
}

impl Drop for Stack {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

pub(crate) fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name)
}

impl Stack {
    /// `flags` are localvirt's.
    pub(crate) async fn start(flags: &[&str]) -> Self {
        let plane = ControlPlane::start().await.unwrap();
        let client = plane.client().unwrap();
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
        let account = stack.service_account("localvirt", "localvirt").await;
        let fixed = ["localvirt", "--listen=127.0.0.1:0", "--kubeconfig"];
        let account = account.to_string_lossy();
        let all = fixed
            .iter()
            .copied()
            .chain([account.as_ref()])
            .chain(flags.iter().copied());
        let options = Options::try_parse_from(all).unwrap();
        let localvirt = Localvirt::start(&options).await.unwrap();
        let port = localvirt.address().unwrap().port();
        tokio::spawn(localvirt.run(stack.shutdown.clone()));
        stack.apply(&folder("deploy/apiservice.yaml")).await;
        let patch = json!({"spec": {"service": {"port": port}}}).to_string();
        for name in API_SERVICES {
            stack
                .kubectl(&["patch", "apiservice", name, "--type=merge", "-p", &patch])
                .await;
            wait_available(&stack.client, name).await.unwrap();
        }
        stack
    }

    pub(crate) async fn kubectl(&self, args: &[&str]) -> String {
        self.plane.kubectl(args.iter().copied()).await.unwrap()
    }

    pub(crate) async fn apply(&self, file: &std::path::Path) {
        self.kubectl(&["apply", "--server-side", "-f", &file.to_string_lossy()])
            .await;
    }

    pub(crate) async fn token(&self, namespace: &str, name: &str) -> String {
        let token = self
            .kubectl(&["create", "token", name, "-n", namespace, "--duration=1h"])
            .await;
        token.trim().to_owned()
    }

    /// A kubeconfig with nothing but the ServiceAccount's token.
    pub(crate) async fn service_account(&self, namespace: &str, name: &str) -> PathBuf {
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
    pub(crate) async fn user(&self, name: &str, role: &str) -> String {
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
    pub(crate) async fn wire(&self) -> Wire {
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

    pub(crate) fn vms(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), "team", &vm_resource())
    }

    pub(crate) fn vmis(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), "team", &vmi_resource())
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "team")
    }

    /// The one launcher that is not on its way out.
    pub(crate) async fn launcher(&self) -> Pod {
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

    pub(crate) async fn printable(&self, name: &str, want: &str) {
        until(&format!("{name} to be {want}"), || async {
            let vm = self.vms().get(name).await.unwrap();
            (vm.data["status"]["printableStatus"] == want).then_some(())
        })
        .await;
    }

    /// What scheduler and kubelet do to a Pod that starts.
    pub(crate) async fn run_pod(&self, pod: &Pod, address: IpAddr) {
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
    pub(crate) async fn reap(&self, pod: &Pod) {
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
pub(crate) async fn until<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut look: impl FnMut() -> F,
) -> T {
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
