//! Limits of requests under way: of all callers together
//! (`k8s.io/apiserver/pkg/server/filters/maxinflight.go`), and of each user, so that one user's crowd
//! leaves room for everybody else's requests.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::RequestLimits;
use crate::{ApiError, Reason, UserInfo};

/// Counts requests and watches under way.
pub(super) struct Inflight {
    all: Arc<Semaphore>,
    requests: PerUser,
    watches: PerUser,
}

/// What a request holds under the limits until it ends.
#[derive(Default)]
pub(super) struct Place {
    _all: Option<OwnedSemaphorePermit>,
    _user: Option<UserPlace>,
}

impl Inflight {
    pub(super) fn new(limits: RequestLimits) -> Self {
        Self {
            all: Arc::new(Semaphore::new(limits.max_inflight)),
            requests: PerUser::new(limits.max_inflight_per_user),
            watches: PerUser::new(limits.max_watches_per_user),
        }
    }

    /// A place for one request, held until it ends. `system:masters` need none: an administrator
    /// must be able to act on an overloaded server.
    ///
    /// # Errors
    /// 429 when all places are taken, or all of this user's.
    pub(super) fn enter(&self, user: &UserInfo) -> Result<Place, ApiError> {
        if is_master(user) {
            return Ok(Place::default());
        }
        let own = self.requests.enter(&user.name).ok_or_else(|| {
            too_many(format!(
                "Too many requests of user \"{}\" are under way, please try again later.",
                user.name
            ))
        })?;
        let all = self.all.clone().try_acquire_owned();
        let all =
            all.map_err(|_| too_many("Too many requests, please try again later.".to_owned()))?;
        Ok(Place {
            _all: Some(all),
            _user: Some(own),
        })
    }

    /// A place for one watch.
    ///
    /// # Errors
    /// 429 when the user has as many as may be.
    pub(super) fn watch(&self, user: &UserInfo) -> Result<Place, ApiError> {
        if is_master(user) {
            return Ok(Place::default());
        }
        let own = self.watches.enter(&user.name).ok_or_else(|| {
            too_many(format!(
                "User \"{}\" has too many watches open on this server, please close some.",
                user.name
            ))
        })?;
        Ok(Place {
            _all: None,
            _user: Some(own),
        })
    }
}

fn is_master(user: &UserInfo) -> bool {
    user.groups.iter().any(|g| g == "system:masters")
}

fn too_many(message: String) -> ApiError {
    ApiError::new(Reason::TooManyRequests, message).retry_after(1)
}

/// Counts by user. Only users who have something under way are remembered.
#[derive(Clone)]
struct PerUser {
    most: usize,
    counts: Arc<Mutex<HashMap<String, usize>>>,
}

/// One user's place; it is given back when this is dropped.
struct UserPlace {
    user: String,
    of: PerUser,
}

impl PerUser {
    fn new(most: usize) -> Self {
        Self {
            most,
            counts: Arc::default(),
        }
    }

    fn enter(&self, user: &str) -> Option<UserPlace> {
        let mut counts = self.counts.lock();
        let count = counts.get(user).copied().unwrap_or(0);
        if count >= self.most {
            return None;
        }
        counts.insert(user.to_owned(), count + 1);
        Some(UserPlace {
            user: user.to_owned(),
            of: self.clone(),
        })
    }
}

impl Drop for UserPlace {
    fn drop(&mut self) {
        let mut counts = self.of.counts.lock();
        let left = counts.get(&self.user).copied().unwrap_or(1) - 1;
        if left == 0 {
            counts.remove(&self.user);
        } else {
            counts.insert(self.user.clone(), left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> UserInfo {
        UserInfo {
            name: name.into(),
            ..UserInfo::default()
        }
    }

    fn limits(max_inflight: usize, per_user: usize) -> Inflight {
        Inflight::new(RequestLimits {
            max_inflight,
            max_inflight_per_user: per_user,
            max_watches_per_user: per_user,
            ..RequestLimits::default()
        })
    }

    #[test]
    fn the_limit_holds_for_all_but_masters() {
        let inflight = limits(1, 10);
        let root = UserInfo {
            groups: vec!["system:masters".into()],
            ..UserInfo::default()
        };
        let place = inflight.enter(&user("jane")).unwrap();
        let error = inflight.enter(&user("joe")).err().unwrap();
        assert_eq!(error.to_response().headers()["retry-after"], "1");
        assert!(inflight.enter(&root).is_ok() && inflight.watch(&root).is_ok());
        drop(place);
        assert!(inflight.enter(&user("joe")).is_ok());
        assert!(
            inflight.requests.counts.lock().is_empty(),
            "nobody is remembered"
        );
    }

    #[test]
    fn one_users_crowd_leaves_room_for_another() {
        let inflight = limits(100, 2);
        let jane = user("jane");
        let _requests = [(); 2].map(|()| inflight.enter(&jane).unwrap());
        let watches = [(); 2].map(|()| inflight.watch(&jane).unwrap());
        for error in [inflight.enter(&jane).err(), inflight.watch(&jane).err()] {
            let error = error.unwrap();
            assert_eq!(error.reason.code(), 429);
            assert!(error.message.contains("\"jane\""), "{}", error.message);
        }
        assert!(inflight.enter(&user("joe")).is_ok());
        assert!(inflight.watch(&user("joe")).is_ok());
        drop(watches);
        assert!(inflight.watch(&jane).is_ok());
    }
}
