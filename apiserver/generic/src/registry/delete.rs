//! What a deletion comes to. Pure.
//!
//! Mirrors `k8s.io/apiserver/pkg/registry/rest/delete.go` and `deletionFinalizersForGarbageCollection`
//! of `registry/generic/registry/store.go`. Our kinds have no grace period: it is accepted and
//! counts as zero.

use jiff::Timestamp;
use serde_json::json;

use super::{
    environment::rfc3339,
    metadata::{FOREGROUND, ORPHAN},
};
use crate::{ApiError, Object, Strategy};

/// What becomes of dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// They stay, without their owner.
    Orphan,
    /// They go afterwards.
    Background,
    /// They go first.
    Foreground,
}

/// `DeleteOptions`, decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// `preconditions.uid`.
    pub uid: Option<String>,
    /// `preconditions.resourceVersion`.
    pub resource_version: Option<String>,
    /// `propagationPolicy`, or what `orphanDependents` amounts to.
    pub propagation: Option<Propagation>,
    /// The deprecated `orphanDependents: false`, which is answered with 202.
    pub orphan_dependents: Option<bool>,
}

/// What a deletion comes to.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
    /// The object is removed at once.
    Remove,
    /// It is marked and waits for its finalizers.
    Mark(Object),
    /// It is marked already, and the options change nothing.
    Pending,
}

/// Refuses the deletion of another object than the caller means.
pub(super) fn check(
    strategy: &dyn Strategy,
    old: &Object,
    options: &DeleteOptions,
) -> Result<(), ApiError> {
    let row = strategy.resource();
    let refuse = |what: &str, wanted: &str, is: &str| {
        let why = format!(
            "the {what} in the precondition ({wanted}) does not match the {what} in record ({is}). The object might have been {}",
            if what == "UID" {
                "deleted and then recreated"
            } else {
                "modified"
            }
        );
        Err(ApiError::conflict(row.group, row.plural, old.name(), &why))
    };
    let mismatch = |wanted: &Option<String>, is: Option<&str>| {
        let wanted = wanted.clone()?;
        let is = is.unwrap_or_default().to_owned();
        (wanted != is).then_some((wanted, is))
    };
    if let Some((wanted, is)) = mismatch(&options.uid, old.uid()) {
        return refuse("UID", &wanted, &is);
    }
    if let Some((wanted, is)) = mismatch(&options.resource_version, old.resource_version()) {
        return refuse("ResourceVersion", &wanted, &is);
    }
    Ok(())
}

/// Decides.
pub(super) fn decide(old: &Object, options: &DeleteOptions, now: Timestamp) -> Verdict {
    let finalizers = finalizers(old, options.propagation);
    if finalizers.is_empty() {
        return Verdict::Remove;
    }
    let mut new = old.clone();
    let same = old.finalizers() == finalizers;
    if !same {
        new.metadata_mut()
            .insert("finalizers".to_owned(), json!(finalizers));
    }
    if old.deletion_timestamp().is_some() {
        return if same {
            Verdict::Pending
        } else {
            Verdict::Mark(new)
        };
    }
    new.set_meta("deletionTimestamp", &rfc3339(now));
    let metadata = new.metadata_mut();
    metadata.insert("deletionGracePeriodSeconds".to_owned(), json!(0));
    if old.generation() > 0 {
        metadata.insert("generation".to_owned(), json!(old.generation() + 1));
    }
    Verdict::Mark(new)
}

/// The finalizers with those of the garbage collector as the caller wants them.
fn finalizers(old: &Object, propagation: Option<Propagation>) -> Vec<String> {
    let has = |name| old.finalizers().contains(&name);
    let (orphan, foreground) = match propagation {
        None => (has(ORPHAN), has(FOREGROUND)),
        Some(policy) => (
            policy == Propagation::Orphan,
            policy == Propagation::Foreground,
        ),
    };
    let mut wanted: Vec<String> = old
        .finalizers()
        .into_iter()
        .filter(|f| match *f {
            ORPHAN => orphan,
            FOREGROUND => foreground,
            _ => true,
        })
        .map(str::to_owned)
        .collect();
    for (wants, name) in [(orphan, ORPHAN), (foreground, FOREGROUND)] {
        if wants && !has(name) {
            wanted.push(name.to_owned());
        }
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn object(finalizers: Value, deleted: bool) -> Object {
        let mut metadata = json!({"name": "a", "generation": 3, "finalizers": finalizers});
        if deleted {
            metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        Object::from_value(json!({"metadata": metadata})).unwrap()
    }

    fn verdict(finalizers: Value, deleted: bool, policy: Option<Propagation>) -> String {
        let options = DeleteOptions {
            propagation: policy,
            ..DeleteOptions::default()
        };
        match decide(
            &object(finalizers, deleted),
            &options,
            Timestamp::UNIX_EPOCH,
        ) {
            Verdict::Remove => "removed".to_owned(),
            Verdict::Pending => "pending".to_owned(),
            Verdict::Mark(o) => format!("{} gen {}", o.finalizers().join(","), o.generation()),
        }
    }

    #[test]
    fn finalizers_and_propagation_decide() {
        use Propagation::{Background, Foreground, Orphan};
        for (finalizers, deleted, policy, expected) in [
            (json!([]), false, None, "removed"),
            (json!([]), false, Some(Background), "removed"),
            (
                json!([]),
                false,
                Some(Foreground),
                "foregroundDeletion gen 4",
            ),
            (json!([]), false, Some(Orphan), "orphan gen 4"),
            (json!(["x"]), false, None, "x gen 4"),
            (json!(["x"]), true, None, "pending"),
            (
                json!(["x"]),
                true,
                Some(Foreground),
                "x,foregroundDeletion gen 3",
            ),
            (json!(["orphan"]), false, None, "orphan gen 4"),
            (json!(["orphan"]), false, Some(Background), "removed"),
            (
                json!(["orphan"]),
                true,
                Some(Foreground),
                "foregroundDeletion gen 3",
            ),
        ] {
            let label = format!("{finalizers} {deleted} {policy:?}");
            assert_eq!(verdict(finalizers, deleted, policy), expected, "{label}");
        }
    }
}
