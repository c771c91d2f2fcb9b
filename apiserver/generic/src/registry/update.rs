//! What becomes of a change before it is stored. Pure.
//!
//! Mirrors `k8s.io/apiserver/pkg/registry/rest/update.go`.

use serde_json::{Value, json};

use super::{
    create::{DUPLICATE_OWNERS, refuse, stamp_kind},
    metadata,
};
use crate::{ApiError, Object, Strategy};

/// Metadata that an update cannot change.
const KEPT: [&str; 8] = [
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "generateName",
    "managedFields",
    "resourceVersion",
];

/// Refuses a change that was made to another object, or to an older state of this one.
pub(super) fn check_identity(
    strategy: &dyn Strategy,
    new: &Object,
    old: &Object,
) -> Result<(), ApiError> {
    let row = strategy.resource();
    let conflict = |why: &str| Err(ApiError::conflict(row.group, row.plural, old.name(), why));
    if let (Some(wanted), Some(is)) = (new.uid(), old.uid())
        && wanted != is
    {
        return conflict(&format!(
            "Precondition failed: UID in precondition: {wanted}, UID in object meta: {is}"
        ));
    }
    if !new.name().is_empty() && new.name() != old.name() {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({})",
            new.name(),
            old.name()
        )));
    }
    match new.resource_version() {
        Some(version) if old.resource_version() != Some(version) => conflict(MODIFIED),
        _ => Ok(()),
    }
}

/// The object changed since the caller read it.
pub(super) const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// Carries over what the caller may not change, and counts the generation.
pub(super) fn prepare(
    strategy: &dyn Strategy,
    new: &mut Object,
    old: &Object,
    subresource: Option<&str>,
) -> Vec<String> {
    let mut warnings = Vec::new();
    if subresource.is_some() {
        keep_metadata(new, old);
    } else if metadata::dedup_owners(new) {
        warnings.push(DUPLICATE_OWNERS.to_owned());
    }
    new.remove_meta("selfLink");
    for key in KEPT {
        keep(new, old, key);
    }
    for key in ["name", "namespace"] {
        keep(new, old, key);
    }
    stamp_kind(strategy, new);
    strategy.prepare_for_update(new, old, subresource);
    let generation = old.generation() + i64::from(subresource.is_none() && spec_differs(new, old));
    new.metadata_mut()
        .insert("generation".to_owned(), json!(generation));
    warnings
}

fn keep_metadata(new: &mut Object, old: &Object) {
    let metadata = old.metadata().cloned().unwrap_or_default();
    *new.metadata_mut() = metadata;
}

fn keep(new: &mut Object, old: &Object, key: &str) {
    match old.metadata().and_then(|m| m.get(key)) {
        Some(value) => new.metadata_mut().insert(key.to_owned(), value.clone()),
        None => new.metadata_mut().remove(key),
    };
}

/// Whether anything but metadata and status differs.
fn spec_differs(new: &Object, old: &Object) -> bool {
    let rest = |object: &Object| -> Vec<(String, Value)> {
        let of_spec = |key: &str| key != "metadata" && key != "status";
        let fields = object.fields().iter().filter(|(key, _)| of_spec(key));
        fields.map(|(k, v)| (k.clone(), v.clone())).collect()
    };
    rest(new) != rest(old)
}

/// Refuses a change that is not valid.
pub(super) fn validate(
    strategy: &dyn Strategy,
    new: &Object,
    old: &Object,
    subresource: Option<&str>,
) -> Result<(), ApiError> {
    let mut causes = metadata::validate_update(new, old);
    causes.extend(strategy.validate_update(new, old, subresource));
    refuse(strategy, new, causes)
}

/// What a change comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Nothing differs: nothing is written, and the version stays.
    Unchanged,
    /// It is stored.
    Write,
    /// Its last finalizer is gone: it is removed.
    Remove,
}

/// Decides what a prepared and valid change comes to.
pub(super) fn fate(new: &Object, old: &Object) -> Fate {
    if new.deletion_timestamp().is_some() && new.finalizers().is_empty() {
        Fate::Remove
    } else if new == old {
        Fate::Unchanged
    } else {
        Fate::Write
    }
}
