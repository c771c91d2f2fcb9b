//! The WebSocket handshake through the kube client, so that every way of authentication works for it (RFC 6455 §4.1).
//!
//! Nothing is sent before the 101: kube-apiserver drops what a client sends with its handshake.
//! Entry point: [`open`].

use std::time::{Duration, Instant};

use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, Request, StatusCode};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::{client::generate_key, derive_accept_key};
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use crate::cluster::{Cluster, ClusterError, Refusal, refusal};

/// Bytes read at once; the default of 128 KiB is more than a stream needs.
const READ_BUFFER: usize = 32 << 10;
/// More than any server sends in one message.
const MAX_MESSAGE: usize = 4 << 20;

/// An open stream.
pub type Stream = WebSocketStream<TokioIo<Upgraded>>;

/// Why there is no stream.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The workspace is starting, its guest does not listen yet, or the server is busy: ask again.
    #[error("{message}")]
    NotYet {
        /// What is waited for.
        what: Pending,
        /// In the server's words.
        message: String,
        /// When to ask again.
        retry_after: Duration,
    },
    /// It was asked for again and again.
    #[error("{message}; asked for {} s, which --timeout changes", .waited.as_secs())]
    NeverReady {
        /// The last answer, in the server's words.
        message: String,
        /// For how long.
        waited: Duration,
    },
    /// Somebody else holds it.
    #[error("{0}")]
    Held(Holder),
    /// Everything else.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
}

/// What is not there yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pending {
    /// The workspace is starting.
    Start,
    /// It runs, and nothing answers.
    Answer,
}

/// How long to ask again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// While the workspace starts.
    start: Duration,
    /// While it runs and nothing answers: a guest that boots is faster, and in many nothing ever will.
    answer: Duration,
}

impl Patience {
    /// What the user said, for both; else 5 min for a start and 2 min for an answer.
    pub fn of(timeout: Option<Duration>) -> Self {
        Self {
            start: timeout.unwrap_or(Duration::from_secs(300)),
            answer: timeout.unwrap_or(Duration::from_secs(120)),
        }
    }

    fn of_pending(self, what: Pending) -> Duration {
        match what {
            Pending::Start => self.start,
            Pending::Answer => self.answer,
        }
    }
}

/// Who holds a stream that only one can have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// Which stream.
    pub mode: String,
    /// Their name.
    pub user: String,
    /// Since when (RFC 3339).
    pub since: String,
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { mode, user, since } = self;
        let or =
            |text: &str, otherwise: &str| if text.is_empty() { otherwise } else { text }.to_owned();
        write!(
            f,
            "the {} is held by {}{}: run the command again with --takeover to end that session",
            or(mode, "stream"),
            or(user, "somebody else"),
            if since.is_empty() {
                String::new()
            } else {
                format!(" since {since}")
            },
        )
    }
}

/// Opens `path` with the first of `protocols` that the server takes, and says which. While it is told to come back
/// it asks again, for as long as it has patience with what is pending, and says so once.
pub async fn open_when_ready(
    cluster: &Cluster,
    path: &str,
    protocols: &[&str],
    patience: Patience,
) -> Result<(Stream, String), OpenError> {
    let (mut start, mut answer) = (None, None);
    let mut said = String::new();
    loop {
        let (what, message, retry_after) = match open(cluster, path, protocols).await {
            Err(OpenError::NotYet {
                what,
                message,
                retry_after,
            }) => (what, message, retry_after),
            done => return done,
        };
        let since = match what {
            Pending::Start => start.get_or_insert_with(Instant::now),
            Pending::Answer => answer.get_or_insert_with(Instant::now),
        };
        let (waited, most) = (since.elapsed(), patience.of_pending(what));
        if waited + retry_after > most {
            return Err(match most {
                Duration::ZERO => OpenError::NotYet {
                    what,
                    message,
                    retry_after,
                },
                _ => OpenError::NeverReady { message, waited },
            });
        }
        if said != message {
            crate::say::note(&format!("Waiting: {message}"));
            said = message;
        }
        tokio::time::sleep(retry_after).await;
    }
}

/// Opens `path` with the first of `protocols` that the server takes, and says which.
pub async fn open(
    cluster: &Cluster,
    path: &str,
    protocols: &[&str],
) -> Result<(Stream, String), OpenError> {
    let key = generate_key();
    let request = || {
        Request::get(path)
            .header(CONNECTION, "Upgrade")
            .header(UPGRADE, "websocket")
            .header(SEC_WEBSOCKET_VERSION, "13")
            .header(SEC_WEBSOCKET_KEY, &key)
            .header(SEC_WEBSOCKET_PROTOCOL, protocols.join(", "))
            .body(Body::empty())
    };
    let response = cluster.send(request).await?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(classify(refusal(response).await?));
    }
    let protocol = accepted(response.headers(), &key, protocols)
        .map_err(|e| ClusterError::Answer(e.into()))?;
    let upgraded = hyper::upgrade::on(response)
        .await
        .map_err(|e| cluster.unreachable(&e))?;
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

/// 400 with Retry-After is a workspace that starts, 503 with it a guest or a server that does not answer yet, 409 with
/// `SessionHeld` a stream that is held.
fn classify(refusal: Refusal) -> OpenError {
    match (refusal.code, refusal.retry_after, holder(&refusal)) {
        (400 | 503, Some(seconds), _) => OpenError::NotYet {
            what: match refusal.code {
                400 => Pending::Start,
                _ => Pending::Answer,
            },
            message: refusal.message,
            retry_after: Duration::from_secs(seconds.clamp(1, 10)),
        },
        (409, _, Some(holder)) => OpenError::Held(holder),
        (200..300, ..) => OpenError::Cluster(ClusterError::Answer(
            "the stream was not opened: something between here and the server drops the Upgrade header".into(),
        )),
        _ => OpenError::Cluster(ClusterError::Refused(refusal)),
    }
}

fn holder(refusal: &Refusal) -> Option<Holder> {
    let held = |(reason, ..): &&(String, String, String)| reason == "SessionHeld";
    let mut holder = None;
    for (_, field, message) in refusal.causes.iter().filter(held) {
        let held: &mut Holder = holder.get_or_insert_default();
        match field.as_str() {
            "spec.user" => held.user.clone_from(message),
            "spec.since" => held.since.clone_from(message),
            "spec.mode" => held.mode.clone_from(message),
            _ => {}
        }
    }
    holder
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(code: u16, retry_after: Option<u64>, body: &str) -> OpenError {
        classify(Refusal::read(code, retry_after, body.as_bytes()))
    }

    #[test]
    fn a_refusal_says_whether_to_wait_to_take_over_or_to_give_up() {
        let held = r#"{"message":"held","details":{"causes":[{"reason":"SessionHeld","message":"ann","field":"spec.user"},
            {"reason":"SessionHeld","message":"2026-01-01T00:00:00Z","field":"spec.since"},
            {"reason":"SessionHeld","message":"vnc","field":"spec.mode"}]}}"#;
        let OpenError::Held(holder) = answer(409, None, held) else {
            panic!("held")
        };
        let text = holder.to_string();
        for part in ["--takeover", "ann", "vnc", "since 2026-01-01T00:00:00Z"] {
            assert!(text.contains(part), "{text}");
        }
        for code in [400, 503] {
            let later = answer(code, Some(2), r#"{"message":"demo is starting"}"#);
            assert!(
                matches!(later, OpenError::NotYet { retry_after, .. } if retry_after == Duration::from_secs(2)),
                "{code}"
            );
        }
        for (code, retry_after) in [(400, None), (409, None), (403, None), (503, None)] {
            let error = answer(code, retry_after, r#"{"message":"no"}"#);
            assert!(
                matches!(&error, OpenError::Cluster(e) if e.code() == Some(code)),
                "{code}"
            );
        }
        let plain = answer(200, None, "{}");
        assert!(plain.to_string().contains("Upgrade"), "{plain}");
    }

    #[test]
    fn a_start_is_waited_for_longer_than_an_answer_unless_the_user_says_how_long() {
        let both = |patience: Patience| {
            [Pending::Start, Pending::Answer].map(|what| patience.of_pending(what).as_secs())
        };
        assert_eq!(both(Patience::of(None)), [300, 120]);
        let said = Some(Duration::from_secs(7));
        assert_eq!(both(Patience::of(said)), [7, 7]);
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
