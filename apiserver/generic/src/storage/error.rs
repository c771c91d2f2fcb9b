//! Why a backend could not do something.

use super::Revision;

/// Failure of a storage operation. The registry turns it into a Status.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StorageError {
    /// No object of that key.
    #[error("not found")]
    NotFound,
    /// An object of that key exists.
    #[error("already exists")]
    AlreadyExists,
    /// The revision expected is not the current one.
    #[error("changed since it was read")]
    Conflict,
    /// The revision asked for was compacted.
    #[error("revision {0} is no longer kept")]
    Expired(Revision),
    /// The revision asked for lies in the future; the second is the current one.
    #[error("revision {0} has not come yet, the current one is {1}")]
    Future(Revision, Revision),
    /// The object is too large for the backend.
    #[error("too large: {0}")]
    TooLarge(String),
    /// The namespace does not exist.
    #[error("namespace {0} does not exist")]
    NamespaceMissing(String),
    /// The namespace is being deleted.
    #[error("namespace {0} is being deleted")]
    NamespaceTerminating(String),
    /// Overloaded or away; worth retrying.
    #[error("storage is unavailable: {message}")]
    Unavailable {
        /// What failed.
        message: String,
        /// Seconds after which to retry, if the backend said so.
        retry_after: Option<u32>,
    },
    /// A fault that retrying does not cure.
    #[error("storage failed: {0}")]
    Failed(String),
}
