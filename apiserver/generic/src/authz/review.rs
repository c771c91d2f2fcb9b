//! Authorization by kube-apiserver: a SubjectAccessReview per question, with a short cache.
//!
//! Entry point: [`SubjectAccessReviews`]. Follows
//! `k8s.io/apiserver/plugin/pkg/authorizer/webhook/webhook.go`; beyond it, identical questions that
//! are asked at once share one review.

use std::{num::NonZeroUsize, time::Duration};

use async_trait::async_trait;
use futures::FutureExt as _;
use serde_json::{Map, Value, json};

use super::{Attributes, Authorizer, Decision};
use crate::{
    ApiError, UserInfo,
    coalesce::{Coalescing, Fetched},
    review_client::{Patience, ReviewClient, ReviewError},
    selector::Requirement,
};

const PATH: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// A question longer than this is asked each time, so that a caller cannot fill the memory.
const LONGEST_KEY: usize = 10_000;

/// How reviews are cached and tried.
#[derive(Clone, Copy, Debug)]
pub struct ReviewConfig {
    /// How long a yes is kept.
    pub allow_ttl: Duration,
    /// How long a no is kept.
    pub deny_ttl: Duration,
    /// How many answers are kept.
    pub capacity: NonZeroUsize,
    /// How long to try.
    pub patience: Patience,
}

impl Default for ReviewConfig {
    fn default() -> Self {
        Self {
            allow_ttl: Duration::from_secs(10),
            deny_ttl: Duration::from_secs(10),
            capacity: NonZeroUsize::new(8192).unwrap_or(NonZeroUsize::MIN),
            patience: Patience::default(),
        }
    }
}

/// Asks kube-apiserver.
#[derive(Clone)]
pub struct SubjectAccessReviews {
    client: ReviewClient,
    cache: Coalescing<String, Decision>,
    config: ReviewConfig,
}

impl SubjectAccessReviews {
    /// Reviews with `client`, which needs the role `system:auth-delegator`.
    pub fn new(client: kube::Client, config: ReviewConfig) -> Self {
        Self {
            client: ReviewClient::new(client, PATH, config.patience),
            cache: Coalescing::new(config.capacity),
            config,
        }
    }

    async fn ask(client: ReviewClient, spec: Value) -> Result<Decision, ApiError> {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec,
        });
        let answer = client.post(&review).await.map_err(failed)?;
        decision(answer.get("status").unwrap_or(&Value::Null))
    }
}

#[async_trait]
impl Authorizer for SubjectAccessReviews {
    async fn decide(&self, user: &UserInfo, attributes: &Attributes) -> Result<Decision, ApiError> {
        let spec = spec(user, attributes);
        let key = spec.to_string();
        if key.len() >= LONGEST_KEY {
            return Self::ask(self.client.clone(), spec).await;
        }
        let (client, config) = (self.client.clone(), self.config);
        let fetch = move || async move { keep(config, Self::ask(client, spec).await) }.boxed();
        self.cache.get(key, fetch).await
    }

    async fn recheck(
        &self,
        user: &UserInfo,
        attributes: &Attributes,
    ) -> Result<Decision, ApiError> {
        Self::ask(self.client.clone(), spec(user, attributes)).await
    }
}

fn keep(config: ReviewConfig, answer: Result<Decision, ApiError>) -> Fetched<Decision> {
    answer.map(|decision| {
        let ttl = match decision {
            Decision::Allow => config.allow_ttl,
            Decision::Deny(_) => config.deny_ttl,
        };
        (decision, ttl)
    })
}

fn failed(error: ReviewError) -> ApiError {
    let mut answer = ApiError::internal(format!("SubjectAccessReview: {error}"));
    answer.message = "Internal error occurred: kube-apiserver could not be asked whether this \
                      request is allowed; try again, and see the server's log if it stays so"
        .to_owned();
    answer
}

/// The status of a review as a decision.
fn decision(status: &Value) -> Result<Decision, ApiError> {
    let flag = |key: &str| status.get(key).and_then(Value::as_bool).unwrap_or(false);
    let text = |key: &str| status.get(key).and_then(Value::as_str).unwrap_or_default();
    match (flag("allowed"), flag("denied")) {
        (true, true) => Err(ApiError::internal(
            "SubjectAccessReview says allowed and denied at once",
        )),
        (true, false) => Ok(Decision::Allow),
        (false, true) => Ok(Decision::Deny(text("reason").to_owned())),
        (false, false) => {
            let error = text("evaluationError");
            if !error.is_empty() {
                tracing::warn!(error, "the authorizer denied after an evaluation error");
            }
            Ok(Decision::Deny(text("reason").to_owned()))
        }
    }
}

/// `spec` of the review: who, and either a resource or a path.
fn spec(user: &UserInfo, a: &Attributes) -> Value {
    let mut spec = Map::new();
    put(&mut spec, "user", &user.name);
    put(&mut spec, "uid", &user.uid);
    if !user.groups.is_empty() {
        spec.insert("groups".into(), json!(user.groups));
    }
    if !user.extra.is_empty() {
        spec.insert("extra".into(), json!(user.extra));
    }
    if a.path.is_empty() {
        spec.insert("resourceAttributes".into(), resource_attributes(a));
    } else {
        let path = json!({"path": a.path, "verb": a.verb});
        spec.insert("nonResourceAttributes".into(), path);
    }
    Value::Object(spec)
}

fn resource_attributes(a: &Attributes) -> Value {
    let mut out = Map::new();
    for (key, value) in [
        ("namespace", &a.namespace),
        ("verb", &a.verb),
        ("group", &a.group),
        ("version", &a.version),
        ("resource", &a.resource),
        ("subresource", &a.subresource),
        ("name", &a.name),
    ] {
        put(&mut out, key, value);
    }
    for (key, list) in [
        ("fieldSelector", &a.selectors.fields),
        ("labelSelector", &a.selectors.labels),
    ] {
        if !list.is_empty() {
            let list: Vec<Value> = list.iter().map(requirement).collect();
            out.insert(key.into(), json!({ "requirements": list }));
        }
    }
    Value::Object(out)
}

fn requirement(r: &Requirement) -> Value {
    let mut out = json!({"key": r.key, "operator": r.operator.as_str()});
    if !r.values.is_empty() {
        out["values"] = json!(r.values);
    }
    out
}

fn put(map: &mut Map<String, Value>, key: &str, value: &str) {
    if !value.is_empty() {
        map.insert(key.to_owned(), json!(value));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };

    use http::Method;

    use super::*;
    use crate::{request::RequestInfo, review_client::scripted};

    fn jane() -> UserInfo {
        UserInfo {
            name: "jane".into(),
            uid: "u-1".into(),
            groups: vec!["dev".into()],
            extra: [("scopes.io/a".to_owned(), vec!["x".to_owned()])].into(),
        }
    }

    fn attributes(method: Method, uri: &str) -> Attributes {
        RequestInfo::parse(&method, &uri.parse().unwrap())
            .unwrap()
            .attributes()
    }

    fn reviews(answer: fn(u32) -> (u16, Value)) -> (SubjectAccessReviews, Arc<AtomicU32>) {
        let count = Arc::new(AtomicU32::new(0));
        let seen = count.clone();
        let client = scripted::client(Arc::new(move |_| {
            answer(seen.fetch_add(1, Ordering::SeqCst))
        }));
        (
            SubjectAccessReviews::new(client, ReviewConfig::default()),
            count,
        )
    }

    fn allowed(_: u32) -> (u16, Value) {
        (201, json!({"status": {"allowed": true}}))
    }

    #[test]
    fn a_review_carries_the_whole_question() {
        let uri = "/apis/k.io/v1/namespaces/a/ws?labelSelector=x=y&fieldSelector=metadata.name=w";
        assert_eq!(
            spec(&jane(), &attributes(Method::GET, uri)),
            json!({
                "user": "jane", "uid": "u-1", "groups": ["dev"], "extra": {"scopes.io/a": ["x"]},
                "resourceAttributes": {
                    "namespace": "a", "verb": "list", "group": "k.io", "version": "v1",
                    "resource": "ws", "name": "w",
                    "fieldSelector": {"requirements": [
                        {"key": "metadata.name", "operator": "In", "values": ["w"]}]},
                    "labelSelector": {"requirements": [
                        {"key": "x", "operator": "In", "values": ["y"]}]},
                }
            })
        );
        assert_eq!(
            spec(&UserInfo::default(), &attributes(Method::GET, "/metrics")),
            json!({"nonResourceAttributes": {"path": "/metrics", "verb": "get"}})
        );
    }

    #[test]
    fn answers_become_decisions() {
        let deny = |s: &str| Some(Decision::Deny(s.to_owned()));
        for (status, expected) in [
            (json!({"allowed": true}), Some(Decision::Allow)),
            (
                json!({"allowed": false, "denied": true, "reason": "r"}),
                deny("r"),
            ),
            (json!({"allowed": false, "reason": "none"}), deny("none")),
            (json!({"allowed": true, "denied": true}), None),
            (Value::Null, deny("")),
        ] {
            assert_eq!(decision(&status).ok(), expected, "{status}");
        }
    }

    #[test]
    fn yes_and_no_have_lifetimes_of_their_own() {
        let config = ReviewConfig {
            deny_ttl: Duration::from_secs(3),
            ..ReviewConfig::default()
        };
        let ttl = |decision| keep(config, Ok(decision)).unwrap().1.as_secs();
        assert_eq!(ttl(Decision::Allow), 10);
        assert_eq!(ttl(Decision::Deny(String::new())), 3);
    }

    #[tokio::test]
    async fn an_answer_is_asked_for_once() {
        let denied: fn(u32) -> (u16, Value) = |_| (201, json!({"status": {"allowed": false}}));
        for answer in [allowed, denied] {
            let (reviews, count) = reviews(answer);
            let a = attributes(Method::GET, "/apis/k.io/v1/ws");
            for _ in 0..3 {
                reviews.decide(&jane(), &a).await.unwrap();
            }
            assert_eq!(count.load(Ordering::SeqCst), 1);
        }
    }

    #[tokio::test]
    async fn another_user_namespace_or_extra_is_another_question() {
        let (reviews, count) = reviews(allowed);
        let a = attributes(Method::GET, "/apis/k.io/v1/namespaces/a/ws");
        let b = attributes(Method::GET, "/apis/k.io/v1/namespaces/b/ws");
        let plain = UserInfo {
            extra: Default::default(),
            ..jane()
        };
        for (user, attributes) in [(jane(), &a), (jane(), &b), (plain, &a), (jane(), &a)] {
            reviews.decide(&user, attributes).await.unwrap();
        }
        assert_eq!(count.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn a_recheck_and_an_enormous_question_pass_the_cache_by() {
        let (reviews, count) = reviews(allowed);
        let a = attributes(Method::GET, "/apis/k.io/v1/ws");
        reviews.decide(&jane(), &a).await.unwrap();
        reviews.recheck(&jane(), &a).await.unwrap();
        let crowd = UserInfo {
            groups: (0..1_000).map(|n| format!("group-number-{n}")).collect(),
            ..jane()
        };
        reviews.decide(&crowd, &a).await.unwrap();
        reviews.decide(&crowd, &a).await.unwrap();
        assert_eq!(count.load(Ordering::SeqCst), 4);
    }

    #[tokio::test]
    async fn a_review_that_fails_is_500_and_not_kept() {
        let (reviews, count) = reviews(|n| if n == 0 { (403, json!({})) } else { allowed(n) });
        let a = attributes(Method::GET, "/apis/k.io/v1/ws");
        let error = reviews.decide(&jane(), &a).await.unwrap_err();
        assert_eq!(error.reason.code(), 500);
        assert_eq!(reviews.decide(&jane(), &a).await, Ok(Decision::Allow));
        assert_eq!(count.load(Ordering::SeqCst), 2);
    }
}
