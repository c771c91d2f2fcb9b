//! Watches one kind into its cache and names the workspaces concerned.

use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use kube::Client;
use kube::api::Api;
use kube::core::DynamicObject;
use kube::runtime::{WatchStreamExt, watcher};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::cache::{Cache, Feed};
use super::queue::Queue;
use crate::kinds::Kind;
use crate::names::WORKSPACE_NAME;

/// One watch.
pub(super) struct Follow {
    pub(super) client: Client,
    pub(super) kind: Kind,
    pub(super) cache: Arc<Cache>,
    pub(super) queue: Arc<Queue>,
    /// Becomes true with the first complete list.
    pub(super) synced: watch::Sender<bool>,
}

impl Follow {
    /// Runs until the token ends it. Errors are waited out with backoff and logged once per
    /// outage, however long that is.
    pub(super) async fn run(self, stop: CancellationToken) {
        let resource = self.kind.resource();
        let api: Api<DynamicObject> = Api::all_with(self.client, &resource);
        let config = watcher::Config::default().labels(WORKSPACE_NAME);
        let mut events = pin!(watcher(api, config).default_backoff());
        let (mut feed, mut failing) = (Feed::default(), false);
        loop {
            let event = tokio::select! {
                () = stop.cancelled() => return,
                event = events.next() => event,
            };
            match event {
                None => return,
                Some(Ok(event)) => {
                    if std::mem::take(&mut failing) {
                        info!(kind = %self.kind, "the watch works again");
                    }
                    let (keys, complete) = feed.take(&self.cache, event);
                    keys.into_iter().for_each(|key| self.queue.add(key));
                    if complete {
                        self.synced.send_replace(true);
                    }
                }
                Some(Err(error)) if failing => {
                    debug!(kind = %self.kind, %error, "the watch failed")
                }
                Some(Err(error)) => {
                    failing = true;
                    warn!(kind = %self.kind, %error, "the watch failed; it is tried again");
                }
            }
        }
    }
}
