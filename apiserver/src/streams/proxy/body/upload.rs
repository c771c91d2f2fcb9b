//! A request's body on its way to the guest.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use apiserver_generic::{Body, call::BodyError};
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Sleep, sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::streams::proxy::{
    hops, request,
    shared::{Shared, now},
};

/// How long a guest is waited for that was asked whether it wants the body (RFC 9110 §10.1.1).
const PATIENCE: Duration = Duration::from_secs(1);

/// Waits for the guest's `100 Continue`, so that a body which it refuses is never asked of the client.
pub(in crate::streams::proxy) struct Leave {
    given: Pin<Box<WaitForCancellationFutureOwned>>,
    patience: Pin<Box<Sleep>>,
}

impl Leave {
    /// Given when the token is cancelled, or after a second without an answer.
    pub(in crate::streams::proxy) fn new(given: &CancellationToken) -> Self {
        Self {
            given: Box::pin(given.clone().cancelled_owned()),
            patience: Box::pin(sleep(PATIENCE)),
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self.given.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => self.patience.as_mut().poll(cx),
        }
    }
}

/// Counts what passes.
pub(in crate::streams::proxy) struct Upload {
    body: Body,
    shared: Arc<Shared>,
    leave: Option<Leave>,
}

impl Upload {
    /// Of this exchange, once there is leave.
    pub(in crate::streams::proxy) fn new(
        body: Body,
        shared: Arc<Shared>,
        leave: Option<Leave>,
    ) -> Self {
        Self {
            body,
            shared,
            leave,
        }
    }
}

impl HttpBody for Upload {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        if let Some(leave) = &mut this.leave {
            ready!(leave.poll(cx));
            this.leave = None;
        }
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame {
            let length = frame.data_ref().map_or(0, Bytes::len);
            this.shared.traffic.typed(length);
            this.shared.traffic.touch(now());
        }
        let passed = |frame| hops::trailers(frame, request::is_private);
        Poll::Ready(frame.map(|frame| frame.map(passed)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
