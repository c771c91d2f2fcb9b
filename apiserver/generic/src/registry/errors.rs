//! Storage failures in the words of the API.

use crate::{ApiError, Reason, Resource, storage::StorageError};

/// What a caller is told when storage failed while it worked on `name`.
pub(crate) fn from_storage(row: &Resource, name: &str, error: StorageError) -> ApiError {
    match error {
        StorageError::NotFound => ApiError::not_found(row.group, row.plural, name),
        StorageError::AlreadyExists => ApiError::already_exists(row.group, row.plural, name),
        StorageError::Conflict => {
            ApiError::conflict(row.group, row.plural, name, super::update::MODIFIED)
        }
        StorageError::Expired(_) => ApiError::new(
            Reason::Expired,
            "The resourceVersion for the provided list is too old.",
        ),
        StorageError::Future(wanted, current) => too_large(wanted.0, current.0),
        StorageError::TooLarge(why) => ApiError::new(Reason::RequestEntityTooLarge, why),
        StorageError::NamespaceMissing(namespace) => {
            ApiError::not_found("", "namespaces", &namespace)
        }
        StorageError::NamespaceTerminating(namespace) => {
            crate::admission::terminating(row, name, &namespace)
        }
        StorageError::Unavailable {
            message,
            retry_after,
        } => ApiError::new(
            Reason::ServiceUnavailable,
            "the storage of this resource does not answer; please try again",
        )
        .retry_after(retry_after.unwrap_or(1))
        .because(message),
        StorageError::Failed(message) => ApiError::internal(message),
    }
}

/// 504 for a revision that has not come; clients know the cause.
pub(crate) fn too_large(wanted: u64, current: u64) -> ApiError {
    let text = format!("Timeout: Too large resource version: {wanted}, current: {current}");
    ApiError::new(Reason::Timeout, text)
        .cause("ResourceVersionTooLarge", "Too large resource version", "")
        .retry_after(1)
}

/// 429 while the first list is on its way.
pub(crate) fn initializing() -> ApiError {
    ApiError::new(Reason::TooManyRequests, "storage is (re)initializing").retry_after(1)
}
