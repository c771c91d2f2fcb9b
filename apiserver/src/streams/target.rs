//! What a console leads to, found again whenever it matters whether it is still the same.

use std::{sync::Arc, time::Duration};

use apiserver_generic::{
    ApiError, Key, Reason, Storage,
    admission::{NamespacePhase, Namespaces},
    storage::StorageError,
};
use apiservice::v1alpha1::GROUP;

use super::{
    close::CloseReason,
    resolve::{Container, Kind, Machine, Workspace, cause, fetch::Fetch},
    upstream::Address,
    wire::{Stdio, UpstreamWire},
};

/// How long and how often the cause of an end is looked for.
const CAUSE_LIMIT: Duration = Duration::from_secs(1);
const CAUSE_EVERY: Duration = Duration::from_millis(100);

/// A resolved upstream, by every UID on the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The serial line of a machine: one holder at a time.
    Serial(Machine),
    /// A shell in a container: each caller gets their own.
    Shell(Container),
}

impl Target {
    /// Where to dial.
    pub fn address(&self, workspace: &Workspace, stdio: Stdio) -> Address {
        let namespace = &workspace.namespace;
        match self {
            Self::Serial(machine) => Address::console(namespace, &machine.name),
            Self::Shell(container) => {
                Address::shell(namespace, container, workspace.shell.as_deref(), stdio)
            }
        }
    }

    /// The dialect that the upstream chose.
    ///
    /// # Errors
    /// It chose one that we did not offer.
    pub fn wire(&self, subprotocol: Option<&str>, stdio: Stdio) -> Result<UpstreamWire, ApiError> {
        match (self, subprotocol, stdio) {
            (Self::Serial(_), ..) => Ok(UpstreamWire::Serial),
            (Self::Shell(_), Some("v5.channel.k8s.io"), _)
            | (Self::Shell(_), Some("v4.channel.k8s.io"), Stdio::Terminal) => {
                Ok(UpstreamWire::exec(stdio))
            }
            (Self::Shell(_), other, _) => Err(ApiError::internal(format!(
                "pods/exec chose the subprotocol {other:?}"
            ))),
        }
    }
}

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

    /// What its console leads to.
    ///
    /// # Errors
    /// Why there is nothing to connect to.
    pub async fn target(&self, workspace: &Workspace) -> Result<Target, ApiError> {
        match workspace.kind {
            Kind::Vm => self.fetch.machine(workspace).await.map(Target::Serial),
            Kind::Container | Kind::Scratch => {
                self.fetch.container(workspace).await.map(Target::Shell)
            }
        }
    }

    /// Looks everything up again: the stream must lead where it was authorized to.
    ///
    /// # Errors
    /// It is not the same any more.
    pub async fn confirm(&self, workspace: &Workspace, target: &Target) -> Result<(), ApiError> {
        let now = self
            .workspace(&workspace.namespace, &workspace.name)
            .await?;
        if now.uid == workspace.uid && self.target(&now).await? == *target {
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

    /// The same from what is there at this moment.
    pub async fn cause_now(&self, before: &Workspace, target: &Target) -> Option<CloseReason> {
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

    /// Whether the workspace is deleted or about to be, alone or with its namespace.
    pub async fn is_deleted(&self, before: &Workspace) -> bool {
        let Ok(now) = self.stored(&before.namespace, &before.name).await else {
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
            Target::Serial(machine) => {
                let instance = self
                    .fetch
                    .instance(&before.namespace, &machine.name)
                    .await
                    .ok()?;
                cause(machine, now.as_ref(), instance.as_ref())
            }
            Target::Shell(container) => {
                let Some(now) = now else {
                    return Some(CloseReason::Deleted);
                };
                if let Err(unwanted) = now.wanted() {
                    return Some(unwanted.into_close());
                }
                match self.fetch.container(&now).await {
                    Ok(found) => {
                        (found.pod_uid != container.pod_uid).then_some(CloseReason::PodGone)
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
