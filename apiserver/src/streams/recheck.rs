//! Whether the caller may still do what the stream does.
//!
//! A stream outlives the request that opened it. Its permissions are asked for again and again; an
//! answer of no ends it, and no answer at all does only after a grace.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use apiserver_generic::{Attributes, Authorizer, UserInfo, authz::Decision};

use super::close::CloseReason;

/// The times of re-checks.
#[derive(Clone, Copy, Debug)]
pub struct Recheck {
    /// Between two checks.
    pub every: Duration,
    /// How long no answer is bearable.
    pub grace: Duration,
}

impl Default for Recheck {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(30),
            grace: Duration::from_secs(300),
        }
    }
}

/// Waits until a permission is gone.
pub async fn revoked(
    authorizer: Arc<dyn Authorizer>,
    user: UserInfo,
    permissions: Vec<Attributes>,
    times: Recheck,
) -> CloseReason {
    let mut confirmed = Instant::now();
    loop {
        tokio::time::sleep(times.every).await;
        match check(&*authorizer, &user, &permissions).await {
            Some(true) => confirmed = Instant::now(),
            Some(false) => return CloseReason::Revoked,
            None if confirmed.elapsed() >= times.grace => return CloseReason::Unconfirmed,
            None => {}
        }
    }
}

/// `None`: there was no answer.
async fn check(
    authorizer: &dyn Authorizer,
    user: &UserInfo,
    permissions: &[Attributes],
) -> Option<bool> {
    for attributes in permissions {
        match authorizer.recheck(user, attributes).await {
            Ok(Decision::Allow) => {}
            Ok(Decision::Deny(_)) => return Some(false),
            Err(error) => {
                tracing::warn!(%error, inside = error.internal, "a stream's permission could not be confirmed");
                return None;
            }
        }
    }
    Some(true)
}

#[cfg(test)]
mod tests {
    use apiserver_generic::ApiError;
    use async_trait::async_trait;
    use parking_lot::Mutex;

    use super::*;

    /// Answers in turn; the last one for ever.
    struct Script(Mutex<Vec<Result<bool, ()>>>);

    #[async_trait]
    impl Authorizer for Script {
        async fn decide(&self, _: &UserInfo, _: &Attributes) -> Result<Decision, ApiError> {
            let mut answers = self.0.lock();
            let answer = if answers.len() > 1 {
                answers.remove(0)
            } else {
                answers[0]
            };
            match answer {
                Ok(true) => Ok(Decision::Allow),
                Ok(false) => Ok(Decision::Deny(String::new())),
                Err(()) => Err(ApiError::internal("away")),
            }
        }
    }

    async fn run(answers: Vec<Result<bool, ()>>, grace: u64) -> CloseReason {
        let times = Recheck {
            every: Duration::from_millis(1),
            grace: Duration::from_millis(grace),
        };
        let script = Arc::new(Script(Mutex::new(answers)));
        let permissions = vec![Attributes::default()];
        revoked(script, UserInfo::default(), permissions, times).await
    }

    #[tokio::test]
    async fn a_no_ends_the_stream_and_silence_only_after_the_grace() {
        let long = 60_000;
        assert_eq!(
            run(vec![Ok(true), Err(()), Ok(false)], long).await,
            CloseReason::Revoked
        );
        assert_eq!(
            run(vec![Ok(true), Err(())], 20).await,
            CloseReason::Unconfirmed
        );
    }
}
