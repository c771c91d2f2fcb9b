//! The backend's refusals as storage errors. Pure.

use kube::core::{Status, response::StatusDetails};

use crate::storage::{Revision, StorageError};

/// Cause by which kube-apiserver says that a namespace takes no new content.
const TERMINATING: &str = "NamespaceTerminating";

/// What a failed request means.
pub(super) fn from_kube(error: kube::Error) -> StorageError {
    match error {
        kube::Error::Api(status) => from_status(&status),
        kube::Error::SerdeError(error) => {
            StorageError::Failed(format!("the backend's answer cannot be read: {error}"))
        }
        other => StorageError::Unavailable {
            message: format!("the backend cannot be reached: {other}"),
            retry_after: None,
        },
    }
}

/// What a Status means.
pub(super) fn from_status(status: &Status) -> StorageError {
    let details = status.details.as_ref();
    match (status.code, status.reason.as_str()) {
        (404, _) => missing(status, details),
        (409, "AlreadyExists") => StorageError::AlreadyExists,
        (409, _) => StorageError::Conflict,
        (410, _) => StorageError::Expired(Revision(0)),
        (413, _) => StorageError::TooLarge(status.message.clone()),
        (403, _) if has_cause(details, TERMINATING) => {
            StorageError::NamespaceTerminating(terminating_namespace(status))
        }
        (500, _) if status.message.contains("request is too large") => {
            StorageError::TooLarge(status.message.clone())
        }
        (401 | 403 | 429 | 500 | 502 | 503 | 504, _) => StorageError::Unavailable {
            message: status.message.clone(),
            retry_after: details.map(|d| d.retry_after_seconds).filter(|s| *s > 0),
        },
        _ => StorageError::Failed(status.message.clone()),
    }
}

/// An object, a namespace, or the stored kind itself may be missing.
fn missing(status: &Status, details: Option<&StatusDetails>) -> StorageError {
    match details {
        Some(d) if d.kind == "namespaces" => StorageError::NamespaceMissing(d.name.clone()),
        Some(d) if !d.name.is_empty() => StorageError::NotFound,
        _ => StorageError::Unavailable {
            message: format!(
                "the stored kind is not served; are its CRDs installed? ({})",
                status.message
            ),
            retry_after: Some(5),
        },
    }
}

fn has_cause(details: Option<&StatusDetails>, reason: &str) -> bool {
    details.is_some_and(|d| d.causes.iter().any(|c| c.reason == reason))
}

/// `… in namespace NAME because it is being terminated`.
fn terminating_namespace(status: &Status) -> String {
    let after = status.message.split_once("in namespace ");
    let name = after.and_then(|(_, rest)| rest.split_whitespace().next());
    name.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(status: Value) -> StorageError {
        from_status(&serde_json::from_value(status).unwrap())
    }

    #[test]
    fn refusals() {
        let unavailable = |message: &str, retry_after| StorageError::Unavailable {
            message: message.into(),
            retry_after,
        };
        for (status, expected) in [
            (
                json!({"code": 404, "details": {"name": "a", "kind": "storedwidgets"}}),
                StorageError::NotFound,
            ),
            (
                json!({"code": 404, "details": {"name": "ns", "kind": "namespaces"}}),
                StorageError::NamespaceMissing("ns".into()),
            ),
            (
                json!({"code": 409, "reason": "AlreadyExists"}),
                StorageError::AlreadyExists,
            ),
            (
                json!({"code": 409, "reason": "Conflict"}),
                StorageError::Conflict,
            ),
            (
                json!({"code": 410, "reason": "Expired"}),
                StorageError::Expired(Revision(0)),
            ),
            (
                json!({"code": 403, "message": "storedwidgets.x \"a\" is forbidden: unable to create new content in namespace ns because it is being terminated",
                "details": {"causes": [{"reason": "NamespaceTerminating", "message": "", "field": ""}]}}),
                StorageError::NamespaceTerminating("ns".into()),
            ),
            (
                json!({"code": 429, "message": "slow", "details": {"retryAfterSeconds": 3}}),
                unavailable("slow", Some(3)),
            ),
            (
                json!({"code": 500, "message": "etcdserver: request is too large"}),
                StorageError::TooLarge("etcdserver: request is too large".into()),
            ),
            (
                json!({"code": 422, "message": "bad"}),
                StorageError::Failed("bad".into()),
            ),
        ] {
            assert_eq!(read(status.clone()), expected, "{status}");
        }
    }

    #[test]
    fn a_missing_kind_says_what_to_do() {
        let error = read(
            json!({"code": 404, "message": "the server could not find the requested resource", "details": {}}),
        );
        assert!(error.to_string().contains("are its CRDs installed?"));
    }
}
