//! What the process's limit of open files allows.
//!
//! A stream needs two descriptors: its client's connection and its upstream's. Running out of them
//! would stop everything else too, watches and health checks included; so streams are refused while
//! there are still some left.

use std::sync::Arc;

use apiserver_generic::{ApiError, Reason};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::Semaphore;

use super::permit::{Asking, Gate, Permit};

/// Where a limit without end is cut.
const ENDLESS: u64 = 1 << 20;
/// What is kept for everything else: a sixteenth, and at least so many.
const LEAST_KEPT: u64 = 128;
const PER_STREAM: u64 = 2;

/// Raises the soft limit to the hard one, and says what that allows.
pub fn raise() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: maximum,
        maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, wanted) {
        tracing::warn!(%error, "the limit of open files could not be raised");
    }
    let now = getrlimit(Resource::Nofile).current.unwrap_or(ENDLESS);
    tracing::info!(
        before = current.unwrap_or(ENDLESS),
        now,
        streams = streams(now),
        "the limit of open files was raised as far as it goes"
    );
    now
}

/// How many streams fit under a limit.
fn streams(limit: u64) -> u64 {
    let kept = (limit / 16).max(LEAST_KEPT);
    limit.min(ENDLESS).saturating_sub(kept) / PER_STREAM
}

/// Lets in as many streams as there are descriptors for.
pub struct Files {
    limit: u64,
    room: Arc<Semaphore>,
}

impl Files {
    /// Under this limit.
    pub fn new(limit: u64) -> Self {
        let room = usize::try_from(streams(limit)).unwrap_or(Semaphore::MAX_PERMITS);
        Self {
            limit,
            room: Arc::new(Semaphore::new(room)),
        }
    }
}

impl Gate for Files {
    fn admit(&self, _: &Asking<'_>) -> Result<Permit, ApiError> {
        let room = self.room.clone().try_acquire_owned();
        room.map(Permit::holding).map_err(|_| {
            let limit = self.limit;
            ApiError::new(
                Reason::ServiceUnavailable,
                "this server carries as many streams as it can; try again, another replica may answer",
            )
            .retry_after(5)
            .because(format!("the limit of {limit} open files is used up by streams"))
        })
    }
}

#[cfg(test)]
mod tests {
    use apiserver_generic::UserInfo;

    use super::*;

    #[test]
    fn something_is_always_left_for_the_rest() {
        for (limit, expected) in [(64, 0), (1024, 448), (20_000, 9_375), (1 << 20, 491_520)] {
            assert_eq!(streams(limit), expected, "{limit}");
        }
    }

    #[test]
    fn the_stream_that_does_not_fit_is_refused_and_comes_in_later() {
        let files = Files::new(LEAST_KEPT + PER_STREAM);
        let asking = Asking {
            user: &UserInfo::default(),
            namespace: "t1",
            workspace: "demo",
        };
        let permit = files.admit(&asking).unwrap();
        let error = files.admit(&asking).unwrap_err();
        assert_eq!(error.reason.code(), 503);
        assert_eq!(error.details.unwrap().retry_after_seconds, Some(5));
        drop(permit);
        assert!(files.admit(&asking).is_ok());
    }

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        raise();
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        assert_eq!(current, maximum);
    }
}
