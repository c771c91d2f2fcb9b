//! Pins of host keys against a real OpenSSH server and a real control plane, with the rights that the
//! server is deployed with.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use apiserver_generic::{
    ApiError, Key, Object,
    cache::Freshness,
    registry::{Parts, Registry, Writer},
    storage::MemoryStorage,
};
use apiservice::{
    resources::WorkspaceStrategy,
    v1alpha1::{RootIdentity, RootKind},
};
use async_trait::async_trait;
use k8s_openapi::api::events::v1::Event;
use kube::{
    Api, Client,
    api::{ListParams, PostParams},
};
use kubeworkspaces_tests::sshd::Sshd;
use localcluster::harness::ControlPlane;
use serde_json::{Value, json};
use tokio::{net::TcpStream, time::timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use workspaces_apiserver::streams::{
    relay::Connection,
    ssh::hostkeys::{Dial, HostKeys, Hosts as _, OnChange, Owner, Root, SHARED, Subject, identify},
};

const USER: &str = "system:serviceaccount:kubeworkspaces-system:workspaces-apiserver";
const PATIENCE: Duration = Duration::from_secs(30);
/// Three types that are there, and one that is not, which tells of the rest.
const FIRST_LOOK: usize = 4;

/// The way to a server, which may move; counts who goes.
struct To {
    address: Mutex<SocketAddr>,
    dials: AtomicUsize,
}

#[async_trait]
impl Dial for To {
    async fn dial(&self) -> Result<Box<dyn Connection>, ApiError> {
        self.dials.fetch_add(1, Ordering::SeqCst);
        let address = *self
            .address
            .lock()
            .map_err(|_| ApiError::internal("poisoned"))?;
        let stream = TcpStream::connect(address).await;
        Ok(Box::new(stream.map_err(ApiError::internal)?))
    }
}

struct Scene {
    plane: ControlPlane,
    client: Client,
    registry: Registry,
    keys: HostKeys,
    stop: CancellationToken,
}

impl Scene {
    async fn open() -> Result<Self> {
        let plane = ControlPlane::start().await?;
        for namespace in ["kubeworkspaces-system", "t1"] {
            plane.kubectl(["create", "namespace", namespace]).await?;
        }
        let rbac = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/base/rbac.yaml");
        plane.kubectl(["apply", "-f", rbac]).await?;
        let client = plane.client_as(USER, &["system:serviceaccounts"])?;
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let strategy = Arc::new(WorkspaceStrategy::new());
        let parts = Parts::new(strategy, Arc::new(MemoryStorage::default()));
        let registry = Registry::start(parts, &tasks, &stop);
        Ok(Self {
            keys: HostKeys::new(registry.clone(), client.clone()),
            plane,
            client,
            registry,
            stop,
        })
    }

    /// A workspace whose guest is this server.
    async fn subject(&self, name: &str, sshd: &Sshd) -> Result<(Subject, Arc<To>)> {
        let workspace = json!({
            "apiVersion": "kubeworkspaces.io/v1alpha1", "kind": "Workspace",
            "metadata": {"name": name, "namespace": "t1"},
            "spec": {"type": "vm", "template": {"spec": {"containers": [{"name": "a", "image": "i"}]}}},
        });
        let workspace = Object::from_value(workspace).map_err(|_| anyhow::anyhow!("no object"))?;
        let writer = Writer::server("test");
        let written = self.registry.create(&writer, Some("t1"), workspace).await?;
        let to = Arc::new(To {
            address: Mutex::new(sshd.address()),
            dials: AtomicUsize::new(0),
        });
        let subject = Subject {
            owner: Owner {
                namespace: "t1".into(),
                name: name.into(),
                uid: written.object.uid().context("no UID")?.to_owned(),
            },
            pod_uid: format!("pod-of-{name}"),
            root: RootIdentity {
                kind: RootKind::VirtualMachineInstance,
                uid: "instance-1".into(),
            },
            dial: to.clone(),
        };
        Ok((subject, to))
    }

    fn key(name: &str) -> Key {
        Key {
            namespace: Some("t1".into()),
            name: name.into(),
        }
    }

    async fn status(&self, name: &str) -> Result<Value> {
        let object = self
            .registry
            .get(&Self::key(name), Freshness::Latest)
            .await?;
        Ok(object.pointer("/status/ssh").cloned().unwrap_or_default())
    }

    async fn event(&self, reason: &str, about: &str) -> Result<Event> {
        let events: Api<Event> = Api::namespaced(self.plane.client()?, "t1");
        let looking = async {
            loop {
                let found = events.list(&ListParams::default()).await?;
                let wanted = |event: &Event| {
                    let name = event.regarding.as_ref().and_then(|r| r.name.as_deref());
                    event.reason.as_deref() == Some(reason) && name == Some(about)
                };
                if let Some(event) = found.items.into_iter().find(wanted) {
                    return Ok(event);
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(PATIENCE, looking)
            .await
            .context(format!("no Event {reason}"))?
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_12_pinned_host_keys_after_a_rebuild() -> Result<()> {
    let scene = Scene::open().await?;
    first_contact(&scene).await?;
    changed_and_accepted(&scene).await?;
    rebuilt(&scene).await?;
    claims_of_roots(&scene).await
}

async fn first_contact(scene: &Scene) -> Result<()> {
    let sshd = Sshd::start(&["ed25519", "ecdsa", "rsa"], "").await?;
    let (subject, to) = scene.subject("first", &sshd).await?;
    // All at once, as automation comes: one look, one pin.
    let pinning = (0..50).map(|_| scene.keys.pin(&subject, OnChange::Refuse));
    let pins = futures::future::try_join_all(pinning).await?;
    ensure!(pins.iter().all(|pin| *pin == pins[0]), "one pin");
    let dials = to.dials.swap(0, Ordering::SeqCst);
    ensure!(dials == FIRST_LOOK, "{dials} connections");

    let status = scene.status("first").await?;
    for (index, kind) in ["ed25519", "ecdsa", "rsa"].into_iter().enumerate() {
        let shown = &status["hostKeys"][index];
        ensure!(shown["key"] == sshd.host_key(kind)?, "{status}");
    }
    ensure!(
        status["hostKeys"][0]["algorithm"] == "ssh-ed25519",
        "{status}"
    );
    ensure!(status["root"]["uid"] == "instance-1", "{status}");

    // Many tunnels at once share a proof, and the pin is only read.
    for _ in 0..20 {
        let pin = scene.keys.pin(&subject, OnChange::Refuse).await?;
        scene.keys.prove(&subject, &pin).await?;
    }
    let dials = to.dials.load(Ordering::SeqCst);
    ensure!((1..20).contains(&dials), "{dials} connections");

    // A status update, whoever sends it, leaves the pin alone.
    let clear = |object: &mut Object| {
        object
            .fields_mut()
            .insert("status".into(), json!({"phase": "Running"}));
        Ok(())
    };
    let writer = Writer::server("somebody");
    let key = Scene::key("first");
    scene
        .registry
        .update_with(&writer, &key, Some("status"), clear)
        .await?;
    ensure!(
        scene.status("first").await? == status,
        "the pin was changed"
    );

    // A pin is a workspace's, not a name's.
    let mut other = subject.clone();
    other.owner.uid = "another".into();
    let error = scene.keys.pin(&other, OnChange::Refuse).await.err();
    ensure!(error.context("pinned")?.reason.code() == 404);
    Ok(())
}

async fn changed_and_accepted(scene: &Scene) -> Result<()> {
    let mut sshd = Sshd::start(&["ed25519", "rsa"], "").await?;
    let (subject, to) = scene.subject("changed", &sshd).await?;
    let pin = scene.keys.pin(&subject, OnChange::Refuse).await?;
    scene.keys.prove(&subject, &pin).await?;
    sshd.renew("ed25519").await?;
    *to.address.lock().map_err(|_| anyhow::anyhow!("poisoned"))? = sshd.address();
    tokio::time::sleep(SHARED).await;

    let error = scene
        .keys
        .prove(&subject, &pin)
        .await
        .err()
        .context("not refused")?;
    ensure!(error.reason.code() == 409, "{error}");
    let old = &pin.host_keys[0].fingerprint;
    ensure!(error.message.contains(old), "{error}");
    ensure!(error.message.contains("--accept-new-host-key"), "{error}");
    let causes = error.details.as_ref().map(|d| d.causes.as_slice());
    ensure!(
        causes.is_some_and(|c| c[0].reason == "HostKeyChanged"),
        "{error:?}"
    );
    let event = scene.event("HostKeyChanged", "changed").await?;
    ensure!(event.type_.as_deref() == Some("Warning"), "{event:?}");
    let note = event.note.unwrap_or_default();
    ensure!(note.contains(old), "{note}");
    let again = scene.keys.pin(&subject, OnChange::Refuse).await?;
    ensure!(again == pin, "a refusal pins nothing");
    let refusal = scene.keys.refusal(&subject, &pin).await;
    ensure!(refusal.reason.code() == 409, "{refusal}");

    let accepted = scene.keys.pin(&subject, OnChange::Accept).await?;
    ensure!(
        accepted.host_keys[0].key == sshd.host_key("ed25519")?,
        "{accepted:?}"
    );
    ensure!(
        accepted.host_keys[1] == pin.host_keys[1],
        "the rsa key is the same"
    );
    scene.keys.prove(&subject, &accepted).await?;
    scene.event("HostKeyAccepted", "changed").await?;
    // Accepting what is pinned already changes nothing.
    let same = scene.keys.pin(&subject, OnChange::Accept).await?;
    ensure!(same == accepted, "{same:?}");
    Ok(())
}

async fn rebuilt(scene: &Scene) -> Result<()> {
    let before = Sshd::start(&["ed25519"], "").await?;
    let (subject, to) = scene.subject("rebuilt", &before).await?;
    let old = scene.keys.pin(&subject, OnChange::Refuse).await?;
    // Stopped and started: another instance, another root, other keys; nobody is asked.
    let after = Sshd::start(&["ed25519"], "").await?;
    *to.address.lock().map_err(|_| anyhow::anyhow!("poisoned"))? = after.address();
    let mut now = subject.clone();
    now.root.uid = "instance-2".into();
    now.pod_uid = "pod-2".into();
    let new = scene.keys.pin(&now, OnChange::Refuse).await?;
    ensure!(
        new.host_keys[0].key == after.host_key("ed25519")?,
        "{new:?}"
    );
    ensure!(new.host_keys != old.host_keys, "the same keys");
    scene.keys.prove(&now, &new).await?;
    Ok(())
}

async fn claims_of_roots(scene: &Scene) -> Result<()> {
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "demo-root"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let claims: Api<k8s_openapi::api::core::v1::PersistentVolumeClaim> =
        Api::namespaced(scene.plane.client()?, "t1");
    let made = claims
        .create(&PostParams::default(), &serde_json::from_value(claim)?)
        .await?;
    let root = identify(&scene.client, "t1", Root::Claim("demo-root".into())).await?;
    ensure!(root.kind == RootKind::PersistentVolumeClaim);
    ensure!(Some(root.uid) == made.metadata.uid);
    let missing = identify(&scene.client, "t1", Root::Claim("nowhere".into()))
        .await
        .err();
    let missing = missing.context("found")?;
    ensure!(
        missing.reason.code() == 400 && missing.message.contains("nowhere"),
        "{missing}"
    );
    Ok(())
}
