//! A response's body that knows when it is over: metrics, limits and audit end with it.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Instant,
};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt as _;

use super::inflight::Place;
use crate::{
    Body, Metrics,
    audit::Record,
    call::BodyError,
    metrics::{RequestKind, RequestLabels},
};

/// What a request holds until its answer has been sent.
pub(super) struct Held {
    metrics: Metrics,
    labels: RequestLabels,
    kind: RequestKind,
    began: Instant,
    /// Whether it is a watch or a stream.
    pub(super) long_running: bool,
    /// The answer's code; 0 as long as there is none, and for ever if the client goes away first.
    pub(super) code: u16,
    /// Its place under the limits.
    pub(super) place: Place,
    /// Its audit.
    pub(super) audit: Record,
}

impl Held {
    /// Begins to count a request.
    pub(super) fn begin(
        metrics: &Metrics,
        labels: RequestLabels,
        kind: RequestKind,
        long_running: bool,
    ) -> Self {
        metrics.began(&labels, kind, long_running);
        Self {
            metrics: metrics.clone(),
            labels,
            kind,
            began: Instant::now(),
            long_running,
            code: 0,
            place: Place::default(),
            audit: Record::none(),
        }
    }

    /// Ties what is held to the body of the answer.
    pub(super) fn until_sent(self, body: Body) -> Body {
        Tracked { body, _held: self }.boxed_unsync()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let took = self.began.elapsed();
        self.metrics
            .ended(&self.labels, self.kind, self.long_running, self.code, took);
    }
}

struct Tracked {
    body: Body,
    _held: Held,
}

impl HttpBody for Tracked {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
