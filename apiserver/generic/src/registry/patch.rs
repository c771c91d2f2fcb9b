//! Applying a patch to an object. Pure.
//!
//! RFC 6902 and RFC 7386, bounded as kube-apiserver bounds them
//! (`k8s.io/apiserver/pkg/endpoints/handlers/patch.go`).

use json_patch::PatchOperation;
use serde_json::Value;

use super::writer::Submission;
use crate::{
    ApiError, Object, Reason,
    schema::{DEEPEST, deeper_than},
};

/// Most operations of a JSON patch.
pub const OPERATIONS: usize = 10_000;
/// Most bytes that `copy` and `move` operations may carry.
const COPIES: usize = 3 << 20;

/// A patch, decoded.
#[derive(Clone, Debug)]
pub enum Patch {
    /// `application/json-patch+json`.
    Json(json_patch::Patch),
    /// `application/merge-patch+json`.
    Merge {
        /// The document to merge.
        document: Value,
        /// What strict decoding found wrong with its text.
        faults: Vec<String>,
    },
}

impl Patch {
    /// A merge patch made by our own code.
    pub fn merge(document: Value) -> Self {
        Self::Merge {
            document,
            faults: Vec::new(),
        }
    }

    /// The patched object.
    pub(super) fn apply(&self, current: &Object) -> Result<Submission, ApiError> {
        let mut document = current.clone().into_value();
        let faults = match self {
            Self::Json(patch) => {
                apply_operations(&mut document, patch)?;
                Vec::new()
            }
            Self::Merge {
                document: patch,
                faults,
            } => {
                json_patch::merge(&mut document, patch);
                faults.clone()
            }
        };
        let object = Object::from_value(document)
            .map_err(|other| invalid(&other, "the patched document is not a JSON object"))?;
        Ok(Submission { object, faults })
    }
}

fn apply_operations(document: &mut Value, patch: &json_patch::Patch) -> Result<(), ApiError> {
    let mut carried = 0;
    for operation in &patch.0 {
        carried += check_operation(document, operation)?;
        if carried > COPIES {
            let text = format!("Request entity too large: limit is {COPIES}");
            return Err(ApiError::new(Reason::RequestEntityTooLarge, text));
        }
        json_patch::patch(document, std::slice::from_ref(operation)).map_err(|fault| {
            let text =
                format!("the server rejected our request due to an error in our request: {fault}");
            ApiError::new(Reason::Invalid, text)
        })?;
    }
    Ok(())
}

/// Refuses an operation that would nest the document too deeply, before it is done; returns how
/// many bytes it carries from one place to another.
fn check_operation(document: &Value, operation: &PatchOperation) -> Result<usize, ApiError> {
    let carried = match operation {
        PatchOperation::Copy(copy) => document.pointer(copy.from.as_str()),
        PatchOperation::Move(step) => document.pointer(step.from.as_str()),
        _ => None,
    };
    let placed = match operation {
        PatchOperation::Add(add) => Some(&add.value),
        PatchOperation::Replace(replace) => Some(&replace.value),
        _ => carried,
    };
    let Some(placed) = placed else {
        return Ok(0);
    };
    let above = operation.path().tokens().count();
    let fits = DEEPEST.checked_sub(above);
    if fits.is_none_or(|levels| deeper_than(placed, levels)) {
        let text = format!("the patch would nest the object more than {DEEPEST} levels deep");
        return Err(ApiError::new(Reason::Invalid, text));
    }
    Ok(carried.map_or(0, |value| value.to_string().len()))
}

/// 422 for a patch whose result cannot stand. Unlike Go's server it shows the object's name and not
/// the object: the message is in audit logs, too, which hold no bodies.
pub(super) fn invalid(document: &Value, why: &str) -> ApiError {
    let shown = &document["metadata"]["name"];
    let cause = super::causes::invalid("patch", shown, why);
    let text = format!(" \"\" is invalid: {}: {}", cause.field, cause.message);
    ApiError::new(Reason::Invalid, text).cause(&cause.reason, cause.message, &cause.field)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object() -> Object {
        Object::from_value(json!({"metadata": {"name": "a"}, "spec": {"x": 1}})).unwrap()
    }

    fn json_patch(operations: Value) -> Patch {
        Patch::Json(serde_json::from_value(operations).unwrap())
    }

    #[test]
    fn a_merge_patch_removes_by_null() {
        let patch = Patch::merge(json!({"spec": {"x": null, "y": [1]}}));
        let result = patch.apply(&object()).unwrap().object;
        assert_eq!(result.pointer("/spec"), Some(&json!({"y": [1]})));
    }

    #[test]
    fn a_refusal_names_the_object_and_does_not_show_it() {
        let document = json!({"metadata": {"name": "tiny"}, "spec": {"defaultPassword": "s3cret"}});
        let error = invalid(&document, "unknown field \"spec.x\"");
        assert!(error.message.contains("tiny") && error.message.contains("spec.x"));
        assert!(!error.to_status().to_string().contains("s3cret"));
    }

    #[test]
    fn a_failed_test_is_422() {
        let patch = json_patch(json!([{"op": "test", "path": "/spec/x", "value": 2}]));
        let error = patch.apply(&object()).unwrap_err();
        assert_eq!(error.reason, Reason::Invalid);
    }

    #[test]
    fn copies_cannot_make_a_document_explode() {
        let operations: Vec<Value> = (0..40)
            .map(|i| json!({"op": "copy", "from": "/spec", "path": format!("/spec/{i}")}))
            .collect();
        let error = json_patch(json!(operations)).apply(&object()).unwrap_err();
        assert_eq!(error.reason, Reason::RequestEntityTooLarge);
    }

    #[test]
    fn no_operation_nests_without_end() {
        let deep = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!({ "a": inner }));
        let path = "/a".repeat(DEEPEST);
        for operation in [
            json!({"op": "add", "path": "/spec/x", "value": deep(DEEPEST)}),
            json!({"op": "replace", "path": "/spec/x", "value": deep(DEEPEST)}),
            json!({"op": "copy", "from": "/spec", "path": format!("/spec{path}")}),
            json!({"op": "move", "from": "/spec/x", "path": format!("/spec{path}/b")}),
        ] {
            let error = json_patch(json!([operation])).apply(&object()).unwrap_err();
            assert!(error.message.contains("levels deep"), "{operation}");
        }
        let most = json!({"op": "add", "path": "/spec/x", "value": deep(DEEPEST - 2)});
        assert!(json_patch(json!([most])).apply(&object()).is_ok());
    }

    #[test]
    fn a_patch_cannot_make_something_else_of_an_object() {
        let patch = json_patch(json!([{"op": "replace", "path": "", "value": 7}]));
        assert_eq!(patch.apply(&object()).unwrap_err().reason, Reason::Invalid);
    }
}
