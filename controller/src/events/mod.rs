//! Kubernetes Events about workspaces: what `kubectl describe` shows.
//!
//! [`notices`] says what there is to tell, from what changed between two statuses (pure);
//! [`Announcer`] tells it. Telling is best effort and never holds a reconcile up: at most
//! [`WAITING`] wait, [`EVERY`] apart, and what is more is dropped and counted. Equal events become a
//! series (`events.k8s.io/v1`).

mod notice;

use std::time::Duration;

use apiservice::v1alpha1::API_VERSION;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, Recorder, Reporter};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::metrics::ControllerMetrics;
use crate::names::{FIELD_MANAGER, Owner};

pub(crate) use notice::{Child, Notice, created, notices, unresolved};

/// Events that may wait to be told.
const WAITING: usize = 512;
/// The time between two.
const EVERY: Duration = Duration::from_millis(50);
/// For telling one.
const PATIENCE: Duration = Duration::from_secs(10);

/// An event on its way.
struct Told {
    about: ObjectReference,
    event: Event,
}

/// Where notices are handed in. Clones share one queue.
#[derive(Clone)]
pub(crate) struct Announcer {
    queue: mpsc::Sender<Told>,
    metrics: ControllerMetrics,
}

impl Announcer {
    /// The announcer, and the task that tells what it is given until the token ends it.
    pub(crate) fn new(
        client: Client,
        identity: &str,
        metrics: ControllerMetrics,
        stop: CancellationToken,
    ) -> (Self, impl Future<Output = ()> + use<>) {
        let (queue, waiting) = mpsc::channel(WAITING);
        let reporter = Reporter {
            controller: FIELD_MANAGER.to_owned(),
            instance: Some(identity.to_owned()),
        };
        let recorder = Recorder::new(client, reporter);
        let telling = tell(recorder, waiting, metrics.clone());
        let telling = async move {
            let _ = stop.run_until_cancelled(telling).await;
        };
        (Self { queue, metrics }, telling)
    }

    /// Hands notices about a workspace in.
    pub(crate) fn announce(&self, owner: &Owner, notices: Vec<Notice>) {
        for notice in notices {
            let told = Told {
                about: about(owner),
                event: notice.into_event(&owner.namespace),
            };
            if self.queue.try_send(told).is_err() {
                self.metrics.event("dropped");
            }
        }
    }
}

fn about(owner: &Owner) -> ObjectReference {
    ObjectReference {
        api_version: Some(API_VERSION.to_owned()),
        kind: Some("Workspace".to_owned()),
        name: Some(owner.name.clone()),
        namespace: Some(owner.namespace.clone()),
        uid: Some(owner.uid.clone()),
        ..ObjectReference::default()
    }
}

async fn tell(recorder: Recorder, mut waiting: mpsc::Receiver<Told>, metrics: ControllerMetrics) {
    while let Some(Told { about, event }) = waiting.recv().await {
        let publishing = recorder.publish(&event, &about);
        match tokio::time::timeout(PATIENCE, publishing).await {
            Ok(Ok(())) => metrics.event("published"),
            // A namespace that ends takes no events, for one.
            Ok(Err(error)) => {
                debug!(%error, reason = event.reason, "an event was not taken");
                metrics.event("failed");
            }
            Err(_) => metrics.event("failed"),
        }
        tokio::time::sleep(EVERY).await;
    }
}
