//! Whether the stored kinds keep what this server writes, for readiness.
//!
//! Entry point: [`StoredSchema`]. A server that starts beside older or newer
//! CustomResourceDefinitions is not ready and says which they are; one that was ready stays so,
//! since manifests that are applied before their server must not take the old one away. It goes on
//! looking, and logs what it finds.

use std::{sync::Arc, time::Duration};

use apiserver_generic::storage::cluster::{ClusterStorage, SchemaFault};
use apiservice::{resources, stored};
use kube::Client;
use parking_lot::RwLock;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::stores::Replica;

/// Until it is as it should be, it is looked at this often; once it was, this often.
const WAITING: Duration = Duration::from_secs(2);
const RESTING: Duration = Duration::from_secs(300);

/// What the last look showed. Clones share it.
#[derive(Clone)]
pub struct StoredSchema(Arc<RwLock<State>>);

/// The readiness of the schema.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// Not looked at yet.
    Unasked,
    /// Faults, never without since the start.
    Waiting(Vec<SchemaFault>),
    /// It was right once, with the faults of the last look.
    Passed(Vec<SchemaFault>),
}

impl State {
    fn next(&self, faults: Vec<SchemaFault>) -> Self {
        match self {
            Self::Passed(_) => Self::Passed(faults),
            _ if faults.is_empty() => Self::Passed(faults),
            _ => Self::Waiting(faults),
        }
    }

    fn faults(&self) -> &[SchemaFault] {
        match self {
            Self::Unasked => &[],
            Self::Waiting(faults) | Self::Passed(faults) => faults,
        }
    }

    fn ready(&self) -> Result<(), String> {
        match self {
            Self::Passed(_) => Ok(()),
            Self::Unasked => Err("the stored schema was not checked yet".to_owned()),
            Self::Waiting(faults) => {
                let words: Vec<_> = faults.iter().map(ToString::to_string).collect();
                Err(words.join("; "))
            }
        }
    }
}

impl StoredSchema {
    /// Looks at the stored kind of each row of the table until `stop`.
    pub fn start(
        client: &Client,
        replica: &Replica<'_>,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> Self {
        let storage = |strategy: Arc<dyn apiserver_generic::Strategy>| {
            let kind = stored::kind_of(strategy.resource());
            ClusterStorage::new(client.clone(), kind, replica.name, replica.namespace)
        };
        let storages: Vec<_> = resources::all().into_iter().map(storage).collect();
        let schema = Self(Arc::new(RwLock::new(State::Unasked)));
        let looking = schema.clone().follow(storages);
        tasks.spawn(stop.clone().run_until_cancelled_owned(looking));
        schema
    }

    async fn follow(self, storages: Vec<ClusterStorage>) {
        loop {
            let mut faults = Vec::new();
            for storage in &storages {
                faults.extend(storage.check_schema().await.err());
            }
            self.set(faults);
            let rest = if self.ready().is_ok() {
                RESTING
            } else {
                WAITING
            };
            tokio::time::sleep(rest).await;
        }
    }

    fn set(&self, faults: Vec<SchemaFault>) {
        let mut state = self.0.write();
        let next = state.next(faults);
        for fault in next.faults() {
            if !state.faults().contains(fault) {
                tracing::error!(?fault, "the stored schema is not as it should be");
            }
        }
        *state = next;
    }

    /// Whether it was right once.
    ///
    /// # Errors
    /// What is wrong, and what to do.
    pub fn ready(&self) -> Result<(), String> {
        self.0.read().ready()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_waits_for_the_right_schema_and_then_stays() {
        let older = SchemaFault::Older("storedimages lacks a field".into());
        let unknown = SchemaFault::Unknown("no answer".into());
        let state = State::Unasked;
        assert!(state.ready().is_err());
        let state = state.next(vec![older.clone(), unknown.clone()]);
        let words = state.ready().unwrap_err();
        assert!(words.contains("older than this server: storedimages"));
        assert!(words.contains("could not be checked"));
        let state = state.next(vec![unknown]);
        assert!(!state.ready().unwrap_err().contains("older"));
        let state = state.next(Vec::new());
        assert_eq!(state.ready(), Ok(()));
        let state = state.next(vec![older.clone()]);
        assert_eq!(state.ready(), Ok(()), "the old server serves on");
        assert_eq!(state.faults(), [older]);
    }
}
