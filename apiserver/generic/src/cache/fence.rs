//! Fences, shared: one write in flight at a time, and a reader joins only one not yet sent.
//!
//! A fence proves the cache current for a read that began before the fence was written. A reader
//! that joined a write in flight could be told of a state from before it asked.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::storage::{Revision, Storage, StorageError};

/// `None` until the fence was written or failed.
type Answer = Option<Result<Option<Revision>, StorageError>>;

/// Hands out fences.
pub(super) struct Fences {
    shared: Arc<Shared>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

struct Shared {
    storage: Arc<dyn Storage>,
    interval: Duration,
    /// The fence that waits for its turn: everybody who arrives now shares it.
    waiting: Mutex<Option<watch::Receiver<Answer>>>,
    turn: Semaphore,
}

impl Fences {
    pub(super) fn new(
        storage: Arc<dyn Storage>,
        interval: Duration,
        tasks: TaskTracker,
        stop: CancellationToken,
    ) -> Self {
        let shared = Shared {
            storage,
            interval,
            waiting: Mutex::new(None),
            turn: Semaphore::new(1),
        };
        Self {
            shared: Arc::new(shared),
            tasks,
            stop,
        }
    }

    /// Writes a fence, or joins one that is not sent yet. `None`: the backend has no fences.
    ///
    /// # Cancel safety
    /// The write goes on for the others when one waiter is dropped.
    pub(super) async fn next(&self) -> Result<Option<Revision>, StorageError> {
        let mut answer = self.join();
        match answer.wait_for(Option::is_some).await {
            Ok(answer) => answer.clone().unwrap_or(Ok(None)),
            Err(_) => Err(StorageError::Unavailable {
                message: "the server is stopping".to_owned(),
                retry_after: Some(1),
            }),
        }
    }

    fn join(&self) -> watch::Receiver<Answer> {
        let mut waiting = self.shared.waiting.lock();
        if let Some(answer) = &*waiting {
            return answer.clone();
        }
        let (sender, answer) = watch::channel(None);
        *waiting = Some(answer.clone());
        let send = send(self.shared.clone(), sender);
        self.tasks
            .spawn(self.stop.clone().run_until_cancelled_owned(send));
        answer
    }
}

async fn send(shared: Arc<Shared>, sender: watch::Sender<Answer>) {
    let turn = shared.turn.acquire().await;
    *shared.waiting.lock() = None;
    let answer = shared.storage.fence().await;
    sender.send_replace(Some(answer));
    tokio::time::sleep(shared.interval).await;
    drop(turn);
}
