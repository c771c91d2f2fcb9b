//! How many streams one user and one workspace may have, and how fast they may be opened.
//!
//! Entry point: [`StreamLimits::enter`]. kube-apiserver's priority and fairness does not bound streams
//! (`deploy/base/flow-control.yaml`), so this server does. Each replica counts its own, as
//! kube-apiserver does with its limits.
//!
//! **Order.** A user's own limits come before anything is asked on the user's behalf; the workspace's
//! after the user was authorized, so that nobody takes places in a workspace that is not theirs.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use apiserver_generic::{ApiError, Reason};
use parking_lot::Mutex;

use super::metrics::{Limit, StreamMetrics};

/// Users whose pace is remembered. A user's is forgotten a second after their last set-up.
const PACES: usize = 10_000;
/// What callers are told to wait when a place has to become free.
const WAIT_SECONDS: u32 = 5;

/// The limits, as an operator sets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitOptions {
    /// Open streams of one user.
    pub per_user: usize,
    /// Set-ups of one user a second.
    pub set_ups_per_second: u32,
    /// Open streams to one workspace.
    pub per_workspace: usize,
}

impl Default for LimitOptions {
    fn default() -> Self {
        Self {
            per_user: 500,
            set_ups_per_second: 20,
            per_workspace: 100,
        }
    }
}

/// Counts streams. Clones are the same.
#[derive(Clone)]
pub struct StreamLimits {
    options: LimitOptions,
    counts: Arc<Mutex<Counts>>,
    metrics: StreamMetrics,
}

#[derive(Default)]
struct Counts {
    users: HashMap<String, usize>,
    workspaces: HashMap<(String, String), usize>,
    paces: HashMap<String, Bucket>,
}

/// A user's allowance of set-ups: a second's worth at most.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    left: f64,
    at: Instant,
}

/// A stream's place, given back when it is dropped.
pub struct Place {
    limits: StreamLimits,
    user: String,
    workspace: Option<(String, String)>,
}

impl StreamLimits {
    /// With nothing open.
    pub fn new(options: LimitOptions, metrics: StreamMetrics) -> Self {
        Self {
            options,
            counts: Arc::default(),
            metrics,
        }
    }

    /// A place for one more stream of a user.
    ///
    /// # Errors
    /// 429 with the time to wait.
    pub fn enter(&self, user: &str) -> Result<Place, ApiError> {
        self.enter_at(user, Instant::now())
    }

    /// The same for a request that is answered like any other: a page asks for many at once.
    ///
    /// # Errors
    /// 429 with the time to wait.
    pub fn enter_at_any_pace(&self, user: &str) -> Result<Place, ApiError> {
        self.place(user)
    }

    fn enter_at(&self, user: &str, now: Instant) -> Result<Place, ApiError> {
        let per_second = f64::from(self.options.set_ups_per_second);
        let allowed = self.counts.lock().pace(user, per_second, now);
        match allowed {
            true => self.place(user),
            false => Err(self.too_fast(user)),
        }
    }

    fn place(&self, user: &str) -> Result<Place, ApiError> {
        let mut counts = self.counts.lock();
        let open = counts.users.get(user).copied().unwrap_or(0);
        if open >= self.options.per_user {
            drop(counts);
            return Err(self.too_many_of_user(user));
        }
        counts.users.insert(user.to_owned(), open + 1);
        Ok(Place {
            limits: self.clone(),
            user: user.to_owned(),
            workspace: None,
        })
    }

    /// Whether nobody has a stream.
    #[cfg(test)]
    pub(in crate::streams) fn is_unused(&self) -> bool {
        let counts = self.counts.lock();
        counts.users.is_empty() && counts.workspaces.is_empty()
    }

    fn too_fast(&self, user: &str) -> ApiError {
        self.metrics.refused(Limit::SetUps);
        let most = self.options.set_ups_per_second;
        ApiError::new(
            Reason::TooManyRequests,
            format!(
                "user \"{user}\" opens streams too fast: more than {most} in a second \
                 (--max-stream-setups-per-user); try again in a second"
            ),
        )
        .retry_after(1)
    }

    fn too_many_of_user(&self, user: &str) -> ApiError {
        self.metrics.refused(Limit::User);
        let most = self.options.per_user;
        ApiError::new(
            Reason::TooManyRequests,
            format!(
                "user \"{user}\" has {most} streams open on this server already \
                 (--max-streams-per-user); close some and try again"
            ),
        )
        .retry_after(WAIT_SECONDS)
    }
}

impl Counts {
    /// Whether a user may set up a stream now.
    fn pace(&mut self, user: &str, per_second: f64, now: Instant) -> bool {
        let full =
            |bucket: &Bucket| now.saturating_duration_since(bucket.at) >= Duration::from_secs(1);
        if self.paces.len() >= PACES && !self.paces.contains_key(user) {
            self.paces.retain(|_, bucket| !full(bucket));
            if self.paces.len() >= PACES {
                return false;
            }
        }
        let fresh = Bucket {
            left: per_second,
            at: now,
        };
        let bucket = self.paces.entry(user.to_owned()).or_insert(fresh);
        let passed = now.saturating_duration_since(bucket.at).as_secs_f64();
        let left = (bucket.left + passed * per_second).min(per_second);
        let allowed = left >= 1.0;
        *bucket = Bucket {
            left: if allowed { left - 1.0 } else { left },
            at: now,
        };
        allowed
    }
}

impl Place {
    /// Takes a place in a workspace too; its user was authorized for it.
    ///
    /// # Errors
    /// 429 with the time to wait.
    pub fn reach(&mut self, namespace: &str, workspace: &str) -> Result<(), ApiError> {
        let most = self.limits.options.per_workspace;
        let key = (namespace.to_owned(), workspace.to_owned());
        let mut counts = self.limits.counts.lock();
        let open = counts.workspaces.entry(key.clone()).or_insert(0);
        if *open < most {
            *open += 1;
            self.workspace = Some(key);
            return Ok(());
        }
        drop(counts);
        self.limits.metrics.refused(Limit::Workspace);
        Err(ApiError::new(
            Reason::TooManyRequests,
            format!(
                "workspace \"{workspace}\" has {most} streams open on this server already \
                 (--max-streams-per-workspace); close some and try again"
            ),
        )
        .retry_after(WAIT_SECONDS))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.limits.counts.lock();
        decrement(&mut counts.users, &self.user);
        if let Some(workspace) = &self.workspace {
            decrement(&mut counts.workspaces, workspace);
        }
    }
}

fn decrement<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;

    use super::*;

    fn limits(per_user: usize, set_ups_per_second: u32, per_workspace: usize) -> StreamLimits {
        let options = LimitOptions {
            per_user,
            set_ups_per_second,
            per_workspace,
        };
        StreamLimits::new(options, StreamMetrics::register(&mut Registry::default()))
    }

    fn retry_after(error: &ApiError) -> Option<u32> {
        assert_eq!(error.reason.code(), 429);
        error.details.as_ref()?.retry_after_seconds
    }

    #[test]
    fn one_users_streams_end_where_the_limit_is_and_anothers_do_not() {
        let limits = limits(2, 1_000, 100);
        let mut places: Vec<_> = (0..2).map(|_| limits.enter("jane").unwrap()).collect();
        let error = limits.enter("jane").err().unwrap();
        assert_eq!(retry_after(&error), Some(5));
        assert!(error.message.contains("--max-streams-per-user"));
        assert!(limits.enter("joe").is_ok());
        places.pop();
        assert!(limits.enter("jane").is_ok(), "a place is given back");
    }

    #[test]
    fn a_burst_is_a_seconds_worth_and_then_the_rate_counts() {
        let limits = limits(1_000, 20, 100);
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let tries = |user, now| {
            (0..100)
                .filter(|_| limits.enter_at(user, now).is_ok())
                .count()
        };
        assert_eq!(tries("jane", at(0)), 20);
        assert_eq!(tries("joe", at(0)), 20, "another user's pace is their own");
        assert_eq!(tries("jane", at(40)), 0);
        assert_eq!(tries("jane", at(100)), 2, "what was refused cost nothing");
        assert_eq!(tries("jane", at(60_000)), 20, "no more is saved up");
        let error = limits.enter_at("jane", at(60_000)).err().unwrap();
        assert_eq!(retry_after(&error), Some(1));
    }

    #[test]
    fn a_workspace_is_full_for_everybody_and_only_that_one() {
        let limits = limits(1_000, 1_000, 2);
        let reach = |user, name| {
            let mut place = limits.enter(user).unwrap();
            place.reach("t1", name).map(|()| place)
        };
        let _first = reach("jane", "demo").unwrap();
        let second = reach("joe", "demo").unwrap();
        let error = reach("jane", "demo").err().unwrap();
        assert!(error.message.contains("\"demo\""), "{}", error.message);
        assert_eq!(retry_after(&error), Some(5));
        assert!(reach("jane", "other").is_ok());
        drop(second);
        assert!(reach("jane", "demo").is_ok());
    }

    #[test]
    fn nothing_is_remembered_of_who_has_nothing_open() {
        let limits = limits(10, 20, 10);
        let start = Instant::now();
        for n in 0..3 * PACES {
            let now = start + Duration::from_millis(n as u64);
            let mut place = limits.enter_at(&format!("user-{n}"), now).unwrap();
            place.reach("t1", &format!("w{n}")).unwrap();
        }
        let counts = limits.counts.lock();
        assert!(counts.users.is_empty() && counts.workspaces.is_empty());
        assert!(counts.paces.len() <= PACES);
    }
}
