//! The limit of requests under way (`k8s.io/apiserver/pkg/server/filters/maxinflight.go`).

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{ApiError, Reason, UserInfo};

/// Counts requests under way.
pub(super) struct Inflight(Arc<Semaphore>);

impl Inflight {
    pub(super) fn new(most: usize) -> Self {
        Self(Arc::new(Semaphore::new(most)))
    }

    /// A place for one request, held until it ends. `system:masters` need none: an administrator
    /// must be able to act on an overloaded server.
    ///
    /// # Errors
    /// 429 when all places are taken.
    pub(super) fn enter(&self, user: &UserInfo) -> Result<Option<OwnedSemaphorePermit>, ApiError> {
        if user.groups.iter().any(|g| g == "system:masters") {
            return Ok(None);
        }
        match self.0.clone().try_acquire_owned() {
            Ok(permit) => Ok(Some(permit)),
            Err(_) => Err(ApiError::new(
                Reason::TooManyRequests,
                "Too many requests, please try again later.",
            )
            .retry_after(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_holds_for_all_but_masters() {
        let inflight = Inflight::new(1);
        let jane = UserInfo::default();
        let root = UserInfo {
            groups: vec!["system:masters".into()],
            ..UserInfo::default()
        };
        let place = inflight.enter(&jane).unwrap();
        let error = inflight.enter(&jane).unwrap_err();
        assert_eq!(error.to_response().headers()["retry-after"], "1");
        assert!(inflight.enter(&root).unwrap().is_none());
        drop(place);
        assert!(inflight.enter(&jane).is_ok());
    }
}
