//! Which namespaces there are, from a watch of their metadata.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use apiserver_generic::{
    ApiError, Reason,
    admission::{NamespacePhase, Namespaces},
};
use async_trait::async_trait;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    core::PartialObjectMeta,
    runtime::{WatchStreamExt as _, reflector, watcher},
};
use tokio_util::sync::CancellationToken;

/// Namespaces as the cluster has them.
pub struct ClusterNamespaces {
    api: Api<PartialObjectMeta<Namespace>>,
    known: reflector::Store<PartialObjectMeta<Namespace>>,
    ready: AtomicBool,
}

impl ClusterNamespaces {
    /// Starts the watch, which ends with `stop`.
    pub fn start(client: Client, stop: CancellationToken) -> Arc<Self> {
        let api: Api<PartialObjectMeta<Namespace>> = Api::all(client);
        let writer = reflector::store::Writer::default();
        let namespaces = Arc::new(Self {
            api: api.clone(),
            known: writer.as_reader(),
            ready: AtomicBool::new(false),
        });
        let shared = namespaces.clone();
        tokio::spawn(async move {
            let changes = watcher(api, watcher::Config::default())
                .default_backoff()
                .reflect(writer);
            let follow = changes.for_each(|change| {
                match change {
                    Ok(watcher::Event::InitDone) => shared.ready.store(true, Ordering::Release),
                    Ok(_) => {}
                    Err(error) => tracing::warn!(%error, "watch of namespaces"),
                }
                std::future::ready(())
            });
            stop.run_until_cancelled(follow).await;
        });
        namespaces
    }
}

fn phase<K>(namespace: &K) -> NamespacePhase
where
    K: kube::Resource,
{
    match namespace.meta().deletion_timestamp {
        Some(_) => NamespacePhase::Terminating,
        None => NamespacePhase::Active,
    }
}

#[async_trait]
impl Namespaces for ClusterNamespaces {
    fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    fn cached(&self, name: &str) -> Option<NamespacePhase> {
        let known = self.known.get(&reflector::ObjectRef::new(name))?;
        Some(phase(&*known))
    }

    async fn live(&self, name: &str) -> Result<Option<NamespacePhase>, ApiError> {
        let found = self.api.get_opt(name).await.map_err(|error| {
            ApiError::new(
                Reason::ServiceUnavailable,
                format!("the namespace {name} could not be looked up; try again"),
            )
            .retry_after(1)
            .because(error)
        })?;
        Ok(found.as_ref().map(phase))
    }
}
