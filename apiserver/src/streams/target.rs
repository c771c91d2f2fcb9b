//! What a stream leads to, found again whenever it matters whether it is still the same.

use std::{sync::Arc, time::Duration};

use apiserver_generic::{
    ApiError, Key, Object, Reason, Storage,
    admission::{NamespacePhase, Namespaces},
    storage::StorageError,
};
use apiservice::v1alpha1::GROUP;

use super::{
    close::CloseReason,
    resolve::{Found, Kind, Machine, Target, Workspace, cause, features, fetch::Fetch},
};

/// How long and how often the cause of an end is looked for.
const CAUSE_LIMIT: Duration = Duration::from_secs(1);
const CAUSE_EVERY: Duration = Duration::from_millis(100);

/// Finds targets.
#[derive(Clone)]
pub struct Finder {
    workspaces: Arc<dyn Storage>,
    namespaces: Arc<dyn Namespaces>,
    fetch: Fetch,
}

impl Finder {
    /// Over the stored workspaces and the cluster.
    pub fn new(
        workspaces: Arc<dyn Storage>,
        namespaces: Arc<dyn Namespaces>,
        fetch: Fetch,
    ) -> Self {
        Self {
            workspaces,
            namespaces,
            fetch,
        }
    }

    /// A workspace as it is now.
    ///
    /// # Errors
    /// 404, or 503 when the storage does not answer.
    pub async fn workspace(&self, namespace: &str, name: &str) -> Result<Workspace, ApiError> {
        let found = self.stored(namespace, name).await?;
        found.ok_or_else(|| ApiError::not_found(GROUP, "workspaces", name))
    }

    /// What its streams lead to.
    ///
    /// # Errors
    /// Why there is nothing to connect to.
    pub async fn target(&self, workspace: &Workspace) -> Result<Found, ApiError> {
        match workspace.kind {
            Kind::Vm => self.fetch.machine(workspace).await,
            Kind::Container | Kind::Scratch => self.fetch.container(workspace).await,
        }
    }

    /// The pod of a machine.
    ///
    /// # Errors
    /// It is not there, or the cluster did not answer.
    pub async fn launcher(
        &self,
        workspace: &Workspace,
        machine: &Machine,
    ) -> Result<Object, ApiError> {
        self.fetch.launcher(workspace, machine).await
    }

    /// The address that KubeVirt would dial for this machine at this moment.
    ///
    /// # Errors
    /// The cluster did not answer.
    pub async fn reported_address(
        &self,
        workspace: &Workspace,
        machine: &Machine,
    ) -> Result<Option<String>, ApiError> {
        let instance = self.fetch.instance(&workspace.namespace, &machine.name);
        let instance = instance.await?;
        let same = instance.filter(|vmi| vmi.uid() == Some(&machine.uid));
        Ok(same.and_then(|vmi| features(&vmi).reported_address))
    }

    /// Looks everything up again: the stream must lead where it was authorized to.
    ///
    /// # Errors
    /// It is not the same any more.
    pub async fn confirm(&self, workspace: &Workspace, target: &Target) -> Result<(), ApiError> {
        let now = self
            .workspace(&workspace.namespace, &workspace.name)
            .await?;
        if now.uid == workspace.uid && self.target(&now).await?.target == *target {
            return Ok(());
        }
        Err(ApiError::bad_request(
            "the workspace was replaced or moved while it was dialled; try again",
        )
        .retry_after(1))
    }

    /// Why an upstream ended, if that can be found within a second.
    pub async fn cause(&self, workspace: &Workspace, target: &Target) -> Option<CloseReason> {
        let searching = async {
            loop {
                if let Some(reason) = self.cause_now(workspace, target).await {
                    return reason;
                }
                tokio::time::sleep(CAUSE_EVERY).await;
            }
        };
        tokio::time::timeout(CAUSE_LIMIT, searching).await.ok()
    }

    /// The same from what is there at this moment, within the same second: a control plane that
    /// does not answer must not hold up the end of a stream.
    pub async fn cause_now(&self, before: &Workspace, target: &Target) -> Option<CloseReason> {
        let looking = self.cause_unhurried(before, target);
        tokio::time::timeout(CAUSE_LIMIT, looking).await.ok()?
    }

    async fn cause_unhurried(&self, before: &Workspace, target: &Target) -> Option<CloseReason> {
        match self.cause_beneath(before, target).await? {
            // The namespace controller deletes in no order: guests may go before workspaces.
            CloseReason::GuestGone | CloseReason::PodGone
                if self.namespace_ends(&before.namespace).await =>
            {
                Some(CloseReason::Deleted)
            }
            reason => Some(reason),
        }
    }

    /// Whether the workspace is known, within a second, to be deleted or about to be, alone or with
    /// its namespace.
    pub async fn is_deleted(&self, before: &Workspace) -> bool {
        let looking = self.stored(&before.namespace, &before.name);
        let Ok(Ok(now)) = tokio::time::timeout(CAUSE_LIMIT, looking).await else {
            return false;
        };
        let lives = now.is_some_and(|now| now.uid == before.uid && !now.deleting);
        !lives || self.namespace_ends(&before.namespace).await
    }

    /// The watch may be behind what the end of a guest tells of, so that the cluster is asked too.
    async fn namespace_ends(&self, name: &str) -> bool {
        let ending = Some(NamespacePhase::Terminating);
        if self.namespaces.cached(name) == ending {
            return true;
        }
        let asking = tokio::time::timeout(CAUSE_LIMIT, self.namespaces.live(name));
        matches!(asking.await, Ok(Ok(phase)) if phase == ending)
    }

    async fn cause_beneath(&self, before: &Workspace, target: &Target) -> Option<CloseReason> {
        let now = self.stored(&before.namespace, &before.name).await.ok()?;
        let now = now.filter(|now| now.uid == before.uid);
        match target {
            Target::Machine(machine) => {
                let instance = self
                    .fetch
                    .instance(&before.namespace, &machine.name)
                    .await
                    .ok()?;
                cause(machine, now.as_ref(), instance.as_ref())
            }
            Target::Container(_) => {
                let Some(now) = now else {
                    return Some(CloseReason::Deleted);
                };
                if let Err(unwanted) = now.wanted() {
                    return Some(unwanted.into_close());
                }
                match self.fetch.container(&now).await {
                    Ok(found) => {
                        let same = found.target.pod_uid() == target.pod_uid();
                        (!same).then_some(CloseReason::PodGone)
                    }
                    Err(error) => {
                        (error.reason != Reason::ServiceUnavailable).then_some(CloseReason::PodGone)
                    }
                }
            }
        }
    }

    async fn stored(&self, namespace: &str, name: &str) -> Result<Option<Workspace>, ApiError> {
        let key = Key {
            namespace: Some(namespace.to_owned()),
            name: name.to_owned(),
        };
        match self.workspaces.get(&key).await {
            Ok(stored) => Ok(Some(Workspace::read(&stored.object))),
            Err(StorageError::NotFound) => Ok(None),
            Err(error) => Err(ApiError::new(
                Reason::ServiceUnavailable,
                "the workspace could not be read; try again",
            )
            .retry_after(1)
            .because(error)),
        }
    }
}
