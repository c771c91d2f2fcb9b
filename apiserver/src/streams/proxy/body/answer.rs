//! An answer's body on its way to the client.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use apiserver_generic::call::BodyError;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::streams::{
    proxy::{
        hops, response,
        shared::{Hold, now},
    },
    relay::End,
};

/// Counts what passes, and breaks off when the exchange is told to end: an answer that is cut must not
/// look like one that is whole. Its end is the exchange's.
pub(in crate::streams::proxy) struct Answer {
    body: Incoming,
    hold: Hold,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Answer {
    /// Of the exchange that is held.
    pub(in crate::streams::proxy) fn new(body: Incoming, hold: Hold) -> Self {
        let cut = Box::pin(hold.shared.cutting().clone().cancelled_owned());
        Self { body, hold, cut }
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        let shared = &this.hold.shared;
        shared.came();
        if this.cut.as_mut().poll(cx).is_ready() {
            let reason = shared.reason().map(|reason| reason.text());
            return Poll::Ready(Some(Err(reason.unwrap_or_default().into())));
        }
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        let frame = match frame {
            None => {
                shared.ended(End::Finished);
                return Poll::Ready(None);
            }
            Some(Err(error)) => {
                shared.ended(End::UpstreamLost(error.to_string()));
                return Poll::Ready(Some(Err(error.into())));
            }
            Some(Ok(frame)) => frame,
        };
        shared
            .traffic
            .printed(frame.data_ref().map_or(0, Bytes::len));
        shared.traffic.touch(now());
        shared.gave(now());
        let frame = hops::trailers(frame, response::is_for_heads);
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // Whoever sends it does not ask for an end that it knows of.
        if self.body.is_end_stream() {
            self.hold.shared.ended(End::Finished);
        }
    }
}
