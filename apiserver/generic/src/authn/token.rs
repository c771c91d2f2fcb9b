//! Authentication by bearer token: a TokenReview, with a short bounded cache.
//!
//! Follows `k8s.io/apiserver/plugin/pkg/authenticator/token/webhook` and
//! `…/authentication/request/{bearertoken,websocket}`. Tokens are never kept: the cache's key is
//! their HMAC under a key that is made at start.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use futures::FutureExt as _;
use http::{HeaderMap, HeaderValue, header};
use ring::{hmac, rand::SystemRandom};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{AuthnError, UserInfo};
use crate::{
    ApiError,
    coalesce::{Coalescing, Fetched},
    review_client::{Patience, ReviewClient},
};

const PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const SUBPROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// A token on its way to its review. It is not printed.
pub(super) struct Token(String);

/// The token that a request presents, in `Authorization` or in a WebSocket's subprotocols.
pub(super) fn presented(headers: &HeaderMap) -> Result<Option<Token>, AuthnError> {
    match bearer(headers) {
        Some(token) => Ok(Some(Token(token))),
        None => Ok(subprotocol(headers)?.map(Token)),
    }
}

fn bearer(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?.trim();
    let mut words = value.split(' ');
    let scheme = words.next()?;
    let token = words.next()?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| token.to_owned())
}

/// `base64url.bearer.authorization.k8s.io.<token>` among the subprotocols: how a browser, which
/// cannot set headers on a WebSocket, presents a token.
fn subprotocol(headers: &HeaderMap) -> Result<Option<String>, AuthnError> {
    let fault = |text| Err(AuthnError::Subprotocol(text));
    if !is_websocket(headers) {
        return Ok(None);
    }
    let (mut token, mut others) = (None, 0_usize);
    for protocol in protocols(headers) {
        let Some(encoded) = protocol.strip_prefix(SUBPROTOCOL) else {
            others += 1;
            continue;
        };
        if token.is_some() {
            return fault("multiple base64.bearer.authorization tokens specified");
        }
        let decoded = URL_SAFE_NO_PAD.decode(encoded).ok();
        token = match decoded.and_then(|bytes| String::from_utf8(bytes).ok()) {
            Some(text) => Some(text),
            None => return fault("invalid base64.bearer.authorization token encoding"),
        };
    }
    match token {
        Some(token) if token.is_empty() => Ok(None),
        Some(_) if others == 0 => fault("missing additional subprotocol"),
        token => Ok(token),
    }
}

fn is_websocket(headers: &HeaderMap) -> bool {
    headers
        .get(header::UPGRADE)
        .is_some_and(|v| v.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    headers
        .get_all(header::SEC_WEBSOCKET_PROTOCOL)
        .into_iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|list| list.split(','))
        .map(str::trim)
        .filter(|protocol| !protocol.is_empty())
}

/// Removes tokens: nobody behind authentication sees one.
pub(super) fn strip(headers: &mut HeaderMap) {
    headers.remove(header::AUTHORIZATION);
    if !protocols(headers).any(|p| p.starts_with(SUBPROTOCOL)) {
        return;
    }
    let kept: Vec<&str> = protocols(headers)
        .filter(|p| !p.starts_with(SUBPROTOCOL))
        .collect();
    let kept = HeaderValue::from_str(&kept.join(", ")).ok();
    headers.remove(header::SEC_WEBSOCKET_PROTOCOL);
    if let Some(kept) = kept.filter(|v| !v.is_empty()) {
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, kept);
    }
}

/// How reviews of tokens are cached and tried.
#[derive(Clone, Copy, Debug)]
pub struct TokenConfig {
    /// How long a verdict is kept, either way.
    pub ttl: Duration,
    /// How many verdicts are kept.
    pub capacity: NonZeroUsize,
    /// How long to try.
    pub patience: Patience,
}

impl Default for TokenConfig {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(10),
            capacity: NonZeroUsize::new(8192).unwrap_or(NonZeroUsize::MIN),
            patience: Patience::default(),
        }
    }
}

#[derive(Clone)]
enum Verdict {
    Accepted(UserInfo),
    Refused(String),
}

/// Asks kube-apiserver whose token it is.
#[derive(Clone)]
pub struct TokenReviews {
    client: ReviewClient,
    cache: Coalescing<[u8; 32], Verdict>,
    key: Arc<hmac::Key>,
    ttl: Duration,
}

impl TokenReviews {
    /// Reviews with `client`, which needs the role `system:auth-delegator`.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn new(
        client: kube::Client,
        config: TokenConfig,
    ) -> Result<Self, ring::error::Unspecified> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())?;
        Ok(Self {
            client: ReviewClient::new(client, PATH, config.patience),
            cache: Coalescing::new(config.capacity),
            key: Arc::new(key),
            ttl: config.ttl,
        })
    }

    pub(super) async fn review(&self, token: &Token) -> Result<UserInfo, AuthnError> {
        let tag = hmac::sign(&self.key, token.0.as_bytes());
        let mut key = [0; 32];
        key.copy_from_slice(tag.as_ref());
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "spec": {"token": token.0},
        });
        let (client, ttl) = (self.client.clone(), self.ttl);
        let fetch = move || async move { ask(client, review, ttl).await }.boxed();
        match self.cache.get(key, fetch).await {
            Ok(Verdict::Accepted(user)) => Ok(user),
            Ok(Verdict::Refused(reason)) => Err(AuthnError::Token(reason)),
            Err(error) => Err(AuthnError::Review(error.internal.unwrap_or(error.message))),
        }
    }
}

async fn ask(client: ReviewClient, review: Value, ttl: Duration) -> Fetched<Verdict> {
    let answer = client.post(&review).await.map_err(ApiError::internal)?;
    let status = answer.get("status").cloned().unwrap_or_default();
    let status: ReviewStatus = serde_json::from_value(status)
        .map_err(|e| ApiError::internal(format!("its status: {e}")))?;
    Ok((status.verdict(), ttl))
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ReviewStatus {
    authenticated: bool,
    error: String,
    user: ReviewUser,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ReviewUser {
    username: String,
    uid: String,
    groups: Option<Vec<String>>,
    extra: Option<std::collections::BTreeMap<String, Vec<String>>>,
}

impl ReviewStatus {
    fn verdict(self) -> Verdict {
        if !self.authenticated {
            return Verdict::Refused(self.error);
        }
        Verdict::Accepted(UserInfo {
            name: self.user.username,
            uid: self.user.uid,
            groups: self.user.groups.unwrap_or_default(),
            extra: self.user.extra.unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            (http::HeaderName::from_static(name), value.parse().unwrap())
        };
        list.iter().map(pair).collect()
    }

    #[test]
    fn tokens_are_found_where_clients_put_them() {
        let authorization = |v| presented(&headers(&[("authorization", v)])).unwrap();
        for (value, expected) in [
            ("Bearer abc", Some("abc")),
            ("bearer abc", Some("abc")),
            ("BEARER abc def", Some("abc")),
            ("Bearer", None),
            ("Bearer ", None),
            ("Bearer  abc", None),
            ("Basic abc", None),
        ] {
            assert_eq!(
                authorization(value).map(|t| t.0).as_deref(),
                expected,
                "{value}"
            );
        }
    }

    #[test]
    fn the_bearer_subprotocol_is_read_and_removed() {
        let request =
            |list: &str| headers(&[("upgrade", "WebSocket"), ("sec-websocket-protocol", list)]);
        let offer = "base64url.bearer.authorization.k8s.io.YWJj";
        let mut good = request(&format!("{offer}, v5.channel.k8s.io, plain"));
        assert_eq!(presented(&good).unwrap().unwrap().0, "abc");
        strip(&mut good);
        assert_eq!(good["sec-websocket-protocol"], "v5.channel.k8s.io, plain");
        for (list, fault) in [
            (offer.to_owned(), "missing additional subprotocol"),
            (
                format!("{offer},{offer},x"),
                "multiple base64.bearer.authorization tokens specified",
            ),
            (
                format!("{offer}=,x"),
                "invalid base64.bearer.authorization token encoding",
            ),
            (
                "base64url.bearer.authorization.k8s.io._w,x".to_owned(),
                "invalid base64.bearer.authorization token encoding",
            ),
        ] {
            let error = presented(&request(&list)).err().unwrap();
            assert_eq!(error.to_string(), fault, "{list}");
        }
        let plain = headers(&[("sec-websocket-protocol", offer)]);
        assert!(
            presented(&plain).unwrap().is_none(),
            "no WebSocket, no token"
        );
    }
}
