//! The controller in this process: on the replica that leads, over the same registries as REST.

use std::sync::Arc;

use controller::{
    Candidate, ControllerMetrics, RegistryImages, RegistryWorkspaces, Stores as Ports, Times,
    spawn_when_leader,
};
use kube::Client;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{options::WorkspacesOptions, stores::Stores};

/// Name of the Lease.
const LEASE: &str = "workspaces-controller";

/// Takes part in the election until `stop`, and runs the controller while it leads.
pub async fn run(
    client: Client,
    stores: Stores,
    options: WorkspacesOptions,
    metrics: ControllerMetrics,
    stop: CancellationToken,
) {
    let (Some(workspaces), Some(images)) = (stores.get("workspaces"), stores.get("images")) else {
        tracing::error!(
            "the resource table has no workspaces or no images: the controller does not run"
        );
        return;
    };
    let ports = Ports {
        workspaces: Arc::new(RegistryWorkspaces(workspaces.registry.clone())),
        images: Arc::new(RegistryImages(images.registry.clone())),
    };
    let candidate = Candidate {
        namespace: options.namespace.clone(),
        lease: LEASE.to_owned(),
        identity: format!("{}-{}", options.replica, Uuid::new_v4().simple()),
        times: Times::default(),
    };
    let work = {
        let client = client.clone();
        let config = controller::Config {
            identity: options.replica.clone(),
            metrics,
            ..controller::Config::default()
        };
        move |lead: CancellationToken| {
            let (client, ports, config) = (client.clone(), ports.clone(), config.clone());
            async move {
                if let Err(error) = controller::run(client, ports, config, lead).await {
                    tracing::error!(%error, "the controller ended");
                }
            }
        }
    };
    if let Err(error) = spawn_when_leader(client, candidate, stop, work).await {
        tracing::error!(%error, "the controller's election ended");
    }
}
