//! The task that keeps the cache current: list, then watch, and again.

use std::{sync::Arc, time::Duration};

use futures::StreamExt as _;

use super::Shared;
use crate::storage::{At, ListQuery, Revision, Storage, StorageError};

/// First and longest pause after a failure.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// What to do next.
enum Next {
    /// The state is unknown or too old to be continued: read everything.
    List,
    /// Everything up to the revision is known: follow from there.
    Watch(Revision),
}

/// How a step ended.
enum Outcome {
    /// Go on at once.
    Progress(Next),
    /// Pause first.
    Failed(Next, StorageError),
}

/// Never ends.
pub(super) async fn run(storage: Arc<dyn Storage>, shared: Arc<Shared>) {
    let mut next = Next::List;
    let mut pause = PAUSE.0;
    loop {
        let outcome = match next {
            Next::List => list(&*storage, &shared).await,
            Next::Watch(from) => watch(&*storage, &shared, from).await,
        };
        next = match outcome {
            Outcome::Progress(next) => {
                pause = PAUSE.0;
                next
            }
            Outcome::Failed(next, error) => {
                tracing::warn!(%error, ?pause, "the upstream watch failed; trying again");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE.1);
                next
            }
        };
    }
}

async fn list(storage: &dyn Storage, shared: &Shared) -> Outcome {
    let query = ListQuery {
        namespace: None,
        at: At::Latest,
        limit: None,
        after: None,
    };
    match storage.list(&query).await {
        Ok(page) => {
            let revision = page.revision;
            shared.change(|state| state.relist(page));
            Outcome::Progress(Next::Watch(revision))
        }
        Err(error) => Outcome::Failed(Next::List, error),
    }
}

async fn watch(storage: &dyn Storage, shared: &Shared, from: Revision) -> Outcome {
    let mut changes = match storage.watch(from).await {
        Ok(changes) => changes,
        Err(error) => return after(from, error),
    };
    let mut seen = from;
    loop {
        tokio::select! {
            () = shared.relist.notified() => return Outcome::Progress(Next::List),
            change = changes.next() => match change {
                Some(Ok(change)) => seen = shared.change(|state| {
                    state.apply(change);
                    state.revision()
                }),
                Some(Err(error)) => return after(seen, error),
                None if seen > from => return Outcome::Progress(Next::Watch(seen)),
                None => return Outcome::Failed(Next::Watch(seen), closed()),
            }
        }
    }
}

fn after(seen: Revision, error: StorageError) -> Outcome {
    match error {
        StorageError::Expired(_) => Outcome::Progress(Next::List),
        error @ StorageError::Future(..) => Outcome::Failed(Next::List, error),
        error => Outcome::Failed(Next::Watch(seen), error),
    }
}

fn closed() -> StorageError {
    StorageError::Unavailable {
        message: "the watch ended without an event".to_owned(),
        retry_after: None,
    }
}
