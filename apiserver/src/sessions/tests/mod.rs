//! Replicas that share a storage and Leases, as real ones share a cluster.

mod claims;
mod shared;
mod simulation;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use apiserver_generic::{
    ApiError, Key, Object, Revision, Storage,
    storage::{
        Changes, ListQuery, Page, StorageError, Stored, WriteContext, memory::MemoryStorage,
    },
};
use async_trait::async_trait;
use futures::StreamExt as _;
use parking_lot::Mutex;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    Held, SessionDeps, Sessions, Timing,
    lease::Leases,
    record::{Wish, tests::wish},
    replica::{Beat, ReplicaId},
};
use crate::streams::close::CloseReason;

const SOON: Duration = Duration::from_secs(20);

#[derive(Clone, Default)]
struct World {
    storage: MemoryStorage,
    leases: Arc<Mutex<BTreeMap<String, u64>>>,
}

/// One replica's way to the Leases, which can be cut.
struct Wire {
    leases: Arc<Mutex<BTreeMap<String, u64>>>,
    cut: Arc<AtomicBool>,
}

impl Wire {
    fn check(&self) -> Result<(), ApiError> {
        if self.cut.load(Ordering::SeqCst) {
            return Err(ApiError::internal("cut"));
        }
        Ok(())
    }
}

#[async_trait]
impl Leases for Wire {
    async fn renew(&self, me: &ReplicaId) -> Result<(), ApiError> {
        self.check()?;
        *self.leases.lock().entry(me.to_string()).or_default() += 1;
        Ok(())
    }

    async fn list(&self) -> Result<Vec<Beat>, ApiError> {
        self.check()?;
        let leases = self.leases.lock();
        let beats = leases.iter().map(|(replica, n)| Beat {
            replica: replica.clone(),
            mark: n.to_string(),
        });
        Ok(beats.collect())
    }

    async fn remove(&self, replica: &str) -> Result<(), ApiError> {
        self.check()?;
        self.leases.lock().remove(replica);
        Ok(())
    }
}

/// A storage whose watches can fall silent without ending.
struct Silent {
    storage: MemoryStorage,
    on: Arc<AtomicBool>,
}

#[async_trait]
impl Storage for Silent {
    async fn get(&self, key: &Key) -> Result<Stored, StorageError> {
        self.storage.get(key).await
    }
    async fn list(&self, query: &ListQuery) -> Result<Page, StorageError> {
        self.storage.list(query).await
    }
    async fn watch(&self, from: Revision) -> Result<Changes, StorageError> {
        let on = self.on.clone();
        let changes = self.storage.watch(from).await?;
        let heard = changes.take_while(move |_| {
            let silent = on.load(Ordering::SeqCst);
            async move {
                if silent {
                    std::future::pending::<()>().await;
                }
                true
            }
        });
        Ok(heard.boxed())
    }
    async fn create(
        &self,
        context: &WriteContext,
        key: &Key,
        object: &Object,
    ) -> Result<Stored, StorageError> {
        self.storage.create(context, key, object).await
    }
    async fn update(
        &self,
        context: &WriteContext,
        key: &Key,
        object: &Object,
        expected: Revision,
    ) -> Result<Stored, StorageError> {
        self.storage.update(context, key, object, expected).await
    }
    async fn delete(
        &self,
        context: &WriteContext,
        key: &Key,
        expected: Revision,
    ) -> Result<(), StorageError> {
        self.storage.delete(context, key, expected).await
    }
    async fn fence(&self) -> Result<Option<Revision>, StorageError> {
        self.storage.fence().await
    }
}

struct Replica {
    sessions: Sessions,
    cut: Arc<AtomicBool>,
    silent: Arc<AtomicBool>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Replica {
    /// Waits until this replica's watch has seen the claim.
    async fn sees(&self, claim: &str) {
        let key = wish("", "").key();
        eventually("the watch to see the claim", || {
            let known = self.sessions.inner.index.get(&key);
            known.is_some_and(|seen| seen.spec.claim == claim)
        })
        .await;
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl World {
    async fn replica(&self, pod: &str, nonce: &str, timing: Timing) -> Replica {
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let (cut, silent): (Arc<AtomicBool>, Arc<AtomicBool>) = Default::default();
        let deps = SessionDeps {
            storage: Arc::new(Silent {
                storage: self.storage.clone(),
                on: silent.clone(),
            }),
            leases: Arc::new(Wire {
                leases: self.leases.clone(),
                cut: cut.clone(),
            }),
            me: ReplicaId::new(pod, nonce),
            timing,
        };
        let sessions = Sessions::start(deps, &tasks, &stop);
        eventually("the first renewal", || sessions.ready().is_ok()).await;
        Replica {
            sessions,
            cut,
            silent,
            tasks,
            stop,
        }
    }

    async fn stored(&self) -> Option<Object> {
        let stored = self.storage.get(&wish("", "").key()).await;
        stored.ok().map(|stored| stored.object)
    }

    /// Waits until no session is left.
    async fn emptied(&self) {
        let wait = async {
            while self.stored().await.is_some() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(SOON, wait).await.unwrap();
    }

    /// Replaces the session, whatever it is.
    async fn put(&self, object: &Object) {
        let stored = self.storage.get(&wish("", "").key()).await.unwrap();
        let context = WriteContext::default();
        let put = self
            .storage
            .update(&context, &stored.key, object, stored.revision);
        put.await.unwrap();
    }

    /// What `kubectl delete workspacesession` does.
    async fn delete(&self) {
        let mut stored = self.storage.get(&wish("", "").key()).await.unwrap();
        stored
            .object
            .set_meta("deletionTimestamp", "2026-01-02T03:04:05Z");
        let context = WriteContext::default();
        let marked = self
            .storage
            .update(&context, &stored.key, &stored.object, stored.revision);
        marked.await.unwrap();
    }
}

async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, wait)
        .await
        .unwrap_or_else(|_| panic!("waited for {what}"));
}

async fn told(held: &mut Held) -> CloseReason {
    tokio::time::timeout(SOON, held.told()).await.unwrap()
}

/// Claims again and again until it is granted.
async fn claim_soon(sessions: &Sessions, wish: &Wish) -> Held {
    let claiming = async {
        loop {
            match sessions.claim(wish).await {
                Ok(held) => return held,
                Err(error) => assert!([409, 503].contains(&error.reason.code().as_u16())),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, claiming).await.unwrap()
}

/// Everything but the judgement of death happens quickly.
fn calm() -> Timing {
    Timing {
        collect_every: Duration::from_millis(20),
        renew_every: Duration::from_millis(100),
        ..Timing::default()
    }
}

/// A fiftieth of the real times, with more room in between.
fn hasty() -> Timing {
    Timing {
        renew_every: Duration::from_millis(30),
        renewal_limit: Duration::from_millis(200),
        fence_after: Duration::from_millis(500),
        dead_after: Duration::from_millis(1500),
        collect_every: Duration::from_millis(30),
        takeover_limit: SOON,
        ..Timing::default()
    }
}
