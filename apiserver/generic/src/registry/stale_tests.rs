//! Changes over a cache that is current, and over one that has stood still.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use futures::StreamExt as _;
use serde_json::{Value, json};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{Parts, Patch, Registry, Writer};
use crate::{
    Object, Reason,
    storage::{
        Changes, Key, ListQuery, MemoryStorage, Page, Revision, Storage, StorageError, Stored,
        WriteContext,
    },
    test_widgets::Widgets,
};

/// A storage that counts looks at single objects, and whose watches may tell nothing.
#[derive(Default)]
struct Counted {
    storage: MemoryStorage,
    gets: AtomicUsize,
    silent: bool,
}

#[async_trait]
impl Storage for Counted {
    async fn get(&self, key: &Key) -> Result<Stored, StorageError> {
        self.gets.fetch_add(1, Ordering::SeqCst);
        self.storage.get(key).await
    }
    async fn list(&self, query: &ListQuery) -> Result<Page, StorageError> {
        self.storage.list(query).await
    }
    async fn watch(&self, from: Revision) -> Result<Changes, StorageError> {
        match self.silent {
            true => Ok(futures::stream::pending().boxed()),
            false => self.storage.watch(from).await,
        }
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

struct Bench {
    registry: Registry,
    storage: Arc<Counted>,
    writer: Writer,
    _stop: tokio_util::sync::DropGuard,
}

fn key() -> Key {
    Key::namespaced("ns", "a")
}

fn widget(spec: Value) -> Object {
    let object = json!({"metadata": {"name": "a"}, "spec": spec});
    Object::from_value(object).unwrap()
}

/// A registry that has found one widget; what happens to it later it hears unless it is `silent`.
async fn bench(silent: bool) -> Bench {
    let storage = Arc::new(Counted {
        silent,
        ..Counted::default()
    });
    let stop = CancellationToken::new();
    let start = || {
        let parts = Parts::new(Arc::new(Widgets::new()), storage.clone());
        Registry::start(parts, &TaskTracker::new(), &stop)
    };
    let (writer, first) = (Writer::server("test"), start());
    first.ready().await;
    let made = first.create(&writer, Some("ns"), widget(json!({"size": 1})));
    made.await.unwrap();
    let registry = start();
    registry.ready().await;
    storage.gets.store(0, Ordering::SeqCst);
    Bench {
        registry,
        storage,
        writer,
        _stop: stop.drop_guard(),
    }
}

impl Bench {
    fn gets(&self) -> usize {
        self.storage.gets.swap(0, Ordering::SeqCst)
    }

    /// Somebody else's change, at another replica.
    async fn behind(&self, size: i64) -> Object {
        let mut stored = self.storage.storage.get(&key()).await.unwrap();
        stored.object.fields_mut()["spec"]["size"] = json!(size);
        let (context, storage) = (WriteContext::default(), &self.storage.storage);
        let update = storage.update(&context, &stored.key, &stored.object, stored.revision);
        update.await.unwrap().object
    }

    async fn patch(&self, patch: Value) -> Result<Object, crate::ApiError> {
        let (key, patch) = (key(), Patch::merge(patch));
        let patched = self.registry.patch(&self.writer, &key, None, &patch);
        patched.await.map(|written| written.object)
    }
}

#[tokio::test]
async fn a_change_of_what_the_cache_knows_asks_the_storage_nothing_first() {
    let bench = bench(false).await;
    let patched = bench.patch(json!({"spec": {"size": 2}})).await.unwrap();
    assert_eq!(patched.pointer("/spec/size"), Some(&json!(2)));
    assert_eq!(bench.gets(), 0);
}

#[tokio::test]
async fn a_change_over_a_cache_that_is_behind_is_one_of_the_stored_object() {
    let bench = bench(true).await;
    bench.behind(3).await;
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let patched = bench.patch(label).await.unwrap();
    assert_eq!(patched.pointer("/spec/size"), Some(&json!(3)));
    assert_eq!(patched.str_at("/metadata/labels/a"), Some("b"));
    assert_eq!(bench.gets(), 1);
}

#[tokio::test]
async fn what_is_refused_tried_or_without_effect_is_judged_by_the_stored_object() {
    let bench = bench(true).await;
    let newer = bench.behind(3).await;
    // Of the cache's object this would be a conflict.
    let version = newer.resource_version().unwrap().to_owned();
    let guarded =
        |size: i64| json!({"metadata": {"resourceVersion": version}, "spec": {"size": size}});
    let trial = Writer {
        dry_run: true,
        ..bench.writer.clone()
    };
    let tried = bench
        .registry
        .patch(&trial, &key(), None, &Patch::merge(guarded(4)))
        .await
        .unwrap();
    assert_eq!(tried.object.pointer("/spec/size"), Some(&json!(4)));
    // Of the cache's object this would change something, of the stored one nothing.
    let same = bench.patch(json!({"spec": {"size": 3}})).await.unwrap();
    assert_eq!(same.resource_version(), newer.resource_version());
    // Of the cache's object this would change nothing.
    let back = bench.patch(json!({"spec": {"size": 1}})).await.unwrap();
    assert_eq!(back.pointer("/spec/size"), Some(&json!(1)));
    let error = bench.patch(guarded(5)).await.unwrap_err();
    assert_eq!(error.reason, Reason::Conflict);
}

#[tokio::test]
async fn what_was_deleted_behind_the_cache_is_not_found() {
    let bench = bench(true).await;
    let stored = bench.storage.storage.get(&key()).await.unwrap();
    let (context, storage) = (WriteContext::default(), &bench.storage.storage);
    let delete = storage.delete(&context, &stored.key, stored.revision);
    delete.await.unwrap();
    let error = bench.patch(json!({"spec": {"size": 2}})).await.unwrap_err();
    assert_eq!(error.reason, Reason::NotFound);
    // One of the same name is another object.
    let first = bench
        .registry
        .create(&bench.writer, Some("ns"), widget(json!({"size": 7})));
    let uid = first.await.unwrap().object.uid().map(str::to_owned);
    let patched = bench.patch(json!({"metadata": {"labels": {"a": "b"}}}));
    let patched = patched.await.unwrap();
    assert_eq!(patched.uid().map(str::to_owned), uid);
    assert_eq!(patched.pointer("/spec/size"), Some(&json!(7)));
}
