//! Claims on streams over a real control plane, with the rights and under the policies that the
//! server is deployed with: two replicas, their Leases, and the stored sessions.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use apiserver_generic::{
    Scope, UserInfo,
    storage::cluster::{ClusterStorage, StoredKind},
};
use apiservice::v1alpha1::SessionMode;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, api::ListParams};
use localcluster::harness::ControlPlane;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use workspaces_apiserver::{
    sessions::{
        Held, Reach, SessionDeps, Sessions, Timing, lease::ClusterLeases, record::Wish,
        replica::ReplicaId,
    },
    streams::close::CloseReason,
};

const USER: &str = "system:serviceaccount:kubeworkspaces-system:workspaces-apiserver";
const NAMESPACE: &str = "kubeworkspaces-system";
const PATIENCE: Duration = Duration::from_secs(60);

struct Replica {
    sessions: Sessions,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Replica {
    async fn start(plane: &ControlPlane, pod: &str, nonce: &str) -> Result<Self> {
        let client = plane.client_as(USER, &["system:serviceaccounts"])?;
        let kind = StoredKind {
            group: "storage.kubeworkspaces.io".into(),
            version: "v1".into(),
            plural: "storedworkspacesessions".into(),
            kind: "StoredWorkspaceSession".into(),
            scope: Scope::Namespaced,
        };
        let deps = SessionDeps {
            storage: Arc::new(ClusterStorage::new(client.clone(), kind, pod, NAMESPACE)),
            leases: Arc::new(ClusterLeases::new(client, NAMESPACE)),
            me: ReplicaId::new(pod, nonce),
            timing: Timing::default(),
        };
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let sessions = Sessions::start(deps, &tasks, &stop);
        let ready = async {
            while sessions.ready().is_err() {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(PATIENCE, ready)
            .await
            .context("no Lease was renewed")?;
        Ok(Self {
            sessions,
            tasks,
            stop,
        })
    }

    async fn end(self) -> Result<()> {
        self.stop.cancel();
        self.tasks.close();
        timeout(PATIENCE, self.tasks.wait()).await?;
        Ok(())
    }
}

fn wish(user: &str) -> Wish {
    Wish {
        namespace: "t1".into(),
        workspace: "demo".into(),
        workspace_uid: "00000000-0000-0000-0000-000000000001".into(),
        mode: SessionMode::Console,
        user: UserInfo {
            name: user.into(),
            ..UserInfo::default()
        },
        client_address: "192.0.2.7".into(),
        audit_id: "audit-1".into(),
        claim: Sessions::new_claim(),
    }
}

async fn claim_soon(sessions: &Sessions) -> Result<Held> {
    let claiming = async {
        loop {
            match sessions.claim(&wish("joe")).await {
                Ok(held) => return held,
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        }
    };
    Ok(timeout(PATIENCE, claiming).await?)
}

async fn prepare(plane: &ControlPlane) -> Result<()> {
    for namespace in [NAMESPACE, "t1"] {
        plane.kubectl(["create", "namespace", namespace]).await?;
    }
    let base = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/base");
    for file in ["generated/crds.yaml", "policies.yaml", "rbac.yaml"] {
        let path = format!("{base}/{file}");
        plane.kubectl(["apply", "-f", &path]).await?;
    }
    plane
        .kubectl([
            "wait",
            "--for=condition=Established",
            "--timeout=60s",
            "crd",
            "--all",
        ])
        .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_holder_over_two_replicas_of_a_real_control_plane() -> Result<()> {
    let plane = ControlPlane::start().await?;
    prepare(&plane).await?;
    let one = Replica::start(&plane, "pod-1", "a").await?;
    let two = Replica::start(&plane, "pod-2", "a").await?;

    let held = one.sessions.claim(&wish("jane")).await?;
    let refused = two.sessions.claim(&wish("joe")).await.err();
    let refused = refused.context("two holders")?;
    ensure!(refused.message.contains("jane"), "{}", refused.message);
    held.release().await;

    let mut held = two.sessions.claim(&wish("joe")).await?;
    let sessions = one.sessions.clone();
    let taking =
        tokio::spawn(async move { sessions.take_over(&wish("jim"), Reach::Anybodys).await });
    let told = timeout(PATIENCE, held.told()).await?;
    ensure!(told == CloseReason::TakenOver, "{told:?}");
    held.release().await;
    let taken = timeout(PATIENCE, taking).await???;

    // A container that is killed and started in place: nobody has released anything.
    std::mem::forget(taken);
    one.stop.cancel();
    let restarted = Replica::start(&plane, "pod-1", "b").await?;
    let began = Instant::now();
    let held = claim_soon(&restarted.sessions).await?;
    ensure!(
        began.elapsed() < Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
    held.release().await;

    restarted.end().await?;
    two.end().await?;
    one.end().await?;
    let leases: Api<Lease> = Api::namespaced(plane.client()?, NAMESPACE);
    let left = leases.list(&ListParams::default()).await?.items;
    ensure!(left.is_empty(), "Leases stay behind: {left:?}");
    Ok(())
}
