//! A backend that forgets: a double for tests of what stands on storage.
//!
//! It keeps the whole history, so that exact lists and watches from any revision work, and it can
//! be told to misbehave: [`MemoryStorage::compact`], [`MemoryStorage::break_watches`],
//! [`MemoryStorage::set_fences`].

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use futures::StreamExt as _;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{
    At, Change, Changes, Key, ListQuery, Page, Revision, Storage, StorageError, Stored,
    WriteContext,
};
use crate::Object;

/// The double. Clones share their content, as replicas share a backend.
#[derive(Clone)]
pub struct MemoryStorage {
    shared: Arc<Shared>,
}

struct Shared {
    inner: Mutex<Inner>,
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct Inner {
    objects: BTreeMap<Key, Stored>,
    log: Vec<Change>,
    revision: u64,
    compacted: u64,
    generation: u64,
    no_fences: bool,
    contexts: Vec<WriteContext>,
}

impl Default for MemoryStorage {
    fn default() -> Self {
        Self {
            shared: Arc::new(Shared {
                inner: Mutex::new(Inner {
                    revision: 1,
                    ..Inner::default()
                }),
                changed: watch::Sender::new(0),
            }),
        }
    }
}

impl MemoryStorage {
    /// Forgets history: exact reads and watches from before now are 410.
    pub fn compact(&self) {
        let mut inner = self.shared.inner.lock();
        inner.compacted = inner.revision;
    }

    /// Ends every watch, as a connection that breaks does.
    pub fn break_watches(&self) {
        self.shared.inner.lock().generation += 1;
        self.wake();
    }

    /// Whether fences work.
    pub fn set_fences(&self, on: bool) {
        self.shared.inner.lock().no_fences = !on;
    }

    /// Contexts of all writes so far.
    pub fn contexts(&self) -> Vec<WriteContext> {
        self.shared.inner.lock().contexts.clone()
    }

    fn wake(&self) {
        self.shared.changed.send_modify(|n| *n += 1);
    }

    fn write<T>(
        &self,
        context: &WriteContext,
        change: impl FnOnce(&mut Inner) -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        let mut inner = self.shared.inner.lock();
        let result = change(&mut inner)?;
        inner.contexts.push(context.clone());
        drop(inner);
        self.wake();
        Ok(result)
    }
}

impl Inner {
    fn put(&mut self, key: &Key, object: &Object) -> Stored {
        self.revision += 1;
        let stored = stamped(key, object, Revision(self.revision));
        self.objects.insert(key.clone(), stored.clone());
        self.log.push(Change::Put(stored.clone()));
        stored
    }

    fn expect(&self, key: &Key, expected: Revision) -> Result<&Stored, StorageError> {
        let current = self.objects.get(key).ok_or(StorageError::NotFound)?;
        if current.revision == expected {
            Ok(current)
        } else {
            Err(StorageError::Conflict)
        }
    }

    fn at(&self, at: At) -> Result<(BTreeMap<Key, Stored>, Revision), StorageError> {
        let At::Exact(revision) = at else {
            return Ok((self.objects.clone(), Revision(self.revision)));
        };
        if revision.0 < self.compacted {
            return Err(StorageError::Expired(revision));
        }
        if revision.0 > self.revision {
            return Err(StorageError::Future(revision, Revision(self.revision)));
        }
        let mut objects = BTreeMap::new();
        for change in &self.log {
            match change {
                Change::Put(s) if s.revision <= revision => {
                    objects.insert(s.key.clone(), s.clone());
                }
                Change::Deleted(s) if s.revision <= revision => {
                    objects.remove(&s.key);
                }
                _ => {}
            }
        }
        Ok((objects, revision))
    }
}

fn stamped(key: &Key, object: &Object, revision: Revision) -> Stored {
    let mut object = object.clone();
    object.set_meta("resourceVersion", &revision.to_string());
    Stored {
        key: key.clone(),
        object,
        revision,
    }
}

fn revision_of(change: &Change) -> Revision {
    match change {
        Change::Put(stored) | Change::Deleted(stored) => stored.revision,
        Change::Progress(revision) => *revision,
    }
}

#[async_trait]
impl Storage for MemoryStorage {
    async fn get(&self, key: &Key) -> Result<Stored, StorageError> {
        let inner = self.shared.inner.lock();
        inner
            .objects
            .get(key)
            .cloned()
            .ok_or(StorageError::NotFound)
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, StorageError> {
        let (objects, revision) = self.shared.inner.lock().at(query.at)?;
        let mut items: Vec<Stored> = objects
            .into_values()
            .filter(|s| query.namespace.is_none() || s.key.namespace == query.namespace)
            .filter(|s| query.after.as_ref().is_none_or(|after| s.key > *after))
            .collect();
        let limit = query.limit.unwrap_or(usize::MAX);
        let more = items.len() > limit;
        items.truncate(limit);
        Ok(Page {
            items,
            revision,
            more,
        })
    }

    async fn watch(&self, from: Revision) -> Result<Changes, StorageError> {
        let (generation, position) = {
            let inner = self.shared.inner.lock();
            if from.0 < inner.compacted {
                return Err(StorageError::Expired(from));
            }
            let after = inner.log.iter().position(|c| revision_of(c) > from);
            (inner.generation, after.unwrap_or(inner.log.len()))
        };
        let changed = self.shared.changed.subscribe();
        let watch = (self.shared.clone(), changed, generation, position);
        let stream =
            futures::stream::unfold(watch, |(shared, mut changed, generation, at)| async move {
                loop {
                    {
                        let inner = shared.inner.lock();
                        if inner.generation != generation {
                            return None;
                        }
                        if let Some(change) = inner.log.get(at).cloned() {
                            drop(inner);
                            return Some((Ok(change), (shared, changed, generation, at + 1)));
                        }
                    }
                    changed.changed().await.ok()?;
                }
            });
        Ok(stream.boxed())
    }

    async fn create(
        &self,
        context: &WriteContext,
        key: &Key,
        object: &Object,
    ) -> Result<Stored, StorageError> {
        self.write(context, |inner| match inner.objects.get(key) {
            Some(_) => Err(StorageError::AlreadyExists),
            None => Ok(inner.put(key, object)),
        })
    }

    async fn update(
        &self,
        context: &WriteContext,
        key: &Key,
        object: &Object,
        expected: Revision,
    ) -> Result<Stored, StorageError> {
        self.write(context, |inner| {
            inner.expect(key, expected)?;
            Ok(inner.put(key, object))
        })
    }

    async fn delete(
        &self,
        context: &WriteContext,
        key: &Key,
        expected: Revision,
    ) -> Result<(), StorageError> {
        self.write(context, |inner| {
            let last = inner.expect(key, expected)?.object.clone();
            inner.revision += 1;
            let revision = Revision(inner.revision);
            inner.objects.remove(key);
            inner
                .log
                .push(Change::Deleted(stamped(key, &last, revision)));
            Ok(())
        })
    }

    async fn fence(&self) -> Result<Option<Revision>, StorageError> {
        let mut inner = self.shared.inner.lock();
        if inner.no_fences {
            return Ok(None);
        }
        inner.revision += 1;
        let revision = Revision(inner.revision);
        inner.log.push(Change::Progress(revision));
        drop(inner);
        self.wake();
        Ok(Some(revision))
    }
}
