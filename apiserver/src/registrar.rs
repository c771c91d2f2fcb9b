//! Keeps the APIService as it should be: whenever the authority's bundle or the object changes.

use std::{pin::pin, sync::Arc, time::Duration};

use apiservice::registration::{self, ServiceReference};
use certs::Certificates;
use futures::StreamExt as _;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::{
    Api, Client,
    runtime::{WatchStreamExt as _, watcher},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// After a failure it is tried again after this.
const RETRY: Duration = Duration::from_secs(5);
/// How long one attempt may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// And looked at this often even if nothing was heard of it.
const RECHECK: Duration = Duration::from_secs(300);

/// Registers, and stays at it until `stop`.
pub async fn run(
    client: Client,
    service: ServiceReference,
    mut certificates: watch::Receiver<Option<Arc<Certificates>>>,
    stop: CancellationToken,
) {
    let api: Api<APIService> = Api::all(client.clone());
    let config =
        watcher::Config::default().fields(&format!("metadata.name={}", registration::NAME));
    let mut changes = pin!(watcher(api, config).default_backoff());
    loop {
        let current = certificates.borrow_and_update().clone();
        let rest = match current {
            Some(current) => attempt(&client, &service, &current).await,
            None => RECHECK,
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(rest) => {}
            changed = certificates.changed() => if changed.is_err() { return },
            change = changes.next() => if let Some(Err(error)) = change {
                tracing::debug!(%error, "watch of the APIService");
            },
        }
    }
}

async fn attempt(
    client: &Client,
    service: &ServiceReference,
    certificates: &Certificates,
) -> Duration {
    let ensuring = registration::ensure(client, service, certificates.bundle.as_bytes());
    match tokio::time::timeout(PATIENCE, ensuring).await {
        Ok(Ok(())) => RECHECK,
        Ok(Err(error)) => {
            tracing::error!(%error, "not registered; trying again in {} s", RETRY.as_secs());
            RETRY
        }
        Err(_) => {
            tracing::error!("not registered: no answer within {} s", PATIENCE.as_secs());
            RETRY
        }
    }
}
