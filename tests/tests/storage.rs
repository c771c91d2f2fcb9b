//! One suite for every storage backend, and what only the cluster backend promises.
//!
//! The cluster backend runs against a control plane of its own.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use apiserver_generic::{
    Key, Object, Revision, Scope, Storage,
    cache::{Cache, Freshness, Settings},
    storage::{
        At, Change, Changes, ClusterStorage, ListQuery, MemoryStorage, StorageError, Stored,
        WriteContext, cluster::StoredKind,
    },
};
use futures::StreamExt as _;
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, PostParams},
};
use localcluster::harness::ControlPlane;
use serde_json::{Value, json};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

const PATIENCE: Duration = Duration::from_secs(30);

fn object(name: &str, extra: Value) -> Object {
    let mut value = json!({
        "apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": name, "uid": format!("uid-{name}"), "labels": {"team": "a"}},
        "spec": {"n": 1, "unknown": {"kept": true}},
    });
    json_merge(&mut value, extra);
    Object::from_value(value).unwrap_or_default()
}

fn json_merge(value: &mut Value, extra: Value) {
    match (value, extra) {
        (Value::Object(value), Value::Object(extra)) => {
            for (key, extra) in extra {
                json_merge(value.entry(key).or_insert(Value::Null), extra);
            }
        }
        (value, extra) => *value = extra,
    }
}

fn all(namespace: &str) -> ListQuery {
    ListQuery {
        namespace: Some(namespace.to_owned()),
        at: At::Latest,
        limit: None,
        after: None,
    }
}

fn names(items: &[Stored]) -> Vec<&str> {
    items.iter().map(|s| s.key.name.as_str()).collect()
}

/// What every backend promises, in a namespace that nobody else uses.
async fn suite(storage: &dyn Storage, namespace: &str) -> Result<()> {
    compare_and_swap(storage, namespace)
        .await
        .context("compare-and-swap")?;
    pages(storage, namespace).await.context("pages")?;
    watches(storage, namespace).await.context("watches")?;
    fences(storage).await.context("fences")
}

async fn compare_and_swap(storage: &dyn Storage, namespace: &str) -> Result<()> {
    let (context, key) = (WriteContext::default(), Key::namespaced(namespace, "cas"));
    ensure!(storage.get(&key).await == Err(StorageError::NotFound));
    let made = storage
        .create(&context, &key, &object("cas", json!({})))
        .await?;
    ensure!(made.object.pointer("/spec/unknown/kept") == Some(&json!(true)));
    ensure!(
        made.object.uid() == Some("uid-cas"),
        "the uid is the served object's own"
    );
    ensure!(made.object.resource_version() == Some(made.revision.to_string().as_str()));
    ensure!(storage.get(&key).await? == made);
    let again = storage.create(&context, &key, &made.object).await;
    ensure!(again == Err(StorageError::AlreadyExists));
    let wish = object("cas", json!({"spec": {"n": 2}}));
    let updated = storage.update(&context, &key, &wish, made.revision).await?;
    ensure!(updated.revision > made.revision);
    let stale = storage.update(&context, &key, &wish, made.revision).await;
    ensure!(stale == Err(StorageError::Conflict));
    let stale = storage.delete(&context, &key, made.revision).await;
    ensure!(stale == Err(StorageError::Conflict));
    storage.delete(&context, &key, updated.revision).await?;
    ensure!(storage.get(&key).await == Err(StorageError::NotFound));
    let gone = storage
        .update(&context, &key, &wish, updated.revision)
        .await;
    ensure!(
        matches!(gone, Err(StorageError::NotFound | StorageError::Conflict)),
        "{gone:?}"
    );
    let gone = storage.delete(&context, &key, updated.revision).await;
    ensure!(gone == Err(StorageError::NotFound));
    let held = object(
        "cas",
        json!({"metadata": {"finalizers": ["example.com/x"]}}),
    );
    let held = storage.create(&context, &key, &held).await?;
    storage.delete(&context, &key, held.revision).await?;
    ensure!(
        storage.get(&key).await == Err(StorageError::NotFound),
        "storage decides nothing: it deletes"
    );
    Ok(())
}

async fn pages(storage: &dyn Storage, namespace: &str) -> Result<()> {
    let context = WriteContext::default();
    for name in ["e", "d", "c", "b", "a"] {
        let key = Key::namespaced(namespace, name);
        storage
            .create(&context, &key, &object(name, json!({})))
            .await?;
    }
    let page = storage
        .list(&ListQuery {
            limit: Some(2),
            ..all(namespace)
        })
        .await?;
    ensure!(names(&page.items) == ["a", "b"] && page.more);
    let last = &page.items[1];
    storage.delete(&context, &last.key, last.revision).await?;
    let rest = ListQuery {
        at: At::Exact(page.revision),
        after: Some(page.items[0].key.clone()),
        ..all(namespace)
    };
    let rest = storage.list(&rest).await?;
    ensure!(
        names(&rest.items) == ["b", "c", "d", "e"] && !rest.more,
        "an exact read shows the past"
    );
    ensure!(rest.revision == page.revision);
    let now = storage.list(&all(namespace)).await?;
    ensure!(names(&now.items) == ["a", "c", "d", "e"] && now.revision > page.revision);
    Ok(())
}

async fn next(changes: &mut Changes, namespace: &str) -> Result<Change> {
    loop {
        let change = tokio::time::timeout(PATIENCE, changes.next())
            .await
            .context("no change came")?;
        let change = change.context("the watch ended")??;
        match &change {
            Change::Put(s) | Change::Deleted(s)
                if s.key.namespace.as_deref() == Some(namespace) =>
            {
                return Ok(change);
            }
            _ => {}
        }
    }
}

async fn watches(storage: &dyn Storage, namespace: &str) -> Result<()> {
    let (context, key) = (WriteContext::default(), Key::namespaced(namespace, "w"));
    let from = storage.list(&all(namespace)).await?.revision;
    let made = storage
        .create(&context, &key, &object("w", json!({})))
        .await?;
    let mut changes = storage.watch(from).await?;
    ensure!(next(&mut changes, namespace).await? == Change::Put(made.clone()));
    let wish = object("w", json!({"spec": {"n": 3}}));
    let updated = storage.update(&context, &key, &wish, made.revision).await?;
    ensure!(next(&mut changes, namespace).await? == Change::Put(updated.clone()));
    storage.delete(&context, &key, updated.revision).await?;
    let Change::Deleted(last) = next(&mut changes, namespace).await? else {
        bail!("no deletion")
    };
    ensure!(last.revision > updated.revision && last.object.pointer("/spec/n") == Some(&json!(3)));
    let mut resumed = storage.watch(made.revision).await?;
    ensure!(
        next(&mut resumed, namespace).await? == Change::Put(updated),
        "a watch resumes from any revision"
    );
    Ok(())
}

async fn fences(storage: &dyn Storage) -> Result<()> {
    let everything = ListQuery {
        namespace: None,
        ..all("")
    };
    let before = storage.list(&everything).await?;
    let mut changes = storage.watch(before.revision).await?;
    for _ in 0..2 {
        let fence = storage.fence().await?.context("no fence")?;
        ensure!(fence > before.revision);
        loop {
            let change = tokio::time::timeout(PATIENCE, changes.next())
                .await?
                .context("end")??;
            match change {
                Change::Progress(revision) if revision >= fence => break,
                Change::Progress(_) => {}
                other => bail!("a fence shows as {other:?}"),
            }
        }
    }
    let after = storage.list(&everything).await?;
    ensure!(
        after.items.len() == before.items.len(),
        "fences are not listed"
    );
    Ok(())
}

#[tokio::test]
async fn memory_holds_the_storage_contract() -> Result<()> {
    suite(&MemoryStorage::default(), "ns").await
}

fn kind() -> StoredKind {
    StoredKind {
        group: "storage.example.com".into(),
        version: "v1".into(),
        plural: "storedwidgets".into(),
        kind: "StoredWidget".into(),
        scope: Scope::Namespaced,
    }
}

struct Plane {
    client: Client,
    storage: ClusterStorage,
    _plane: ControlPlane,
}

impl Plane {
    async fn start() -> Result<Self> {
        let plane = ControlPlane::start().await?;
        let client = plane.client()?;
        let definition = serde_json::from_value(kind().definition())?;
        let crds: Api<DynamicObject> = Api::all_with(
            client.clone(),
            &resource("apiextensions.k8s.io", "CustomResourceDefinition"),
        );
        crds.create(&PostParams::default(), &definition).await?;
        let storage = ClusterStorage::new(client.clone(), kind(), "replica-1", "default");
        let plane = Self {
            client,
            storage,
            _plane: plane,
        };
        plane.served().await?;
        Ok(plane)
    }

    /// Waits until the stored kind is served.
    async fn served(&self) -> Result<()> {
        let wait = async {
            while self.storage.list(&all("default")).await.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(PATIENCE, wait)
            .await
            .context("the stored kind is not served")
    }

    async fn namespace(&self, name: &str) -> Result<()> {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.namespaces()
            .create(&PostParams::default(), &serde_json::from_value(namespace)?)
            .await?;
        Ok(())
    }

    fn namespaces(&self) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &resource("", "Namespace"))
    }

    fn envelopes(&self, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(
            self.client.clone(),
            namespace,
            &resource("storage.example.com", "StoredWidget"),
        )
    }
}

fn resource(group: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind))
}

#[tokio::test]
async fn the_cluster_holds_the_storage_contract_and_its_own() -> Result<()> {
    let plane = Plane::start().await?;
    plane.namespace("suite").await?;
    suite(&plane.storage, "suite").await?;
    direct_deletion(&plane).await.context("direct deletion")?;
    namespaces(&plane).await.context("namespaces")?;
    caches(&plane).await.context("caches")
}

/// Somebody deletes an envelope behind our back: it waits for the served object's finalizers.
async fn direct_deletion(plane: &Plane) -> Result<()> {
    let (context, key) = (WriteContext::default(), Key::namespaced("suite", "held"));
    let held = object(
        "held",
        json!({"metadata": {"finalizers": ["example.com/x"]}}),
    );
    plane.storage.create(&context, &key, &held).await?;
    plane
        .envelopes("suite")
        .delete("held", &DeleteParams::default())
        .await?;
    let marked = plane.storage.get(&key).await?;
    ensure!(
        marked.object.deletion_timestamp().is_some(),
        "it shows in the served object"
    );
    let mut free = marked.object.clone();
    free.remove_meta("finalizers");
    plane
        .storage
        .update(&context, &key, &free, marked.revision)
        .await?;
    ensure!(plane.storage.get(&key).await == Err(StorageError::NotFound));
    Ok(())
}

async fn namespaces(plane: &Plane) -> Result<()> {
    let (context, storage) = (WriteContext::default(), &plane.storage);
    let nowhere = Key::namespaced("nowhere", "a");
    let missing = storage
        .create(&context, &nowhere, &object("a", json!({})))
        .await;
    ensure!(
        missing == Err(StorageError::NamespaceMissing("nowhere".into())),
        "{missing:?}"
    );
    plane.namespace("ending").await?;
    let key = Key::namespaced("ending", "held");
    let held = object(
        "held",
        json!({"metadata": {"finalizers": ["example.com/x"]}}),
    );
    storage.create(&context, &key, &held).await?;
    storage
        .create(
            &context,
            &Key::namespaced("ending", "free"),
            &object("free", json!({})),
        )
        .await?;
    plane
        .namespaces()
        .delete("ending", &DeleteParams::default())
        .await?;
    let refused = storage
        .create(&context, &Key::namespaced("ending", "late"), &held)
        .await;
    ensure!(
        refused == Err(StorageError::NamespaceTerminating("ending".into())),
        "{refused:?}"
    );
    let release = async {
        loop {
            let found = storage.get(&key).await?;
            if found.object.deletion_timestamp().is_some() {
                return storage.delete(&context, &key, found.revision).await;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(PATIENCE, release)
        .await
        .context("the namespace controller did not come")??;
    let gone = async {
        while plane.namespaces().get_opt("ending").await?.is_some() {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(PATIENCE * 2, gone)
        .await
        .context("the namespace did not end")?
}

/// Writes through one replica are seen by consistent reads at another, with every read.
async fn caches(plane: &Plane) -> Result<()> {
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let reader = ClusterStorage::new(plane.client.clone(), kind(), "replica-2", "default");
    let settings = Settings {
        fence_wait: Duration::from_secs(10),
        ..Settings::default()
    };
    let cache = Cache::start(Arc::new(reader), settings, &tasks, &stop);
    cache.ready().await;
    let context = WriteContext::default();
    for i in 0..30 {
        let key = Key::namespaced("suite", format!("c{i}"));
        let made = plane
            .storage
            .create(&context, &key, &object(&key.name, json!({})))
            .await?;
        cache.fresh(Freshness::Latest).await?;
        let seen = cache
            .get(&key)
            .context("a consistent read missed a write")?;
        ensure!(seen.revision == made.revision);
    }
    ensure!(
        cache
            .fresh(Freshness::NotOlderThan(Revision(1)))
            .await
            .is_ok()
    );
    stop.cancel();
    tasks.close();
    tasks.wait().await;
    Ok(())
}
