//! The stores over the server's own registries: the same strategies, admission and caches as REST.

use apiserver_generic::registry::{ListOptions, Registry, Trigger, Writer};
use apiserver_generic::storage::Key as StorageKey;
use apiserver_generic::{ApiError, Object, Reason};
use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use serde_json::Value;

use super::{ImageStore, WorkspaceStore};
use crate::key::Key;
use crate::names::FIELD_MANAGER;

/// Workspaces in a registry.
pub struct RegistryWorkspaces(pub Registry);

/// Images in a registry.
pub struct RegistryImages(pub Registry);

#[async_trait]
impl WorkspaceStore for RegistryWorkspaces {
    async fn get(&self, key: &Key) -> Result<Option<Object>, ApiError> {
        self.0.ready().await;
        let item = self.0.cached_get(&address(key));
        Ok(item.map(|item| item.object.clone()))
    }

    async fn keys(&self) -> Result<Vec<Key>, ApiError> {
        self.0.ready().await;
        let items = self.0.cached_list(None);
        Ok(items.iter().filter_map(|item| key_of(&item.key)).collect())
    }

    async fn write_status(&self, key: &Key, uid: &str, status: Value) -> Result<(), ApiError> {
        self.change(key, uid, Some("status"), |object| {
            let fields = object.fields_mut();
            fields.insert("status".to_owned(), status.clone());
        })
        .await
    }

    async fn remove_annotation(&self, key: &Key, uid: &str, name: &str) -> Result<(), ApiError> {
        self.change(key, uid, None, |object| {
            let annotations = object.metadata_mut().get_mut("annotations");
            if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
                annotations.remove(name);
            }
        })
        .await
    }

    fn changes(&self) -> BoxStream<'static, Key> {
        let triggers = self.0.subscribe().into_stream();
        let keys = triggers.filter_map(|trigger| async move {
            match trigger {
                Trigger::Put(item) | Trigger::Deleted(item) => key_of(&item.key),
                Trigger::Restarted | Trigger::Synced => None,
            }
        });
        keys.boxed()
    }
}

impl RegistryWorkspaces {
    /// Changes the workspace of this UID; one that is gone, or another of its name, is left alone.
    async fn change(
        &self,
        key: &Key,
        uid: &str,
        subresource: Option<&str>,
        edit: impl Fn(&mut Object) + Send + Sync,
    ) -> Result<(), ApiError> {
        let writer = Writer::server(FIELD_MANAGER);
        let gone = || ApiError::not_found("kubeworkspaces.io", "workspaces", &key.name);
        let change = |object: &mut Object| {
            if object.uid() != Some(uid) {
                return Err(gone());
            }
            edit(object);
            Ok(())
        };
        let address = address(key);
        let written = self.0.update_with(&writer, &address, subresource, change);
        match written.await {
            Err(error) if error.reason != Reason::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl ImageStore for RegistryImages {
    async fn list(&self) -> Result<Vec<Object>, ApiError> {
        self.0.ready().await;
        let items = self.0.cached_list(None);
        Ok(items.iter().map(|item| item.object.clone()).collect())
    }

    async fn latest(&self) -> Result<Vec<Object>, ApiError> {
        let listed = self.0.list(&ListOptions::default()).await?;
        let objects = listed.items.iter().map(|item| item.object.clone());
        Ok(objects.collect())
    }
}

fn address(key: &Key) -> StorageKey {
    StorageKey {
        namespace: Some(key.namespace.clone()),
        name: key.name.clone(),
    }
}

fn key_of(key: &StorageKey) -> Option<Key> {
    Some(Key::new(key.namespace.clone()?, &key.name))
}
