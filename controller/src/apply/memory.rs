//! What was applied to each child, so that an unchanged one costs no call.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::decide::Applied;
use crate::key::Key;
use crate::kinds::Kind;
use crate::names::Owner;

type Children = HashMap<(Kind, String), Applied>;

/// Bounded by the number of workspaces; a workspace that is gone is forgotten.
#[derive(Debug, Default)]
pub(super) struct Memory {
    workspaces: Mutex<HashMap<Key, Children>>,
}

impl Memory {
    pub(super) fn recall(&self, owner: &Owner, kind: Kind, name: &str) -> Option<Applied> {
        let workspaces = self.lock();
        let children = workspaces.get(&owner.key())?;
        children.get(&(kind, name.to_owned())).cloned()
    }

    pub(super) fn remember(&self, owner: &Owner, kind: Kind, name: &str, applied: Applied) {
        let mut workspaces = self.lock();
        let children = workspaces.entry(owner.key()).or_default();
        children.insert((kind, name.to_owned()), applied);
    }

    pub(super) fn forget(&self, key: &Key) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Children>> {
        // Only whole entries are inserted and removed: a panic elsewhere does not spoil it.
        self.workspaces
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
