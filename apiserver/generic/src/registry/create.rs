//! What becomes of a new object before it is stored. Pure.
//!
//! Mirrors `k8s.io/apiserver/pkg/registry/rest/create.go`.

use jiff::Timestamp;
use serde_json::json;

use super::{environment::rfc3339, metadata};
use crate::{ApiError, Object, Strategy, storage::Key};

/// Metadata that only the server writes.
const SERVERS: [&str; 8] = [
    "creationTimestamp",
    "uid",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "generation",
    "managedFields",
    "resourceVersion",
];

/// What a new object gets from the server.
#[derive(Clone, Debug)]
pub(super) struct Birth {
    pub(super) key: Key,
    pub(super) uid: String,
    pub(super) now: Timestamp,
}

/// Gives the object its identity, and drops what its author may not decide.
pub(super) fn prepare(strategy: &dyn Strategy, object: &mut Object, birth: &Birth) -> Vec<String> {
    let mut warnings = Vec::new();
    if metadata::dedup_owners(object) {
        warnings.push(DUPLICATE_OWNERS.to_owned());
    }
    for key in SERVERS {
        object.remove_meta(key);
    }
    object.set_meta("name", &birth.key.name);
    object.set_meta(
        "namespace",
        birth.key.namespace.as_deref().unwrap_or_default(),
    );
    object.set_meta("uid", &birth.uid);
    object.set_meta("creationTimestamp", &rfc3339(birth.now));
    object
        .metadata_mut()
        .insert("generation".to_owned(), json!(1));
    stamp_kind(strategy, object);
    strategy.prepare_for_create(object);
    warnings
}

/// `metadata.ownerReferences` had entries twice.
pub(super) const DUPLICATE_OWNERS: &str =
    ".metadata.ownerReferences contains duplicate entries; API server dedups owner references";

/// The kind and version that are served.
pub(super) fn stamp_kind(strategy: &dyn Strategy, object: &mut Object) {
    let row = strategy.resource();
    let fields = object.fields_mut();
    fields.insert("apiVersion".to_owned(), json!(row.api_version()));
    fields.insert("kind".to_owned(), json!(row.kind));
}

/// Refuses an object that is not valid.
pub(super) fn validate(strategy: &dyn Strategy, object: &Object) -> Result<(), ApiError> {
    let mut causes = metadata::validate(object);
    causes.extend(strategy.validate(object));
    refuse(strategy, object, causes)
}

pub(super) fn refuse(
    strategy: &dyn Strategy,
    object: &Object,
    causes: Vec<crate::Cause>,
) -> Result<(), ApiError> {
    if causes.is_empty() {
        return Ok(());
    }
    let row = strategy.resource();
    Err(ApiError::invalid(
        row.group,
        row.kind,
        object.name(),
        causes,
    ))
}
