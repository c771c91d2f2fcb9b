//! Whether KubeVirt is there: it may be absent, come later, and go away.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::{Client, Error};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use super::{Caches, Queue, Watches};
use crate::kinds::Kind;

const GROUP_VERSION: &str = "kubevirt.io/v1";
/// Kinds that are served can be listed within this time, else they are looked for again.
const PATIENCE: Duration = Duration::from_secs(10);
/// Before the first answer, how often it is asked for, and with which pauses.
const MOMENTS: u32 = 5;
const MOMENT: Duration = Duration::from_secs(1);

/// Watches KubeVirt's kinds whenever they are served.
pub(crate) struct KubeVirt {
    pub(crate) client: Client,
    pub(crate) caches: Caches,
    pub(crate) queue: Arc<Queue>,
    /// How often to look.
    pub(crate) every: Duration,
    /// True while the kinds are served and their caches are complete.
    pub(crate) available: watch::Sender<bool>,
}

/// KubeVirt's watches, while they run.
struct Running {
    stop: CancellationToken,
    watches: Watches,
}

impl KubeVirt {
    /// Runs until the token ends it. `known` is told once the first answer is acted on, or none comes.
    pub(crate) async fn run(self, stop: CancellationToken, known: watch::Sender<bool>) {
        let mut running: Option<Running> = None;
        let mut silent = 0;
        while !stop.is_cancelled() {
            let served = self.is_served().await;
            match served {
                Some(true) if running.is_none() => running = self.begin(&stop).await,
                Some(false) if running.is_some() => self.end(running.take()).await,
                _ => {}
            }
            silent = if served.is_some() { 0 } else { silent + 1 };
            // A moment without an answer does not make machines look as if there were no KubeVirt.
            let is_known = *known.borrow() || served.is_some() || silent > MOMENTS;
            known.send_replace(is_known);
            let pause = if is_known {
                self.every
            } else {
                MOMENT.min(self.every)
            };
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
        self.end(running).await;
    }

    /// `None` when the cluster does not say.
    async fn is_served(&self) -> Option<bool> {
        let asking = self.client.list_api_group_resources(GROUP_VERSION);
        match tokio::time::timeout(PATIENCE, asking).await {
            Ok(Ok(list)) => Some(has_all(&list)),
            Ok(Err(Error::Api(status))) if status.code == 404 => Some(false),
            Ok(Err(error)) => {
                debug!(%error, "cannot tell whether KubeVirt is installed");
                None
            }
            Err(_) => {
                debug!("no answer whether KubeVirt is installed");
                None
            }
        }
    }

    async fn begin(&self, stop: &CancellationToken) -> Option<Running> {
        info!("KubeVirt is installed: machines are reconciled");
        let stop = stop.child_token();
        let mut watches = Watches::start(
            &self.client,
            &Kind::KUBEVIRT,
            &self.caches,
            &self.queue,
            &stop,
        );
        let synced = tokio::select! {
            () = stop.cancelled() => false,
            () = tokio::time::sleep(PATIENCE) => false,
            () = watches.synced() => true,
        };
        if !synced {
            info!("KubeVirt's kinds cannot be listed; this is tried again");
            self.end(Some(Running { stop, watches })).await;
            return None;
        }
        self.available.send_replace(true);
        Some(Running { stop, watches })
    }

    async fn end(&self, running: Option<Running>) {
        let Some(running) = running else {
            return;
        };
        self.available.send_replace(false);
        running.stop.cancel();
        running.watches.ended().await;
        for kind in Kind::KUBEVIRT {
            self.caches.clear(kind);
        }
        info!("KubeVirt's kinds are no longer watched");
    }
}

fn has_all(list: &APIResourceList) -> bool {
    Kind::KUBEVIRT.iter().all(|kind| {
        list.resources
            .iter()
            .any(|resource| resource.name == kind.plural())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn kubevirt_is_there_when_both_kinds_are() {
        let list = |names: &[&str]| {
            let resources: Vec<_> = names
                .iter()
                .map(|name| json!({"name": name, "singularName": "", "namespaced": true, "kind": "K", "verbs": []}))
                .collect();
            serde_json::from_value(json!({"groupVersion": GROUP_VERSION, "resources": resources}))
                .unwrap()
        };
        assert!(has_all(&list(&[
            "virtualmachines",
            "virtualmachineinstances",
            "x"
        ])));
        assert!(!has_all(&list(&["virtualmachines"])));
        assert!(!has_all(&list(&[])));
    }
}
