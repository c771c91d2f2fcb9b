//! One workspace, once: read, plan, apply, observe, write the status. Nothing is decided here.

use std::sync::Arc;
use std::time::Duration;

use apiserver_generic::{ApiError, Object};
use apiservice::v1alpha1::{ResolvedImage, WorkspaceStatus, WorkspaceType};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;
use tracing::warn;

use crate::apply::{Applier, Report};
use crate::cluster::CallError;
use crate::key::Key;
use crate::kinds::Kind;
use crate::names::{WORKSPACE_NAME, child_name};
use crate::observe::{self, Observed, Situation};
use crate::plan::{self, Facts, Plan, Settings, UserData, Workspace};
use crate::stores::Stores;
use crate::triggers::Caches;

/// Why a workspace could not be reconciled this time.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReconcileError {
    /// Our own storage.
    #[error("storage: {0}")]
    Storage(#[from] ApiError),
    /// A call to the cluster.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// What reconciling needs.
pub(crate) struct Reconciler {
    pub(crate) stores: Stores,
    pub(crate) applier: Applier,
    pub(crate) caches: Caches,
    pub(crate) kubevirt: watch::Receiver<bool>,
    /// When to look again at the latest, although nothing is known to have changed.
    pub(crate) look_again: Duration,
}

/// What the cluster refused may be put right by what we do not watch: a quota, a foreign object.
const REFUSED_AGAIN: Duration = Duration::from_secs(15);

impl Reconciler {
    /// Brings one workspace up to date; returns when to look at it again, `None` if it is gone.
    pub(crate) async fn reconcile(&self, key: &Key) -> Result<Option<Duration>, ReconcileError> {
        let object = self.stores.workspaces.get(key).await?;
        // The garbage collector deletes what a workspace owns.
        let Some(object) = object.filter(|object| object.deletion_timestamp().is_none()) else {
            self.applier.forget(key);
            return Ok(None);
        };
        let Some(workspace) = Workspace::read(&object) else {
            warn!(workspace = %key, "skipped: it lacks a UID or has a type that is not known");
            return Ok(None);
        };
        let (image, settings) = self.image(&object, &workspace).await?;
        let user_data = self.user_data(image.as_ref(), &settings).await?;
        let kubevirt = *self.kubevirt.borrow();
        let plan = plan::plan(&workspace, &settings, user_data, Facts { kubevirt });
        let report = self
            .applier
            .apply(&workspace.owner, &plan, &self.caches)
            .await?;
        let status = self.observe(&workspace, &plan, &report, image, &object, kubevirt);
        self.write(key, &workspace, &object, &status).await?;
        Ok(Some(self.next_look(&report)))
    }

    fn next_look(&self, report: &Report) -> Duration {
        let refused = report.failure.as_ref().map(|_| REFUSED_AGAIN);
        let earliest = report.again.into_iter().chain(refused).min();
        earliest.unwrap_or(self.look_again).min(self.look_again)
    }

    /// The catalog entry on record; looked up and recorded before anything is made from it.
    async fn image(
        &self,
        object: &Object,
        workspace: &Workspace,
    ) -> Result<(Option<ResolvedImage>, Settings), ReconcileError> {
        if workspace.kind != WorkspaceType::Vm {
            return Ok((None, Settings::default()));
        }
        if let Some((record, settings)) = Settings::recorded(object, workspace.image()) {
            return Ok((Some(record), settings));
        }
        let images = self.stores.images.list().await?;
        let (record, settings) = plan::resolve(workspace.image(), &images);
        let mut status = object.pointer("/status").cloned().unwrap_or_default();
        if !status.is_object() {
            status = json!({});
        }
        status["image"] = json!(record);
        let owner = &workspace.owner;
        let workspaces = &self.stores.workspaces;
        workspaces
            .write_status(&owner.key(), &owner.uid, status)
            .await?;
        Ok((Some(record), settings))
    }

    async fn user_data(
        &self,
        image: Option<&ResolvedImage>,
        settings: &Settings,
    ) -> Result<UserData, ReconcileError> {
        let Some(record) = image.filter(|_| settings.cloud_init) else {
            return Ok(None);
        };
        let images = self.stores.images.list().await?;
        Ok(Some(plan::user_data(record, &images)))
    }

    fn observe(
        &self,
        workspace: &Workspace,
        plan: &Plan,
        report: &Report,
        image: Option<ResolvedImage>,
        object: &Object,
        kubevirt: bool,
    ) -> WorkspaceStatus {
        let seen = self.see(workspace);
        let situation = Situation {
            workspace,
            plan,
            kubevirt,
            failure: report.failure.as_ref(),
            observed: Observed {
                workload: seen.workload.as_deref(),
                instance: seen.instance.as_deref(),
                pods: seen.pods.iter().map(AsRef::as_ref).collect(),
            },
            image,
        };
        observe::status(&situation, &status_of(object).conditions, Timestamp::now())
    }

    fn see(&self, workspace: &Workspace) -> Seen {
        let owner = &workspace.owner;
        let namespace = &owner.namespace;
        let get = |kind, name: &str| self.caches.get(kind, namespace, name);
        let child = child_name(&owner.name);
        let (workload, instance) = match workspace.kind {
            WorkspaceType::Container => (get(Kind::StatefulSet, &child), None),
            WorkspaceType::Scratch => (get(Kind::Deployment, &child), None),
            WorkspaceType::Vm => (
                get(Kind::VirtualMachine, &owner.name),
                get(Kind::VirtualMachineInstance, &owner.name),
            ),
        };
        let ours = |pod: &Object| pod.label(WORKSPACE_NAME) == Some(owner.name.as_str());
        Seen {
            workload,
            instance,
            pods: self.caches.select(Kind::Pod, namespace, ours),
        }
    }

    async fn write(
        &self,
        key: &Key,
        workspace: &Workspace,
        object: &Object,
        status: &WorkspaceStatus,
    ) -> Result<(), ReconcileError> {
        if *status == status_of(object) {
            return Ok(());
        }
        let value = serde_json::to_value(status).unwrap_or(Value::Null);
        let workspaces = &self.stores.workspaces;
        workspaces
            .write_status(key, &workspace.owner.uid, value)
            .await?;
        Ok(())
    }
}

/// Live objects that may be the workspace's.
struct Seen {
    workload: Option<Arc<Object>>,
    instance: Option<Arc<Object>>,
    pods: Vec<Arc<Object>>,
}

/// The status as it is; one of another shape counts as none, and is replaced.
fn status_of(object: &Object) -> WorkspaceStatus {
    let status = object.pointer("/status").cloned().unwrap_or_default();
    serde_json::from_value(status).unwrap_or_default()
}
