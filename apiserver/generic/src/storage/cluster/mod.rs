//! Storage in the cluster itself: each object in the envelope of a custom resource.
//!
//! Entry point: [`ClusterStorage`]. kube-apiserver and its etcd give durability, backup and
//! compare-and-swap; resourceVersions are theirs. What the envelope looks like is in `envelope`;
//! why it is one is in `docs/architecture.md`.

mod envelope;
mod errors;
mod fence;
mod kind;
mod requests;
mod schema;
mod watch;

use std::time::Duration;

use async_trait::async_trait;
use http::Request;
use kube::Client;
use serde::{Deserialize, de::DeserializeOwned};

pub use kind::StoredKind;
pub use schema::SchemaFault;

use super::{Changes, Key, ListQuery, Page, Revision, Storage, StorageError, Stored, WriteContext};
use crate::Object;
use envelope::{Content, Envelope};
use fence::FenceObject;
use requests::Requests;

/// Longest time that one request may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Objects asked for at once.
const CHUNK: usize = 500;

/// The backend for one stored kind.
#[derive(Clone)]
pub struct ClusterStorage {
    client: Client,
    requests: Requests,
    fence: FenceObject,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    #[serde(default)]
    resource_version: String,
    #[serde(default, rename = "continue")]
    next: Option<String>,
}

#[derive(Deserialize)]
struct List {
    metadata: ListMeta,
    items: Vec<Envelope>,
}

impl ClusterStorage {
    /// Stores objects as `kind`. `replica` names this process among those that share the kind
    /// (the Pod's name), and `namespace` is the server's own: its fence lives there.
    pub fn new(client: Client, kind: StoredKind, replica: &str, namespace: &str) -> Self {
        let fence = FenceObject::new(&kind, replica, namespace);
        Self {
            client,
            requests: Requests::new(kind),
            fence,
        }
    }

    async fn send<T: DeserializeOwned>(
        &self,
        request: Request<Vec<u8>>,
    ) -> Result<T, StorageError> {
        let answer = self.client.request::<T>(request);
        match tokio::time::timeout(PATIENCE, answer).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(errors::from_kube(error)),
            Err(_) => Err(StorageError::Unavailable {
                message: format!("no answer within {} s", PATIENCE.as_secs()),
                retry_after: None,
            }),
        }
    }

    async fn write(&self, request: Request<Vec<u8>>) -> Result<Stored, StorageError> {
        let envelope: Envelope = self.send(request).await?;
        envelope.stored()
    }

    /// Follows the backend's own continue tokens until `query` is answered.
    async fn pages(&self, query: &ListQuery) -> Result<Page, StorageError> {
        let limit = query.limit.unwrap_or(usize::MAX);
        let mut page = Page {
            items: Vec::new(),
            revision: Revision(0),
            more: false,
        };
        let mut next = None;
        loop {
            let list: List = self
                .send(self.requests.list(query, CHUNK, next.as_deref())?)
                .await?;
            page.revision = envelope::revision(&list.metadata.resource_version)?;
            for envelope in list.items {
                self.take(envelope, query, &mut page).await;
            }
            next = list.metadata.next.filter(|token| !token.is_empty());
            if page.items.len() > limit || next.is_none() {
                break;
            }
        }
        page.more = page.items.len() > limit;
        page.items.truncate(limit);
        Ok(page)
    }

    async fn take(&self, envelope: Envelope, query: &ListQuery, page: &mut Page) {
        match envelope.content() {
            Ok(Content::Object(stored)) => {
                if query.after.as_ref().is_none_or(|after| stored.key > *after) {
                    page.items.push(stored);
                }
            }
            Ok(Content::Fence(fence)) => self.collect(fence).await,
            Err(error) => tracing::warn!(%error, "a stored object cannot be read and is skipped"),
        }
    }
}

#[async_trait]
impl Storage for ClusterStorage {
    async fn get(&self, key: &Key) -> Result<Stored, StorageError> {
        let envelope: Envelope = self.send(self.requests.get(key)?).await?;
        envelope.stored()
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, StorageError> {
        self.pages(query).await
    }

    async fn watch(&self, from: Revision) -> Result<Changes, StorageError> {
        watch::begin(&self.client, self.requests.watch(from)?).await
    }

    async fn create(
        &self,
        context: &WriteContext,
        key: &Key,
        object: &Object,
    ) -> Result<Stored, StorageError> {
        let document = envelope::document(self.requests.kind(), key, object, None);
        self.write(self.requests.create(context, key, &document)?)
            .await
    }

    async fn update(
        &self,
        context: &WriteContext,
        key: &Key,
        object: &Object,
        expected: Revision,
    ) -> Result<Stored, StorageError> {
        let document = envelope::document(self.requests.kind(), key, object, Some(expected));
        self.write(self.requests.replace(context, key, &document)?)
            .await
    }

    /// An envelope without our finalizer goes at once. One with it is first marked, then released:
    /// a crash in between leaves the served object as it was before, and the caller's next try
    /// finishes.
    async fn delete(
        &self,
        context: &WriteContext,
        key: &Key,
        expected: Revision,
    ) -> Result<(), StorageError> {
        let request = self.requests.delete(context, key, expected)?;
        let answer: serde_json::Value = self.send(request).await?;
        if answer["kind"] == "Status" {
            return Ok(());
        }
        let released = envelope::released(answer)?;
        let request = self.requests.replace(context, key, &released)?;
        self.send::<serde::de::IgnoredAny>(request).await?;
        Ok(())
    }

    async fn fence(&self) -> Result<Option<Revision>, StorageError> {
        self.write_fence().await.map(Some)
    }
}
