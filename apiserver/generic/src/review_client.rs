//! Posts reviews (TokenReview, SubjectAccessReview) to kube-apiserver, and tries again where a
//! second attempt can help.
//!
//! The schedule is that of `k8s.io/apiserver/pkg/util/webhook/webhook.go`: 500 ms, growing by half,
//! five attempts, after connection failures, 500, 504, 429, or whatever carries `Retry-After`.

use std::time::Duration;

use http::{Method, Request, StatusCode, header};
use kube::client::Body;
use serde_json::Value;

/// Why a review has no answer.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    /// The request could not be made.
    #[error("cannot build the request: {0}")]
    Build(#[from] http::Error),
    /// kube-apiserver was not reached, or the connection broke.
    #[error("cannot reach kube-apiserver: {0}")]
    Unreachable(#[source] kube::Error),
    /// It took too long.
    #[error("no answer within {0:?}")]
    Late(Duration),
    /// kube-apiserver answered with a failure.
    #[error("kube-apiserver answered {code}: {message}")]
    Refused {
        /// HTTP status.
        code: StatusCode,
        /// Its message.
        message: String,
    },
    /// The answer is no JSON document.
    #[error("the answer is not JSON: {0}")]
    Malformed(#[from] serde_json::Error),
}

/// How often and how long to try.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Attempts in all.
    pub attempts: u32,
    /// The pause after the first attempt; each next one is half as long again.
    pub pause: Duration,
    /// For all attempts together.
    pub deadline: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            attempts: 5,
            pause: Duration::from_millis(500),
            deadline: Duration::from_secs(10),
        }
    }
}

impl Patience {
    /// The pause after attempt `n` (from 1), before jitter.
    fn pause_after(&self, attempt: u32) -> Duration {
        self.pause
            .mul_f64(1.5_f64.powi(attempt.saturating_sub(1).min(16) as i32))
    }
}

/// A client for one kind of review.
#[derive(Clone)]
pub struct ReviewClient {
    client: kube::Client,
    path: &'static str,
    patience: Patience,
}

impl ReviewClient {
    /// Posts to `path` with `client`'s credentials.
    pub fn new(client: kube::Client, path: &'static str, patience: Patience) -> Self {
        Self {
            client,
            path,
            patience,
        }
    }

    /// Posts a review and gives back the document with its status.
    ///
    /// # Errors
    /// When no attempt brought an answer.
    pub async fn post(&self, review: &Value) -> Result<Value, ReviewError> {
        let deadline = self.patience.deadline;
        tokio::time::timeout(deadline, self.persist(review))
            .await
            .unwrap_or(Err(ReviewError::Late(deadline)))
    }

    async fn persist(&self, review: &Value) -> Result<Value, ReviewError> {
        let mut attempt = 1;
        loop {
            let outcome = self.attempt(review).await;
            let again = match &outcome {
                Ok(_) => false,
                Err((error, retry_after)) => *retry_after || worth_another_try(error),
            };
            if !again || attempt >= self.patience.attempts {
                return outcome.map_err(|(error, _)| error);
            }
            tokio::time::sleep(self.patience.pause_after(attempt)).await;
            attempt += 1;
        }
    }

    async fn attempt(&self, review: &Value) -> Result<Value, (ReviewError, bool)> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(self.path)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json")
            .body(Body::from(review.to_string().into_bytes()))
            .map_err(|e| (e.into(), false))?;
        let response = self
            .client
            .send(request)
            .await
            .map_err(|e| (ReviewError::Unreachable(e), false))?;
        let retry_after = response.headers().contains_key(header::RETRY_AFTER);
        let code = response.status();
        let bytes = response
            .into_body()
            .collect_bytes()
            .await
            .map_err(|e| (ReviewError::Unreachable(e), false))?;
        if !code.is_success() {
            let message = refusal(&bytes);
            return Err((ReviewError::Refused { code, message }, retry_after));
        }
        serde_json::from_slice(&bytes).map_err(|e| (e.into(), false))
    }
}

fn worth_another_try(error: &ReviewError) -> bool {
    match error {
        ReviewError::Unreachable(_) => true,
        ReviewError::Refused { code, .. } => {
            matches!(code.as_u16(), 429 | 500 | 504)
        }
        ReviewError::Build(_) | ReviewError::Late(_) | ReviewError::Malformed(_) => false,
    }
}

/// The message of a Status, else the start of whatever was sent.
fn refusal(bytes: &[u8]) -> String {
    let message = serde_json::from_slice::<Value>(bytes)
        .ok()
        .and_then(|v| v.get("message")?.as_str().map(str::to_owned));
    message.unwrap_or_else(|| {
        let text = String::from_utf8_lossy(bytes);
        text.chars().take(200).collect()
    })
}

#[cfg(test)]
pub(crate) mod scripted {
    //! A kube-apiserver of few words: answers each request from a closure.

    use super::*;
    use http::Response;
    use http_body_util::BodyExt as _;
    use std::sync::Arc;

    /// What the closure is given and gives back.
    pub(crate) type Script = dyn Fn(Value) -> (u16, Value) + Send + Sync;

    /// A client whose server answers by `script`.
    pub(crate) fn client(script: Arc<Script>) -> kube::Client {
        let service = tower::service_fn(move |request: Request<Body>| {
            let script = script.clone();
            async move {
                let bytes = request.into_body().collect().await.unwrap().to_bytes();
                let (code, body) = script(serde_json::from_slice(&bytes).unwrap());
                let response = Response::builder()
                    .status(code)
                    .body(Body::from(body.to_string().into_bytes()))
                    .unwrap();
                Ok::<_, std::convert::Infallible>(response)
            }
        });
        kube::Client::new(service, "default")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };

    use serde_json::json;

    use super::*;

    fn counting(answers: Vec<(u16, Value)>) -> (ReviewClient, Arc<AtomicU32>) {
        let count = Arc::new(AtomicU32::new(0));
        let seen = count.clone();
        let client = scripted::client(Arc::new(move |_| {
            let n = seen.fetch_add(1, Ordering::SeqCst) as usize;
            answers[n.min(answers.len() - 1)].clone()
        }));
        let patience = Patience {
            pause: Duration::ZERO,
            ..Patience::default()
        };
        (ReviewClient::new(client, "/reviews", patience), count)
    }

    #[tokio::test]
    async fn passing_failures_are_tried_again() {
        let (client, count) = counting(vec![
            (500, json!({})),
            (429, json!({})),
            (201, json!({"x": 1})),
        ]);
        assert_eq!(client.post(&json!({})).await.unwrap(), json!({"x": 1}));
        assert_eq!(count.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn lasting_failures_are_not() {
        let (client, count) = counting(vec![(403, json!({"message": "no"}))]);
        let error = client.post(&json!({})).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "kube-apiserver answered 403 Forbidden: no"
        );
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn pauses_grow_by_half() {
        let pauses = [1, 2, 3].map(|n| Patience::default().pause_after(n).as_millis());
        assert_eq!(pauses, [500, 750, 1125]);
    }

    #[tokio::test]
    async fn patience_ends() {
        let (client, count) = counting(vec![(500, json!({}))]);
        assert!(client.post(&json!({})).await.is_err());
        assert_eq!(count.load(Ordering::SeqCst), 5);
    }
}
