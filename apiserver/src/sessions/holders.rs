//! The claims of this replica: which it holds, and what their streams are told.

use std::collections::HashMap;

use apiserver_generic::{Key, Object, Revision};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::claim::{Notice, notice};
use crate::streams::close::CloseReason;

/// One claim of ours.
#[derive(Debug)]
struct Holder {
    key: Key,
    /// UID and revision of the object, once it is there.
    object: Option<(String, Revision)>,
    told: watch::Sender<Option<CloseReason>>,
}

/// All claims of this replica, by their identity.
#[derive(Debug, Default)]
pub(super) struct Holders {
    map: Mutex<HashMap<String, Holder>>,
}

impl Holders {
    /// Before the object is written, so that no collector takes it for an orphan.
    pub(super) fn register(&self, claim: &str, key: &Key) -> watch::Receiver<Option<CloseReason>> {
        let (told, receiver) = watch::channel(None);
        let holder = Holder {
            key: key.clone(),
            object: None,
            told,
        };
        self.map.lock().insert(claim.to_owned(), holder);
        receiver
    }

    /// The object is there: from now on its changes are ours to hear.
    pub(super) fn activate(&self, claim: &str, uid: &str, revision: Revision) {
        if let Some(holder) = self.map.lock().get_mut(claim) {
            holder.object = Some((uid.to_owned(), revision));
        }
    }

    /// The claim is released, or given up.
    pub(super) fn remove(&self, claim: &str) {
        self.map.lock().remove(claim);
    }

    /// Whether a claim is ours and alive.
    pub(super) fn contains(&self, claim: &str) -> bool {
        self.map.lock().contains_key(claim)
    }

    /// Tells the holder of a key what its object became; `None` is gone, as of `revision`.
    pub(super) fn changed(&self, key: &Key, stored: Option<&Object>, revision: Revision) {
        for (claim, holder) in self.map.lock().iter().filter(|(_, h)| h.key == *key) {
            let Some((uid, since)) = &holder.object else {
                continue;
            };
            if revision < *since {
                continue;
            }
            if let Some(reason) = reason(notice(stored, uid, claim)) {
                tell(&holder.told, reason);
            }
        }
    }

    /// The keys of all objects that are held.
    pub(super) fn keys(&self) -> Vec<Key> {
        self.map.lock().values().map(|h| h.key.clone()).collect()
    }

    /// Tells all.
    pub(super) fn tell_all(&self, reason: &CloseReason) {
        for holder in self.map.lock().values() {
            tell(&holder.told, reason.clone());
        }
    }
}

fn reason(notice: Notice) -> Option<CloseReason> {
    match notice {
        Notice::Keep => None,
        Notice::TakenOver => Some(CloseReason::TakenOver),
        Notice::Ended => Some(CloseReason::EndedByAdmin),
        Notice::Lost => Some(CloseReason::ControlPlaneUnreachable),
    }
}

/// The first reason counts.
fn tell(told: &watch::Sender<Option<CloseReason>>, reason: CloseReason) {
    told.send_if_modified(|slot| {
        let first = slot.is_none();
        if first {
            *slot = Some(reason);
        }
        first
    });
}
