//! The claims of this replica: which it holds, and what their streams are told.

use std::collections::BTreeMap;

use apiserver_generic::{Key, Object, Revision};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::claim::{Notice, notice};

/// What a claim means when it can no longer be proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tenure {
    /// Somebody else may be let in: its stream ends.
    Exclusive,
    /// Its streams disturb nobody: they live on.
    Shared,
}

/// One claim of ours.
#[derive(Debug)]
struct Holder {
    tenure: Tenure,
    /// UID and revision of the object, once it is there.
    object: Option<(String, Revision)>,
    told: watch::Sender<Notice>,
}

/// All claims of this replica, by object and by the claim's identity. Two claims on one object are
/// ours while one waits for the other.
#[derive(Debug, Default)]
pub(super) struct Holders {
    map: Mutex<BTreeMap<Key, BTreeMap<String, Holder>>>,
}

impl Holders {
    /// Before the object is written, so that no collector takes it for an orphan.
    pub(super) fn register(
        &self,
        key: &Key,
        claim: &str,
        tenure: Tenure,
    ) -> watch::Receiver<Notice> {
        let (told, receiver) = watch::channel(Notice::Keep);
        let holder = Holder {
            tenure,
            object: None,
            told,
        };
        let mut map = self.map.lock();
        let claims = map.entry(key.clone()).or_default();
        claims.insert(claim.to_owned(), holder);
        receiver
    }

    /// The object is there: from now on its changes are ours to hear.
    pub(super) fn activate(&self, key: &Key, claim: &str, uid: &str, revision: Revision) {
        let mut map = self.map.lock();
        if let Some(holder) = map.get_mut(key).and_then(|claims| claims.get_mut(claim)) {
            holder.object = Some((uid.to_owned(), revision));
        }
    }

    /// The claim is released, or given up.
    pub(super) fn remove(&self, key: &Key, claim: &str) {
        let mut map = self.map.lock();
        let Some(claims) = map.get_mut(key) else {
            return;
        };
        claims.remove(claim);
        if claims.is_empty() {
            map.remove(key);
        }
    }

    /// Whether a claim is ours and alive.
    pub(super) fn contains(&self, key: &Key, claim: &str) -> bool {
        let map = self.map.lock();
        map.get(key)
            .is_some_and(|claims| claims.contains_key(claim))
    }

    /// Tells the holders of a key what its object became; `None` is gone, as of `revision`.
    pub(super) fn changed(&self, key: &Key, stored: Option<&Object>, revision: Revision) {
        let map = self.map.lock();
        for (claim, holder) in map.get(key).into_iter().flatten() {
            if let Some((uid, since)) = &holder.object
                && revision >= *since
            {
                tell(holder, notice(stored, uid, claim));
            }
        }
    }

    /// The keys of all objects that are held.
    pub(super) fn keys(&self) -> Vec<Key> {
        self.map.lock().keys().cloned().collect()
    }

    /// It cannot be proved any more that exclusive claims are ours.
    pub(super) fn fence(&self) {
        for holder in self.map.lock().values().flat_map(BTreeMap::values) {
            if holder.tenure == Tenure::Exclusive {
                tell(holder, Notice::Lost);
            }
        }
    }
}

/// The first notice counts.
fn tell(holder: &Holder, notice: Notice) {
    holder.told.send_if_modified(|slot| {
        let first = *slot == Notice::Keep && notice != Notice::Keep;
        if first {
            *slot = notice;
        }
        first
    });
}
