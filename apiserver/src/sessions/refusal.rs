//! What callers are told who do not get a stream. The words are part of the API: the plugin shows
//! them as they are.

use apiserver_generic::{ApiError, Reason, storage::StorageError};
use apiservice::v1alpha1::{GROUP, WorkspaceSessionSpec};

use super::record;

/// Cause of every 409 that says who holds a stream.
pub const SESSION_HELD: &str = "SessionHeld";

/// 409 for a stream that somebody holds: who, since when, and what to do.
pub fn held(namespace: &str, holder: &WorkspaceSessionSpec, ending: bool) -> ApiError {
    let mode = holder.mode.as_str();
    let workspace = &holder.workspace;
    let what = if ending {
        "it is being ended; try again in a moment".to_owned()
    } else {
        let session = record::key(namespace, workspace, holder.mode).name;
        format!(
            "add ?takeover=true to take it over, or end it with: \
             kubectl delete workspacesession -n {namespace} {session}"
        )
    };
    let why = format!(
        "the {mode} is held by user \"{}\" since {}; {what}",
        holder.user, holder.since
    );
    let error = ApiError::conflict(GROUP, "workspaces", workspace, &why)
        .cause(SESSION_HELD, &holder.user, "spec.user")
        .cause(SESSION_HELD, &holder.since, "spec.since")
        .cause(SESSION_HELD, mode, "spec.mode");
    if ending { error.retry_after(1) } else { error }
}

/// 409 for a caller whose take-over was itself taken over.
pub fn replaced(workspace: &str) -> ApiError {
    ApiError::conflict(
        GROUP,
        "workspaces",
        workspace,
        "another user asked for a take-over after you and gets the stream",
    )
    .cause(
        SESSION_HELD,
        "replaced by a later take-over",
        "spec.successor",
    )
}

/// 503 while this replica cannot hold streams.
pub(super) fn unproved() -> ApiError {
    ApiError::new(
        Reason::ServiceUnavailable,
        "this server cannot reach the control plane to claim streams; try again",
    )
    .retry_after(1)
}

/// 503 for trouble of the storage.
pub(super) fn unavailable(error: &StorageError) -> ApiError {
    ApiError::new(
        Reason::ServiceUnavailable,
        "the session could not be read or written; try again",
    )
    .retry_after(1)
    .because(error)
}

/// 503 when others are always faster.
pub(super) fn busy() -> ApiError {
    ApiError::new(
        Reason::ServiceUnavailable,
        "the stream's session changes too fast to be claimed; try again",
    )
    .retry_after(1)
}

/// 503 when the stream that is taken over does not end.
pub(super) fn does_not_end() -> ApiError {
    ApiError::new(
        Reason::ServiceUnavailable,
        "the stream that is taken over has not ended yet; try again",
    )
    .retry_after(1)
}

#[cfg(test)]
mod tests {
    use super::{super::record::tests::wish, *};

    fn holder() -> WorkspaceSessionSpec {
        record::spec(&wish("jane", "a1"), "r1", "2026-01-02T03:04:05Z")
    }

    #[test]
    fn the_refusal_says_who_since_when_and_what_to_do() {
        let error = held("t1", &holder(), false);
        assert_eq!(error.reason.code(), 409);
        for word in [
            "jane",
            "2026-01-02T03:04:05Z",
            "takeover=true",
            "kubectl delete workspacesession -n t1 demo.console",
        ] {
            assert!(error.message.contains(word), "{word}: {}", error.message);
        }
        let details = error.details.unwrap();
        assert!(details.causes.iter().all(|c| c.reason == SESSION_HELD));
        assert_eq!(details.causes[0].message, "jane");
        assert_eq!(
            details.retry_after_seconds, None,
            "waiting alone does not help"
        );
    }

    #[test]
    fn what_ends_anyway_is_worth_another_try() {
        let error = held("t1", &holder(), true);
        assert_eq!(error.reason.code(), 409);
        assert_eq!(error.details.unwrap().retry_after_seconds, Some(1));
        assert!(error.message.contains("being ended"));
        assert!(replaced("demo").message.contains("after you"));
    }
}
