//! The backend's watch as changes.

use std::time::Duration;

use futures::{StreamExt as _, stream};
use http::Request;
use kube::{Client, core::WatchEvent};

use super::{
    PATIENCE,
    envelope::{self, Content, Envelope},
    errors,
};
use crate::storage::{Change, Changes, StorageError};

/// Longest silence: the backend sends bookmarks about once a minute.
const SILENCE: Duration = Duration::from_secs(150);

type Event = WatchEvent<serde_json::Value>;

/// Begins a watch.
pub(super) async fn begin(
    client: &Client,
    request: Request<Vec<u8>>,
) -> Result<Changes, StorageError> {
    let asking = client.request_events::<serde_json::Value>(request);
    let events =
        tokio::time::timeout(PATIENCE, asking)
            .await
            .map_err(|_| StorageError::Unavailable {
                message: format!("no watch within {} s", PATIENCE.as_secs()),
                retry_after: None,
            })?;
    let events = events.map_err(errors::from_kube)?.boxed();
    let changes = stream::try_unfold(events, |mut events| async move {
        match tokio::time::timeout(SILENCE, events.next()).await {
            Ok(None) => Ok(None),
            Ok(Some(event)) => {
                let change = change(event.map_err(errors::from_kube)?)?;
                Ok(Some((change, events)))
            }
            Err(_) => Err(StorageError::Unavailable {
                message: format!("the watch was silent for {} s", SILENCE.as_secs()),
                retry_after: None,
            }),
        }
    });
    Ok(changes.boxed())
}

/// What one event says. A fence, and an envelope that cannot be read, only prove progress.
fn change(event: Event) -> Result<Change, StorageError> {
    let (object, deleted) = match event {
        WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
        WatchEvent::Deleted(object) => (object, true),
        WatchEvent::Bookmark(bookmark) => {
            let revision = envelope::revision(&bookmark.metadata.resource_version)?;
            return Ok(Change::Progress(revision));
        }
        WatchEvent::Error(status) => return Err(errors::from_status(&status)),
    };
    let envelope: Envelope = serde_json::from_value(object)
        .map_err(|error| StorageError::Failed(format!("a watch event cannot be read: {error}")))?;
    let revision = envelope.revision()?;
    match envelope.content() {
        Ok(Content::Object(stored)) if deleted => Ok(Change::Deleted(stored)),
        Ok(Content::Object(stored)) => Ok(Change::Put(stored)),
        Ok(Content::Fence(_)) => Ok(Change::Progress(revision)),
        Err(error) => {
            tracing::warn!(%error, "a stored object cannot be read and is skipped");
            Ok(Change::Progress(revision))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::Revision;
    use serde_json::{Value, json};

    fn read(kind: &str, object: Value) -> Result<Change, StorageError> {
        change(serde_json::from_value(json!({"type": kind, "object": object})).unwrap())
    }

    #[test]
    fn events() {
        let object = json!({"metadata": {"name": "a", "resourceVersion": "5"}, "object": {}});
        assert!(
            matches!(read("ADDED", object.clone()), Ok(Change::Put(s)) if s.revision == Revision(5))
        );
        assert!(matches!(read("DELETED", object), Ok(Change::Deleted(_))));
        let fence = json!({"metadata": {"name": "a", "resourceVersion": "6"}, "fence": {}});
        assert_eq!(read("MODIFIED", fence), Ok(Change::Progress(Revision(6))));
        let bookmark =
            json!({"kind": "K", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}});
        assert_eq!(
            read("BOOKMARK", bookmark),
            Ok(Change::Progress(Revision(7)))
        );
        let expired = json!({"code": 410, "reason": "Expired"});
        assert_eq!(
            read("ERROR", expired),
            Err(StorageError::Expired(Revision(0)))
        );
    }
}
