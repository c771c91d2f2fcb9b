//! From a dial under way to the guest whose host keys are to be checked.

use std::sync::Arc;

use apiserver_generic::ApiError;
use apiservice::v1alpha1::{RootIdentity, RootKind};
use async_trait::async_trait;
use kube::Client;
use tokio_util::task::TaskTracker;

use super::{Dial, Owner, Root, Subject, identify};
use crate::streams::{
    dial::{self, tcp::Network},
    mode::Dialling,
    ports,
    relay::{Connection, Pace},
    resolve::{Found, Workspace},
    target::Finder,
};

/// Everything that a dial takes, kept for as many as it needs.
struct Way {
    client: Client,
    finder: Finder,
    network: Arc<dyn Network>,
    workspace: Workspace,
    found: Found,
    tasks: TaskTracker,
}

#[async_trait]
impl Dial for Way {
    async fn dial(&self) -> Result<Box<dyn Connection>, ApiError> {
        let dialling = Dialling {
            before: None,
            client: &self.client,
            finder: &self.finder,
            network: &self.network,
            workspace: &self.workspace,
            found: &self.found,
            takeover: false,
        };
        let upstream = dial::port(&dialling, ports::SSH).await?;
        Ok(upstream.into_kept_connection(Pace::default(), &self.tasks))
    }
}

/// The guest that is dialled; `tasks` keep the connections to it alive.
///
/// # Errors
/// Its root disk could not be looked up.
pub async fn subject(dialling: &Dialling<'_>, tasks: &TaskTracker) -> Result<Subject, ApiError> {
    let (workspace, found) = (dialling.workspace, dialling.found);
    let pod_uid = found.target.pod_uid().to_owned();
    let root = match &found.features.root {
        Some(root) => identify(dialling.client, &workspace.namespace, Root::clone(root)).await?,
        None => RootIdentity {
            kind: RootKind::Pod,
            uid: pod_uid.clone(),
        },
    };
    let way = Way {
        client: dialling.client.clone(),
        finder: dialling.finder.clone(),
        network: dialling.network.clone(),
        workspace: workspace.clone(),
        found: found.clone(),
        tasks: tasks.clone(),
    };
    Ok(Subject {
        owner: Owner {
            namespace: workspace.namespace.clone(),
            name: workspace.name.clone(),
            uid: workspace.uid.clone(),
        },
        pod_uid,
        root,
        dial: Arc::new(way),
    })
}
