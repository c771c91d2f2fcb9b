//! The served resources at work: a registry each, over the cluster's storage.

use std::{collections::BTreeMap, sync::Arc};

use apiserver_generic::{
    Registry, Storage, Strategy,
    admission::{NamespaceLifecycle, Namespaces},
    registry::Parts,
    storage::cluster::ClusterStorage,
};
use apiservice::{resources, stored};
use kube::Client;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// A served resource.
#[derive(Clone)]
pub struct Store {
    /// Where its objects are kept.
    pub storage: Arc<dyn Storage>,
    /// Through which they are read and written.
    pub registry: Registry,
}

/// All served resources, by their plural.
#[derive(Clone)]
pub struct Stores(BTreeMap<&'static str, Store>);

/// Which process this is among those that share the storage.
#[derive(Clone, Debug)]
pub struct Replica<'a> {
    /// Its name.
    pub name: &'a str,
    /// The server's namespace.
    pub namespace: &'a str,
}

impl Stores {
    /// Starts a registry and its cache for each row of the table.
    pub fn start(
        client: &Client,
        replica: &Replica<'_>,
        namespaces: &Arc<dyn Namespaces>,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> Self {
        let start = |strategy: Arc<dyn Strategy>| {
            let kind = stored::kind_of(strategy.resource());
            let plural = strategy.resource().plural;
            let storage: Arc<dyn Storage> = Arc::new(ClusterStorage::new(
                client.clone(),
                kind,
                replica.name,
                replica.namespace,
            ));
            let lifecycle = Arc::new(NamespaceLifecycle::new(namespaces.clone()));
            let parts = Parts::new(strategy, storage.clone()).admit(lifecycle);
            (
                plural,
                Store {
                    storage,
                    registry: Registry::start(parts, tasks, stop),
                },
            )
        };
        Self(resources::all().into_iter().map(start).collect())
    }

    /// The resource of that plural, which the table has.
    pub fn get(&self, plural: &str) -> Option<&Store> {
        self.0.get(plural)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Store> {
        self.0.values()
    }

    /// Whether every cache has its first list.
    pub fn synced(&self) -> Result<(), String> {
        let waiting: Vec<_> = self
            .0
            .iter()
            .filter(|(_, store)| !store.registry.cache().is_ready())
            .map(|(plural, _)| *plural)
            .collect();
        if waiting.is_empty() {
            return Ok(());
        }
        Err(format!(
            "not read from storage yet: {} (are the CustomResourceDefinitions of deploy/base applied?)",
            waiting.join(", ")
        ))
    }
}
