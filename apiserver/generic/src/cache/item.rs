//! What the cache holds: an object with its bytes, and an event that leads to it.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::{
    Object,
    storage::{Key, Revision, Stored},
};

/// An object as all readers share it.
#[derive(Debug)]
pub struct Item {
    /// Address.
    pub key: Key,
    /// When it was written.
    pub revision: Revision,
    /// The object, with its resourceVersion.
    pub object: Object,
    /// The object as JSON.
    pub json: Bytes,
}

impl Item {
    /// Encodes a stored object.
    pub fn new(stored: Stored) -> Self {
        // A map with string keys always serializes; an empty document would be seen by every test.
        let json = serde_json::to_vec(&stored.object).unwrap_or_default();
        Self {
            key: stored.key,
            revision: stored.revision,
            object: stored.object,
            json: json.into(),
        }
    }

    /// The same object with another resourceVersion.
    pub fn at(&self, revision: Revision) -> Self {
        let mut object = self.object.clone();
        object.set_meta("resourceVersion", &revision.to_string());
        Self::new(Stored {
            key: self.key.clone(),
            object,
            revision,
        })
    }
}

/// Whether an object is there after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// Created or changed.
    Put,
    /// Removed.
    Deleted,
}

/// One change of one object.
#[derive(Debug)]
pub struct Event {
    /// When it happened.
    pub revision: Revision,
    /// What happened.
    pub kind: EventKind,
    /// The new state, or the last one with the revision of the removal.
    pub item: Arc<Item>,
    /// The state before.
    pub previous: Option<Arc<Item>>,
    /// Found missing by a re-list: several such events share the list's revision.
    relisted: bool,
    departed: OnceLock<Arc<Item>>,
}

impl Event {
    /// An event.
    pub fn new(kind: EventKind, item: Arc<Item>, previous: Option<Arc<Item>>) -> Self {
        Self {
            revision: item.revision,
            kind,
            item,
            previous,
            relisted: false,
            departed: OnceLock::new(),
        }
    }

    /// A removal that a re-list found.
    pub(super) fn relisted(item: Arc<Item>, previous: Arc<Item>) -> Self {
        Self {
            relisted: true,
            ..Self::new(EventKind::Deleted, item, Some(previous))
        }
    }

    /// Whether a reader that resumes from `revision` has yet to see this. One that broke off
    /// within a re-list's deletions gets all of them again rather than none.
    pub(super) fn is_after(&self, revision: Revision) -> bool {
        self.revision > revision || (self.relisted && self.revision == revision)
    }

    /// The oldest revision from which a reader may resume once this event is forgotten.
    pub(super) fn complete_after(&self) -> Revision {
        Revision(self.revision.0 + u64::from(self.relisted))
    }

    /// The previous state with this event's revision: what a watcher is told whose selector the
    /// object has left. Made once for all watchers.
    pub fn departed(&self) -> Option<&Arc<Item>> {
        let previous = self.previous.as_ref()?;
        Some(
            self.departed
                .get_or_init(|| Arc::new(previous.at(self.revision))),
        )
    }

    /// Bytes that the event keeps alive, roughly.
    pub(super) fn weight(&self) -> usize {
        let before = self.previous.as_ref().map_or(0, |p| p.json.len());
        self.item.json.len() + before
    }
}
