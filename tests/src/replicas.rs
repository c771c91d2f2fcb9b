//! A replica's sessions in the test's own process: over the real control plane, with the rights and
//! under the policies that the server is deployed with, but without anything to dial.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use apiserver_generic::{
    Scope, UserInfo,
    storage::cluster::{ClusterStorage, StoredKind},
};
use apiservice::v1alpha1::SessionMode;
use localcluster::harness::ControlPlane;
use tokio::time::{sleep, timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use workspaces_apiserver::sessions::{
    Held, SessionDeps, Sessions, Timing, lease::ClusterLeases, record::Wish, replica::ReplicaId,
};

use crate::deployment::NAMESPACE;

/// The server's own user.
pub const USER: &str = "system:serviceaccount:kubeworkspaces-system:workspaces-apiserver";
/// How long anything may take on a machine that compiles meanwhile.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The sessions of one replica.
pub struct Replica {
    /// Claims and shared sessions.
    pub sessions: Sessions,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Replica {
    /// A pod's container, told from its earlier starts by the nonce.
    ///
    /// # Errors
    /// When it cannot renew its Lease.
    pub async fn start(plane: &ControlPlane, pod: &str, nonce: &str) -> Result<Self> {
        Self::start_with(plane, pod, nonce, Timing::default()).await
    }

    /// The same with other times.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_with(
        plane: &ControlPlane,
        pod: &str,
        nonce: &str,
        timing: Timing,
    ) -> Result<Self> {
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
            timing,
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

    /// Claims again and again until it is granted.
    ///
    /// # Errors
    /// When it is not granted in a minute.
    pub async fn claim_soon(&self, wish: impl Fn() -> Wish) -> Result<Held> {
        let claiming = async {
            loop {
                match self.sessions.claim(&wish()).await {
                    Ok(held) => return held,
                    Err(_) => sleep(Duration::from_millis(100)).await,
                }
            }
        };
        Ok(timeout(PATIENCE, claiming).await?)
    }

    /// Stops without waiting, as if killed but for its Lease.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Ends it in order.
    ///
    /// # Errors
    /// When it does not end in a minute.
    pub async fn end(self) -> Result<()> {
        self.stop.cancel();
        self.tasks.close();
        timeout(PATIENCE, self.tasks.wait()).await?;
        Ok(())
    }
}

/// What somebody wants of the workspace `demo` with this UID.
pub fn wish(namespace: &str, workspace_uid: &str, user: &str, mode: SessionMode) -> Wish {
    Wish {
        namespace: namespace.into(),
        workspace: "demo".into(),
        workspace_uid: workspace_uid.into(),
        mode,
        port: None,
        user: UserInfo {
            name: user.into(),
            groups: vec!["devs".into(), "system:authenticated".into()],
            ..UserInfo::default()
        },
        client_address: "192.0.2.7".into(),
        audit_id: "audit-1".into(),
        claim: Sessions::new_claim(),
    }
}
