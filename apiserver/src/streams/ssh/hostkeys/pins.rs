//! Pins in the status of Workspaces, through the registry as every other write.

use apiserver_generic::{ApiError, Key, Object, Registry, cache::Freshness, registry::Writer};
use apiservice::{
    resources::HOST_KEYS,
    v1alpha1::{GROUP, SshStatus},
};
use serde_json::json;

/// Who writes.
const MANAGER: &str = "workspaces-apiserver-ssh";

/// Whose pin.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// Namespace of the workspace.
    pub namespace: String,
    /// Name of the workspace.
    pub name: String,
    /// UID of the workspace; another one of the same name has its own pin.
    pub uid: String,
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Write {
    /// It is pinned.
    Done,
    /// Somebody else pinned meanwhile: look again.
    Outrun,
}

/// The pin as it is in the storage.
pub(super) async fn read(
    registry: &Registry,
    owner: &Owner,
) -> Result<Option<SshStatus>, ApiError> {
    let object = registry.get(&key(owner), Freshness::Latest).await?;
    belongs(&object, owner)?;
    Ok(pin(&object))
}

/// Pins, if nothing changed since `before` was read.
pub(super) async fn write(
    registry: &Registry,
    owner: &Owner,
    before: Option<&SshStatus>,
    now: &SshStatus,
) -> Result<Write, ApiError> {
    let mut outrun = false;
    let change = |object: &mut Object| {
        belongs(object, owner)?;
        outrun = pin(object).as_ref() != before;
        if !outrun {
            set(object, now);
        }
        Ok(())
    };
    let writer = Writer::server(MANAGER);
    registry
        .update_with(&writer, &key(owner), Some(HOST_KEYS), change)
        .await?;
    Ok(if outrun { Write::Outrun } else { Write::Done })
}

fn key(owner: &Owner) -> Key {
    Key {
        namespace: Some(owner.namespace.clone()),
        name: owner.name.clone(),
    }
}

fn belongs(object: &Object, owner: &Owner) -> Result<(), ApiError> {
    if object.uid() == Some(&owner.uid) {
        return Ok(());
    }
    Err(ApiError::not_found(GROUP, "workspaces", &owner.name))
}

fn pin(object: &Object) -> Option<SshStatus> {
    let value = object.pointer("/status/ssh")?.clone();
    serde_json::from_value(value).ok()
}

fn set(object: &mut Object, pin: &SshStatus) {
    let status = object.fields_mut().entry("status").or_insert(json!({}));
    if let Some(status) = status.as_object_mut() {
        status.insert("ssh".to_owned(), json!(pin));
    }
}
