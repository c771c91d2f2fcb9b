//! Applying a patch to an object. Pure.
//!
//! RFC 6902 and RFC 7386, bounded as kube-apiserver bounds them
//! (`k8s.io/apiserver/pkg/endpoints/handlers/patch.go`).

use json_patch::PatchOperation;
use serde_json::Value;

use super::writer::Submission;
use crate::{ApiError, Object, Reason};

/// Most operations of a JSON patch.
pub const OPERATIONS: usize = 10_000;
/// Most bytes by which `copy` operations may let a document grow.
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
    let mut copied = 0;
    for operation in &patch.0 {
        if let PatchOperation::Copy(copy) = operation {
            let value = document.pointer(&copy.from.to_string());
            copied += value.map_or(0, |v| v.to_string().len());
            if copied > COPIES {
                let text = format!("Request entity too large: limit is {COPIES}");
                return Err(ApiError::new(Reason::RequestEntityTooLarge, text));
            }
        }
        json_patch::patch(document, std::slice::from_ref(operation)).map_err(|fault| {
            let text =
                format!("the server rejected our request due to an error in our request: {fault}");
            ApiError::new(Reason::Invalid, text)
        })?;
    }
    Ok(())
}

/// 422 for a patch whose result cannot stand.
pub(super) fn invalid(document: &Value, why: &str) -> ApiError {
    let shown = Value::String(document.to_string());
    let cause = super::causes::invalid("patch", &shown, why);
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
    fn a_patch_cannot_make_something_else_of_an_object() {
        let patch = json_patch(json!([{"op": "replace", "path": "", "value": 7}]));
        assert_eq!(patch.apply(&object()).unwrap_err().reason, Reason::Invalid);
    }
}
