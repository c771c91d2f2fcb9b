//! Fences: a small write whose event, seen on our watch, proves that all before it has arrived.
//!
//! Each replica has an object of its own per stored kind: writers of one shared object would wait
//! for each other. Fences that no replica writes any more are removed by whoever reads them in a
//! full list; a replica whose fence was removed in error makes it anew.

use jiff::Timestamp;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::{
    ClusterStorage,
    envelope::{Envelope, FenceSeen},
    kind::StoredKind,
};
use crate::{
    Scope,
    storage::{Key, Revision, StorageError, WriteContext},
};

/// A fence that was not written for so long belongs to nobody, in seconds.
const ABANDONED: i64 = 3600;

/// This replica's fence.
#[derive(Clone, Debug)]
pub(super) struct FenceObject {
    key: Key,
}

impl FenceObject {
    /// The name is longer than a label may be, so that served names need not avoid it.
    pub(super) fn new(kind: &StoredKind, replica: &str, namespace: &str) -> Self {
        let digest = Sha256::digest(replica.as_bytes());
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        Self {
            key: Key {
                namespace: (kind.scope == Scope::Namespaced).then(|| namespace.to_owned()),
                name: format!("fence.{hex}"),
            },
        }
    }

    /// Where it is.
    pub(super) fn key(&self) -> &Key {
        &self.key
    }
}

impl ClusterStorage {
    /// Writes the fence, without precondition; every write differs, or it would not be one.
    pub(super) async fn write_fence(&self) -> Result<Revision, StorageError> {
        let at = Timestamp::now().as_second();
        let fence = json!({"at": at, "nonce": uuid::Uuid::new_v4().to_string()});
        let key = &self.fence.key;
        let patch = self.requests.merge(key, &json!({"fence": fence}))?;
        let written = match self.send::<Envelope>(patch).await {
            Err(StorageError::NotFound) => {
                let kind = self.requests.kind();
                let document = json!({
                    "apiVersion": kind.api_version(), "kind": kind.kind, "fence": fence,
                    "metadata": {"name": key.name, "namespace": key.namespace},
                });
                let context = WriteContext::default();
                self.send(self.requests.create(&context, key, &document)?)
                    .await
            }
            other => other,
        };
        written?.revision()
    }

    /// Removes a fence that its replica has abandoned.
    pub(super) async fn collect(&self, fence: FenceSeen) {
        if !abandoned(&fence, &self.fence.key, Timestamp::now().as_second()) {
            return;
        }
        let context = WriteContext::default();
        let Ok(request) = self.requests.delete(&context, &fence.key, fence.revision) else {
            return;
        };
        if let Err(error) = self.send::<serde::de::IgnoredAny>(request).await {
            tracing::debug!(%error, fence = %fence.key, "an abandoned fence was not removed");
        }
    }
}

fn abandoned(fence: &FenceSeen, own: &Key, now: i64) -> bool {
    fence.key != *own && now - fence.at > ABANDONED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_others_old_fences_are_abandoned() {
        let own = Key::namespaced("ns", "mine");
        let seen = |name: &str, at| FenceSeen {
            key: Key::namespaced("ns", name),
            revision: Revision(1),
            at,
        };
        assert!(abandoned(&seen("other", 0), &own, ABANDONED + 1));
        assert!(!abandoned(&seen("other", 0), &own, ABANDONED));
        assert!(!abandoned(&seen("mine", 0), &own, ABANDONED + 1));
    }

    #[test]
    fn the_name_is_valid_and_longer_than_a_label() {
        let kind = StoredKind {
            group: "g.io".into(),
            version: "v1".into(),
            plural: "p".into(),
            kind: "K".into(),
            scope: Scope::Cluster,
        };
        let name = FenceObject::new(&kind, "pod-1", "ns").key.name;
        assert_eq!(crate::registry::subdomain_fault(&name), None);
        assert!(name.len() > 63);
    }
}
