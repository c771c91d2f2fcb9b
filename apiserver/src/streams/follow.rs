//! Notices the end of a machine whose streams do not end with it.
//!
//! KubeVirt's streams are cut when the guest is gone. A TCP connection over the pod network just
//! falls silent: nobody is left to reset it. One watch per machine, shared by all its streams on this
//! replica, tells them.

use std::{
    collections::HashMap,
    pin::pin,
    sync::{Arc, Weak},
};

use apiserver_generic::Object;
use futures::StreamExt as _;
use kube::{
    Api, Client,
    api::DynamicObject,
    core::{ApiResource, GroupVersionKind},
    runtime::{WatchStreamExt as _, watcher::watch_object},
};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::resolve::{Machine, is_over};

/// A machine by namespace and name.
type Key = (String, String);

/// What is known of an instance: nothing yet, or what there is.
type Known = Option<Option<Arc<Object>>>;

/// The watches of this replica.
#[derive(Clone)]
pub(super) struct Followers {
    client: Client,
    followed: Arc<Mutex<HashMap<Key, Weak<Followed>>>>,
}

/// One watch; it ends with the last who follows it.
struct Followed {
    known: watch::Receiver<Known>,
    _end: DropGuard,
}

impl Followers {
    /// With our own credentials.
    pub(super) fn new(client: Client) -> Self {
        let followed = Arc::default();
        Self { client, followed }
    }

    /// Waits until this very machine does not run any more, or runs elsewhere.
    ///
    /// # Cancel safety
    /// Dropping it follows no longer; the last one ends the watch.
    pub(super) async fn over(&self, namespace: &str, machine: &Machine) {
        let followed = self.follow(namespace, &machine.name);
        let mut known = followed.known.clone();
        let ended = known.wait_for(|known| {
            let known = known.as_ref();
            known.is_some_and(|instance| is_over(machine, instance.as_deref()))
        });
        if ended.await.is_err() {
            // The watch itself ended, which says nothing about the machine.
            std::future::pending().await
        }
    }

    fn follow(&self, namespace: &str, name: &str) -> Arc<Followed> {
        let mut all = self.followed.lock();
        all.retain(|_, followed| followed.strong_count() > 0);
        let key = (namespace.to_owned(), name.to_owned());
        if let Some(followed) = all.get(&key).and_then(Weak::upgrade) {
            return followed;
        }
        let (sender, known) = watch::channel(None);
        let end = CancellationToken::new();
        let api = instances(&self.client, namespace);
        let (name, stop) = (name.to_owned(), end.clone());
        tokio::spawn(async move { stop.run_until_cancelled(tell(api, &name, sender)).await });
        let followed = Arc::new(Followed {
            known,
            _end: end.drop_guard(),
        });
        all.insert(key, Arc::downgrade(&followed));
        followed
    }
}

async fn tell(api: Api<DynamicObject>, name: &str, known: watch::Sender<Known>) {
    let mut changes = pin!(watch_object(api, name).default_backoff());
    while let Some(change) = changes.next().await {
        match change {
            Ok(instance) => {
                known.send_replace(Some(instance.and_then(object).map(Arc::new)));
            }
            Err(error) => tracing::debug!(%error, instance = name, "a machine cannot be watched"),
        }
    }
}

fn object(found: DynamicObject) -> Option<Object> {
    Object::from_value(serde_json::to_value(found).ok()?).ok()
}

fn instances(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("kubevirt.io", "v1", "VirtualMachineInstance");
    let resource = ApiResource::from_gvk_with_plural(&kind, "virtualmachineinstances");
    Api::namespaced_with(client.clone(), namespace, &resource)
}
