//! One workspace, once: read, plan, apply, observe, write the status. Nothing is decided here.

use std::sync::Arc;
use std::time::Duration;

use apiserver_generic::{ApiError, Object};
use apiservice::v1alpha1::{ResolvedImage, START_PAUSED, WorkspaceStatus, WorkspaceType};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;
use tracing::warn;

use crate::apply::{Applier, Report};
use crate::cluster::CallError;
use crate::events::{self, Announcer, Child};
use crate::key::Key;
use crate::kinds::Kind;
use crate::names::{WORKSPACE_NAME, child_name};
use crate::observe::{self, Observed, Situation, is_owned};
use crate::plan::{self, Facts, PausedStart, Plan, Settings, UserData, Workspace};
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
    pub(crate) announcer: Announcer,
    pub(crate) applier: Applier,
    pub(crate) caches: Caches,
    pub(crate) kubevirt: watch::Receiver<bool>,
    /// When to look again at the latest, although nothing is known to have changed.
    pub(crate) look_again: Duration,
}

/// What the cluster refused may be put right by what we do not watch: a quota, a foreign object.
const REFUSED_AGAIN: Duration = Duration::from_secs(15);
/// A machine that is started paused is looked at this often until KubeVirt has started it.
const STARTING_AGAIN: Duration = Duration::from_secs(2);

impl Reconciler {
    /// Brings one workspace up to date; returns when to look at it again, `None` if it is gone or
    /// going.
    pub(crate) async fn reconcile(&self, key: &Key) -> Result<Option<Duration>, ReconcileError> {
        let object = self.stores.workspaces.get(key).await?;
        let Some(object) = object else {
            self.applier.forget(key);
            return Ok(None);
        };
        let Some(mut workspace) = Workspace::read(&object) else {
            warn!(workspace = %key, "skipped: it lacks a UID or has a type that is not known");
            return Ok(None);
        };
        if workspace.ending.is_some() {
            self.watch_the_end(key, &workspace, &object).await?;
            return Ok(None);
        }
        let paused = self.paused_start(&mut workspace).await?;
        let (image, settings) = self.image(&object, &workspace).await?;
        let user_data = match workspace.kind {
            WorkspaceType::Vm => self.user_data(image.as_ref(), &settings).await?,
            WorkspaceType::Container | WorkspaceType::Scratch => None,
        };
        let kubevirt = *self.kubevirt.borrow();
        let plan = plan::plan(&workspace, &settings, user_data, Facts { kubevirt });
        let report = self
            .applier
            .apply(&workspace.owner, &plan, &self.caches)
            .await?;
        self.announce_children(&workspace, &report);
        let status = self.observe(&workspace, &plan, &report, image, &object, kubevirt);
        self.write(key, &workspace, &object, &status).await?;
        if paused == PausedStart::Ask && plan.blocker().is_none() {
            self.applier.start_paused(&workspace.owner).await?;
        }
        let next = self.next_look(&report);
        Ok(Some(match paused {
            PausedStart::Make | PausedStart::Ask => next.min(STARTING_AGAIN),
            PausedStart::None | PausedStart::Over => next,
        }))
    }

    /// How far a paused start is; when it is over, the wish is taken from the workspace.
    async fn paused_start(&self, workspace: &mut Workspace) -> Result<PausedStart, ReconcileError> {
        let seen = self.see(workspace);
        let machine = seen.workload.as_deref();
        let own = machine.filter(|machine| is_owned(machine, &workspace.owner.uid));
        let paused = plan::paused_start(workspace, own);
        if paused == PausedStart::Over {
            let owner = &workspace.owner;
            let workspaces = &self.stores.workspaces;
            workspaces
                .remove_annotation(&owner.key(), &owner.uid, START_PAUSED)
                .await?;
            workspace.start_paused = false;
        }
        Ok(paused)
    }

    /// The garbage collector deletes what a workspace owns: here it is only told how far it is.
    async fn watch_the_end(
        &self,
        key: &Key,
        workspace: &Workspace,
        object: &Object,
    ) -> Result<(), ReconcileError> {
        self.applier.forget(key);
        let (plan, report) = (Plan::default(), Report::default());
        let image = status_of(object).image;
        let kubevirt = *self.kubevirt.borrow();
        let status = self.observe(workspace, &plan, &report, image, object, kubevirt);
        self.write(key, workspace, object, &status).await
    }

    fn announce_children(&self, workspace: &Workspace, report: &Report) {
        let made = report.created.iter().map(|(kind, name)| {
            let (kind, name) = (*kind, name.clone());
            events::created(Child { kind, name })
        });
        self.announcer.announce(&workspace.owner, made.collect());
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
        if let Some((record, settings)) = Settings::recorded(object, workspace.image()) {
            return Ok((Some(record), settings));
        }
        let (record, settings) = self.resolve(workspace.image()).await?;
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
        // A container needs no entry.
        if workspace.kind == WorkspaceType::Vm && record.name.is_empty() {
            let notice = events::unresolved(workspace.image());
            self.announcer.announce(owner, vec![notice]);
        }
        Ok((Some(record), settings))
    }

    /// What is found now counts for good: that there is no entry is believed of the storage only, and
    /// not of a cache that may not know yet what was applied together with the workspace.
    async fn resolve(&self, image: &str) -> Result<(ResolvedImage, Settings), ReconcileError> {
        let images = &self.stores.images;
        let found = plan::resolve(image, &images.list().await?);
        if !found.0.name.is_empty() {
            return Ok(found);
        }
        Ok(plan::resolve(image, &images.latest().await?))
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
        let before = status_of(object);
        WorkspaceStatus {
            // Not ours to judge, and kept by the server whatever is written.
            ssh: before.ssh,
            ..observe::status(&situation, &before.conditions, Timestamp::now())
        }
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
        let before = status_of(object);
        if *status == before {
            return Ok(());
        }
        let value = serde_json::to_value(status).unwrap_or(Value::Null);
        let workspaces = &self.stores.workspaces;
        workspaces
            .write_status(key, &workspace.owner.uid, value)
            .await?;
        let notices = events::notices(&before, status);
        self.announcer.announce(&workspace.owner, notices);
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
