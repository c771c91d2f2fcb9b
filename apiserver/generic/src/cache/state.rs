//! What the cache knows: objects, and the recent events that led to them. Pure.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use super::item::{Event, EventKind, Item};
use crate::storage::{Change, Key, Page, Revision, Stored};

/// Bounds of the history.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most events.
    pub events: usize,
    /// Most bytes of JSON that events keep alive.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            events: 8192,
            bytes: 32 << 20,
        }
    }
}

/// Objects at one revision, sorted by key.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The objects.
    pub items: Vec<Arc<Item>>,
    /// When all of them were true.
    pub revision: Revision,
}

/// A position in the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// Number of the next event to read.
    next: u64,
    /// Which history: a backend that was restored begins another.
    epoch: u64,
}

/// The history does not reach back to a position: the reader must start over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the history kept begins at revision {oldest}")]
pub struct Lagged {
    /// The oldest revision from which reading on is possible.
    pub oldest: Revision,
}

/// The cache's content.
pub(super) struct State {
    limits: Limits,
    objects: BTreeMap<Key, Arc<Item>>,
    events: VecDeque<Arc<Event>>,
    bytes: usize,
    /// Number that the next event gets.
    next: u64,
    epoch: u64,
    /// Everything up to here is known; `None` before the first list.
    revision: Option<Revision>,
    /// `events` holds every change after this revision.
    complete_after: Revision,
}

impl State {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            objects: BTreeMap::new(),
            events: VecDeque::new(),
            bytes: 0,
            next: 0,
            epoch: 0,
            revision: None,
            complete_after: Revision(0),
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.revision.is_some()
    }

    pub(super) fn revision(&self) -> Revision {
        self.revision.unwrap_or_default()
    }

    pub(super) fn get(&self, key: &Key) -> Option<Arc<Item>> {
        self.objects.get(key).cloned()
    }

    /// Takes a full list. What changed since the last one becomes events: puts in revision order,
    /// then deletions at the list's revision. A list that is older than what is known means that
    /// the backend went back in time: history ends there, and every reader with it.
    pub(super) fn relist(&mut self, page: Page) {
        if self.revision.is_none_or(|known| page.revision < known) {
            return self.replace(page);
        }
        let mut gone: BTreeSet<Key> = self.objects.keys().cloned().collect();
        let mut put = Vec::new();
        for stored in page.items {
            gone.remove(&stored.key);
            let known = self.objects.get(&stored.key).map(|item| item.revision);
            if known != Some(stored.revision) {
                put.push(stored);
            }
        }
        put.sort_by_key(|stored| stored.revision);
        for stored in put {
            self.put(stored);
        }
        for key in gone {
            if let Some(previous) = self.objects.remove(&key) {
                let last = Arc::new(previous.at(page.revision));
                self.push(Event::relisted(last, previous));
            }
        }
        self.revision = Some(page.revision);
        if self.complete_after > page.revision {
            self.forget(page.revision);
        }
    }

    fn replace(&mut self, page: Page) {
        let items = page
            .items
            .into_iter()
            .map(|stored| Arc::new(Item::new(stored)));
        self.objects = items.map(|item| (item.key.clone(), item)).collect();
        self.revision = Some(page.revision);
        self.forget(page.revision);
    }

    /// Takes one change of the upstream watch. Changes that are known already are skipped.
    pub(super) fn apply(&mut self, change: Change) {
        let revision = match &change {
            Change::Put(stored) | Change::Deleted(stored) => stored.revision,
            Change::Progress(revision) => *revision,
        };
        if self.revision.is_some_and(|known| revision <= known) {
            return;
        }
        match change {
            Change::Put(stored) => self.put(stored),
            Change::Deleted(stored) => {
                self.remove(stored);
            }
            Change::Progress(_) => {}
        }
        self.revision = Some(revision);
    }

    fn put(&mut self, stored: Stored) {
        let item = Arc::new(Item::new(stored));
        let previous = self.objects.insert(item.key.clone(), item.clone());
        self.push(Event::new(EventKind::Put, item, previous));
    }

    fn remove(&mut self, last: Stored) {
        if let Some(previous) = self.objects.remove(&last.key) {
            let item = Arc::new(Item::new(last));
            self.push(Event::new(EventKind::Deleted, item, Some(previous)));
        }
    }

    fn push(&mut self, event: Event) {
        self.bytes += event.weight();
        self.events.push_back(Arc::new(event));
        self.next += 1;
        while self.events.len() > self.limits.events || self.bytes > self.limits.bytes {
            let Some(oldest) = self.events.pop_front() else {
                break;
            };
            self.bytes -= oldest.weight();
            self.complete_after = oldest.complete_after();
        }
    }

    /// Ends the history: whoever reads in it must start over.
    fn forget(&mut self, revision: Revision) {
        self.events.clear();
        self.bytes = 0;
        self.epoch += 1;
        self.complete_after = revision;
    }

    pub(super) fn snapshot(&self, namespace: Option<&str>) -> Snapshot {
        Snapshot {
            items: self
                .range(namespace)
                .map(|(_, item)| item.clone())
                .collect(),
            revision: self.revision(),
        }
    }

    /// Undoes the events after `revision`.
    pub(super) fn snapshot_at(
        &self,
        revision: Revision,
        namespace: Option<&str>,
    ) -> Option<Snapshot> {
        if !self.is_ready() || revision < self.complete_after || revision > self.revision() {
            return None;
        }
        let mut items: BTreeMap<&Key, &Arc<Item>> = self.range(namespace).collect();
        for event in self.events.iter().rev() {
            if event.revision <= revision {
                break;
            }
            let key = &event.item.key;
            if namespace.is_some() && key.namespace.as_deref() != namespace {
                continue;
            }
            match &event.previous {
                Some(previous) => items.insert(key, previous),
                None => items.remove(key),
            };
        }
        Some(Snapshot {
            items: items.into_values().cloned().collect(),
            revision,
        })
    }

    fn range<'a>(
        &'a self,
        namespace: Option<&'a str>,
    ) -> Box<dyn Iterator<Item = (&'a Key, &'a Arc<Item>)> + 'a> {
        match namespace {
            None => Box::new(self.objects.iter()),
            Some(namespace) => Box::new(
                self.objects
                    .range(Key::namespaced(namespace, "")..)
                    .take_while(move |(key, _)| key.namespace.as_deref() == Some(namespace)),
            ),
        }
    }

    pub(super) fn cursor_now(&self) -> Cursor {
        Cursor {
            next: self.next,
            epoch: self.epoch,
        }
    }

    /// The position behind `revision`. A revision that has not come yet is the end of history.
    pub(super) fn cursor_from(&self, revision: Revision) -> Result<Cursor, Lagged> {
        if revision < self.complete_after {
            return Err(self.lagged());
        }
        let known = self.events.partition_point(|e| !e.is_after(revision));
        let oldest = self.next - self.events.len() as u64;
        Ok(Cursor {
            next: oldest + known as u64,
            epoch: self.epoch,
        })
    }

    /// At most `max` events from the cursor on, which moves behind them.
    pub(super) fn read(&self, cursor: &mut Cursor, max: usize) -> Result<Vec<Arc<Event>>, Lagged> {
        let oldest = self.next - self.events.len() as u64;
        if cursor.epoch != self.epoch || cursor.next < oldest {
            return Err(self.lagged());
        }
        let skip = usize::try_from(cursor.next - oldest).unwrap_or(usize::MAX);
        let events: Vec<_> = self.events.iter().skip(skip).take(max).cloned().collect();
        cursor.next += events.len() as u64;
        Ok(events)
    }

    /// Whether the cursor has read everything.
    pub(super) fn at_end(&self, cursor: &Cursor) -> bool {
        cursor.epoch == self.epoch && cursor.next == self.next
    }

    pub(super) fn lagged(&self) -> Lagged {
        Lagged {
            oldest: self.complete_after,
        }
    }
}
