//! The WebSocket handshake through the kube client, so that every way of authentication works for it (RFC 6455 §4.1).
//!
//! Nothing is sent before the 101: kube-apiserver drops what a client sends with its handshake.
//! Entry point: [`open`].

use std::time::Duration;

use http::header::{
    CONNECTION, RETRY_AFTER, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, Request, Response, StatusCode};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use serde_json::Value;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::{client::generate_key, derive_accept_key};
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use crate::cluster::{Cluster, ClusterError, body, chain, status_error};

/// Bytes read at once; the default of 128 KiB is more than a console needs.
const READ_BUFFER: usize = 32 << 10;
/// More than any server sends in one message.
const MAX_MESSAGE: usize = 4 << 20;

/// An open stream.
pub type Stream = WebSocketStream<TokioIo<Upgraded>>;

/// Why there is no stream.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The workspace is starting: ask again.
    #[error("{message}")]
    Starting {
        /// In the server's words.
        message: String,
        /// When to ask again.
        retry_after: Duration,
    },
    /// Somebody else holds it.
    #[error("{0}")]
    Held(Holder),
    /// Everything else.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
}

/// Who holds a console.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// Their name.
    pub user: String,
    /// Since when (RFC 3339).
    pub since: String,
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { user, since } = self;
        write!(
            f,
            "the console is held by {user} since {since}: run the command again with --takeover to end that session"
        )
    }
}

/// Opens `path` with the first of `protocols` that the server takes, and says which.
pub async fn open(
    cluster: &Cluster,
    path: &str,
    protocols: &[&str],
) -> Result<(Stream, String), OpenError> {
    let key = generate_key();
    let request = Request::get(path)
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "websocket")
        .header(SEC_WEBSOCKET_VERSION, "13")
        .header(SEC_WEBSOCKET_KEY, &key)
        .header(SEC_WEBSOCKET_PROTOCOL, protocols.join(", "))
        .body(Body::empty())
        .map_err(|e| ClusterError::Answer(e.to_string()))?;
    let response = cluster
        .client
        .send(request)
        .await
        .map_err(|e| ClusterError::Unreachable(chain(&e)))?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(refusal(response).await?);
    }
    let protocol = accepted(response.headers(), &key, protocols)
        .map_err(|e| ClusterError::Answer(e.into()))?;
    let upgraded = hyper::upgrade::on(response)
        .await
        .map_err(|e| ClusterError::Unreachable(chain(&e)))?;
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER)
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE));
    Ok((
        WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, Some(config)).await,
        protocol,
    ))
}

/// RFC 6455 §4.1, what a client must verify.
fn accepted(headers: &HeaderMap, key: &str, protocols: &[&str]) -> Result<String, &'static str> {
    let text = |name| {
        headers
            .get(name)
            .and_then(|v| v.to_str().ok())
            .unwrap_or_default()
    };
    if !text(UPGRADE).eq_ignore_ascii_case("websocket") {
        return Err("it switched to something that is no WebSocket");
    }
    if text(SEC_WEBSOCKET_ACCEPT) != derive_accept_key(key.as_bytes()) {
        return Err("its Sec-WebSocket-Accept does not belong to our key");
    }
    let protocol = text(SEC_WEBSOCKET_PROTOCOL);
    if !protocols.contains(&protocol) {
        return Err("it chose a subprotocol that was not offered");
    }
    Ok(protocol.to_owned())
}

async fn refusal(response: Response<Body>) -> Result<OpenError, ClusterError> {
    let code = response.status().as_u16();
    let retry_after = response
        .headers()
        .get(RETRY_AFTER)
        .and_then(|v| v.to_str().ok())
        .and_then(|v| v.parse().ok());
    let body = body(response.into_body()).await?;
    Ok(classify(code, retry_after, &body))
}

/// 400 with Retry-After is a workspace that starts, 409 with `SessionHeld` one that is held.
fn classify(code: u16, retry_after: Option<u64>, body: &[u8]) -> OpenError {
    let error = status_error(code, body);
    match (code, retry_after, holder(body)) {
        (400, Some(seconds), _) => OpenError::Starting {
            message: error.to_string(),
            retry_after: Duration::from_secs(seconds.clamp(1, 10)),
        },
        (409, _, Some(holder)) => OpenError::Held(holder),
        _ => OpenError::Cluster(error),
    }
}

fn holder(body: &[u8]) -> Option<Holder> {
    let status: Value = serde_json::from_slice(body).ok()?;
    let mut holder = None;
    for cause in status["details"]["causes"]
        .as_array()?
        .iter()
        .filter(|cause| cause["reason"] == "SessionHeld")
    {
        let held: &mut Holder = holder.get_or_insert_default();
        let message = cause["message"].as_str().unwrap_or_default().to_owned();
        match cause["field"].as_str() {
            Some("spec.user") => held.user = message,
            Some("spec.since") => held.since = message,
            _ => {}
        }
    }
    holder
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_whether_to_wait_to_take_over_or_to_give_up() {
        let held = br#"{"message":"held","details":{"causes":[{"reason":"SessionHeld","message":"ann","field":"spec.user"},
            {"reason":"SessionHeld","message":"2026-01-01T00:00:00Z","field":"spec.since"}]}}"#;
        let holder = Holder {
            user: "ann".into(),
            since: "2026-01-01T00:00:00Z".into(),
        };
        assert!(matches!(classify(409, None, held), OpenError::Held(h) if h == holder));
        assert!(holder.to_string().contains("--takeover") && holder.to_string().contains("ann"));
        let starting = classify(400, Some(2), br#"{"message":"demo is starting"}"#);
        assert!(
            matches!(starting, OpenError::Starting { retry_after, .. } if retry_after == Duration::from_secs(2))
        );
        for (code, retry_after) in [(400, None), (409, None), (403, None), (503, Some(1))] {
            let error = classify(code, retry_after, br#"{"message":"no"}"#);
            assert!(
                matches!(error, OpenError::Cluster(ClusterError::Status { code: c, .. }) if c == code),
                "{code}"
            );
        }
    }

    #[test]
    fn an_answer_that_is_not_to_our_handshake_is_refused() {
        let answer = |upgrade: &str, accept: &str, protocol: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(UPGRADE, upgrade.parse().unwrap());
            headers.insert(SEC_WEBSOCKET_ACCEPT, accept.parse().unwrap());
            headers.insert(SEC_WEBSOCKET_PROTOCOL, protocol.parse().unwrap());
            accepted(&headers, "dGhlIHNhbXBsZSBub25jZQ==", &["a", "b"])
        };
        let right = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
        assert_eq!(answer("WebSocket", right, "b").as_deref(), Ok("b"));
        for (upgrade, accept, protocol) in [
            ("h2c", right, "b"),
            ("websocket", "x", "b"),
            ("websocket", right, "c"),
            ("websocket", right, ""),
        ] {
            assert!(answer(upgrade, accept, protocol).is_err());
        }
    }
}
