//! The self-managed serving certificate as the listener wants it.

use std::sync::Arc;

use apiserver_generic::serving::{CurrentCertificate, certified_key};
use certs::Certificates;
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Follows what the certificate manager publishes; one that does not work is left aside.
pub fn follow(
    mut published: watch::Receiver<Option<Arc<Certificates>>>,
    tasks: &TaskTracker,
    stop: CancellationToken,
) -> CurrentCertificate {
    let (sender, receiver) = watch::channel(None);
    tasks.spawn(async move {
        loop {
            let current = published.borrow_and_update().clone();
            if let Some(current) = current {
                let serving = &current.serving;
                match certified_key(serving.certificate.as_bytes(), serving.key.as_bytes()) {
                    Ok(key) => drop(sender.send_replace(Some(Arc::new(key)))),
                    Err(error) => {
                        tracing::error!(%error, "the certificate in the Secret cannot be used; the last one stays");
                    }
                }
            }
            let changed = stop.run_until_cancelled(published.changed()).await;
            if !matches!(changed, Some(Ok(()))) {
                return;
            }
        }
    });
    receiver
}
