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
    /// Runs until the token ends it. `known` is called once the first answer is acted on.
    pub(crate) async fn run(self, stop: CancellationToken, known: watch::Sender<bool>) {
        let mut running: Option<Running> = None;
        while !stop.is_cancelled() {
            match self.is_served().await {
                Some(true) if running.is_none() => running = self.begin(&stop).await,
                Some(false) if running.is_some() => self.end(running.take()).await,
                _ => {}
            }
            known.send_replace(true);
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(self.every) => {}
            }
        }
        self.end(running).await;
    }

    /// `None` when the cluster does not say.
    async fn is_served(&self) -> Option<bool> {
        match self.client.list_api_group_resources(GROUP_VERSION).await {
            Ok(list) => Some(has_all(&list)),
            Err(Error::Api(status)) if status.code == 404 => Some(false),
            Err(error) => {
                debug!(%error, "cannot tell whether KubeVirt is installed");
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
