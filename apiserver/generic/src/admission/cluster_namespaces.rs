//! Namespaces of the cluster that the server belongs to: a watch of their metadata, and live reads.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    core::PartialObjectMeta,
    runtime::{
        WatchStreamExt as _, reflector,
        reflector::{ObjectRef, Store},
        watcher,
    },
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{NamespacePhase, Namespaces};
use crate::{ApiError, Reason};

/// How long kube-apiserver may take to say whether there is a namespace.
const PATIENCE: Duration = Duration::from_secs(10);

type Metadata = PartialObjectMeta<Namespace>;

/// Watches namespaces until it is told to stop.
pub struct ClusterNamespaces {
    api: Api<Metadata>,
    known: Store<Metadata>,
    ready: Arc<AtomicBool>,
}

impl ClusterNamespaces {
    /// Begins to watch.
    pub fn start(client: Client, tasks: &TaskTracker, stop: &CancellationToken) -> Self {
        let api: Api<Metadata> = Api::all(client);
        let (known, writer) = reflector::store();
        let ready = Arc::new(AtomicBool::new(false));
        let events = watcher(api.clone(), watcher::Config::default());
        let events = reflector(writer, events.default_backoff());
        let filled = ready.clone();
        let run = events.for_each(move |event| {
            match event {
                Ok(watcher::Event::InitDone) => filled.store(true, Ordering::Release),
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(%error, "the watch of namespaces failed; trying again")
                }
            }
            futures::future::ready(())
        });
        tasks.spawn(stop.clone().run_until_cancelled_owned(run));
        Self { api, known, ready }
    }
}

fn phase(namespace: &Metadata) -> NamespacePhase {
    match namespace.metadata.deletion_timestamp {
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
        let found = self.known.get(&ObjectRef::new(name))?;
        Some(phase(&found))
    }

    async fn live(&self, name: &str) -> Result<Option<NamespacePhase>, ApiError> {
        let unknown = |why: String| {
            ApiError::new(
                Reason::ServiceUnavailable,
                format!("it cannot be determined whether the namespace {name:?} exists; please try again"),
            )
            .retry_after(1)
            .because(why)
        };
        match tokio::time::timeout(PATIENCE, self.api.get_opt(name)).await {
            Ok(Ok(found)) => Ok(found.as_ref().map(phase)),
            Ok(Err(error)) => Err(unknown(error.to_string())),
            Err(late) => Err(unknown(late.to_string())),
        }
    }
}
