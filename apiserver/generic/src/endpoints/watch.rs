//! `watch`: changes as a stream of JSON documents.
//!
//! The stream is pulled by the connection: while the client does not read, nothing is made for it,
//! and when it falls behind the history that the cache keeps, it is told to start over.

use std::time::Duration;

use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _, stream};
use http::{HeaderValue, Response, header};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use serde_json::{Value, json};
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::{
    accept::{Format, Shape, not_acceptable},
    body,
    list::view,
    list_options::{self, WatchRequest},
    read::{self, Parts},
    shape::{Include, partial},
};
use crate::{
    ApiError, Body, Call, Object, Reason, Registry,
    cache::Item,
    filter::View,
    registry::{WatchOptions, Watched, Watching},
    storage::Revision,
};

/// How often a watcher is told how far it is.
const BOOKMARKS: Duration = Duration::from_secs(60);
/// How long before its end a watch gets a last bookmark.
const LAST: Duration = Duration::from_secs(2);
/// Shortest watch of those that do not say; the longest lasts twice as long.
const SHORTEST: u64 = 1800;
/// About how much is written at once.
const CHUNK: usize = 32 << 10;
/// Marks the bookmark that ends the initial events.
const INITIAL_END: &str = "k8s.io/initial-events-end";

/// Answers a watch.
pub(super) async fn watch(registry: &Registry, call: Call) -> Result<Response<Body>, ApiError> {
    let parts = Parts::of(&call)?;
    if parts.wanted.format == Format::Yaml {
        return Err(not_acceptable());
    }
    let request = list_options::watch(&parts.query)?;
    let fields = registry.strategy().selectable_fields();
    let options = WatchOptions {
        namespace: read::namespace(&call.info),
        selector: list_options::selector(&parts.query, fields, &call.info.name)?,
        start: request.start,
    };
    let encoder = Encoder {
        registry: registry.clone(),
        shape: parts.wanted.shape,
        include: Include::of(&parts.query)?,
        headers_sent: false,
    };
    let body = match registry.watch(options).await {
        Ok(watching) => stream_body(Sender::new(encoder, watching, request, call.draining)),
        // Clients expect these inside the stream.
        Err(error) if matches!(error.reason, Reason::Expired | Reason::Timeout) => {
            body(line("ERROR", error.to_status().to_string().as_bytes()))
        }
        Err(error) => return Err(error),
    };
    let mut response = Response::new(body);
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    Ok(response)
}

fn stream_body(sender: Sender) -> Body {
    let frames = stream::unfold(sender, |mut sender| async move {
        let bytes = sender.next().await?;
        Some((Ok(Frame::data(bytes)), sender))
    });
    StreamBody::new(frames.fuse()).boxed_unsync()
}

fn line(kind: &str, object: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(object.len() + 32);
    push(&mut out, kind, object);
    out
}

fn push(out: &mut Vec<u8>, kind: &str, object: &[u8]) {
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    out.extend_from_slice(object);
    out.extend_from_slice(b"}\n");
}

/// Writes events in the shape that was asked for.
struct Encoder {
    registry: Registry,
    shape: Shape,
    include: Include,
    /// Whether a Table's columns were sent: only the first event carries them.
    headers_sent: bool,
}

impl Encoder {
    fn event(&mut self, out: &mut Vec<u8>, kind: &str, item: &Item) {
        match self.shape {
            // Encoded once for all watchers.
            Shape::Whole => push(out, kind, &item.json),
            _ => {
                let document = self.shaped(&item.object);
                push(out, kind, document.to_string().as_bytes());
            }
        }
    }

    fn bookmark(&mut self, out: &mut Vec<u8>, revision: Revision, initial_end: bool) {
        let row = self.registry.resource();
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if initial_end {
            metadata["annotations"] = json!({ INITIAL_END: "true" });
        }
        let document =
            json!({"kind": row.kind, "apiVersion": row.api_version(), "metadata": metadata});
        let document = match (self.shape, Object::from_value(document)) {
            (Shape::Whole, Ok(object)) => json!(object),
            (_, Ok(object)) => self.shaped(&object),
            (_, Err(other)) => other,
        };
        push(out, "BOOKMARK", document.to_string().as_bytes());
    }

    fn shaped(&mut self, object: &Object) -> Value {
        match self.shape {
            Shape::Whole => json!(object),
            Shape::Partial(version) | Shape::PartialList(version) => partial(object, version),
            Shape::Table(version) => {
                let headers = !std::mem::replace(&mut self.headers_sent, true);
                view(&self.registry, self.shape, self.include).table_of(object, version, headers)
            }
        }
    }
}

/// What is sent next.
enum State {
    /// The objects that come first.
    Initial(std::vec::IntoIter<std::sync::Arc<Item>>),
    /// Changes.
    Live,
    /// Nothing.
    Ended,
}

struct Sender {
    encoder: Encoder,
    watching: Watching,
    request: WatchRequest,
    state: State,
    draining: CancellationToken,
    bookmarks: Interval,
    /// When the last bookmark is due, and when the watch ends.
    last: Option<Instant>,
    end: Instant,
}

impl Sender {
    fn new(
        encoder: Encoder,
        mut watching: Watching,
        request: WatchRequest,
        draining: CancellationToken,
    ) -> Self {
        let seconds = request.seconds.unwrap_or_else(default_seconds);
        let now = Instant::now();
        let length = Duration::from_secs(seconds);
        let mut bookmarks = tokio::time::interval_at(now + BOOKMARKS, BOOKMARKS);
        bookmarks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let initial = std::mem::take(&mut watching.initial);
        Self {
            encoder,
            watching,
            request,
            state: State::Initial(initial.into_iter()),
            draining,
            bookmarks,
            last: length.checked_sub(LAST).map(|before| now + before),
            end: now + length,
        }
    }

    /// The next bytes; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        let mut out = Vec::new();
        while out.is_empty() {
            match &mut self.state {
                State::Ended => return None,
                State::Initial(_) => self.initial(&mut out),
                State::Live => self.live(&mut out).await,
            }
        }
        Some(out.into())
    }

    fn initial(&mut self, out: &mut Vec<u8>) {
        let State::Initial(items) = &mut self.state else {
            return;
        };
        while out.len() < CHUNK {
            let Some(item) = items.next() else {
                self.state = State::Live;
                if self.request.mark_initial {
                    self.encoder.bookmark(out, self.watching.revision, true);
                }
                return;
            };
            self.encoder.event(out, "ADDED", &item);
        }
    }

    async fn live(&mut self, out: &mut Vec<u8>) {
        let last = self.last.unwrap_or(self.end);
        tokio::select! {
            biased;
            () = self.draining.cancelled() => self.finish(out),
            () = tokio::time::sleep_until(self.end) => self.state = State::Ended,
            () = tokio::time::sleep_until(last), if self.last.is_some() => {
                self.last = None;
                self.mark(out);
            }
            _ = self.bookmarks.tick(), if self.request.bookmarks => self.mark(out),
            watched = self.watching.next() => {
                self.take(out, watched);
                self.take_ready(out);
            }
        }
    }

    /// Takes what is there already, without waiting for more.
    fn take_ready(&mut self, out: &mut Vec<u8>) {
        while out.len() < CHUNK && matches!(self.state, State::Live) {
            match self.watching.next().now_or_never() {
                Some(watched) => self.take(out, watched),
                None => return,
            }
        }
    }

    fn take(&mut self, out: &mut Vec<u8>, watched: Watched) {
        match watched {
            Watched::Change(View::Added(item)) => self.encoder.event(out, "ADDED", &item),
            Watched::Change(View::Modified(item)) => self.encoder.event(out, "MODIFIED", &item),
            Watched::Change(View::Deleted(item)) => self.encoder.event(out, "DELETED", &item),
            Watched::Expired(lagged) => {
                let error = crate::registry::expired(self.watching.revision, lagged);
                push(out, "ERROR", error.to_status().to_string().as_bytes());
                self.state = State::Ended;
            }
            Watched::Stopped => self.finish(out),
        }
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        self.mark(out);
        self.state = State::Ended;
    }

    fn mark(&mut self, out: &mut Vec<u8>) {
        if let (true, Some(revision)) = (self.request.bookmarks, self.watching.bookmark()) {
            self.encoder.bookmark(out, revision, false);
        }
    }
}

/// Spread out, so that watches that began together do not end together.
fn default_seconds() -> u64 {
    let (random, _) = uuid::Uuid::new_v4().as_u64_pair();
    SHORTEST + random % SHORTEST
}
