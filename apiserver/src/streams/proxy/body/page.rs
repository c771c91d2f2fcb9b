//! A page whose links get the prefix while it passes.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use apiserver_generic::call::BodyError;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame};

use super::Answer;
use crate::streams::proxy::html::Rewriter;

/// The body of a page.
pub(in crate::streams::proxy) struct Page {
    answer: Answer,
    rewriter: Rewriter,
    /// What comes after the page's last bytes.
    last: Option<Option<Frame<Bytes>>>,
}

impl Page {
    /// Rewrites an answer.
    pub(in crate::streams::proxy) fn new(answer: Answer, rewriter: Rewriter) -> Self {
        Self {
            answer,
            rewriter,
            last: None,
        }
    }

    fn finish(&mut self, trailers: Option<Frame<Bytes>>) -> Option<Frame<Bytes>> {
        let mut rest = Vec::new();
        self.rewriter.finish(&mut rest);
        if rest.is_empty() {
            self.last = Some(None);
            return trailers;
        }
        self.last = Some(trailers);
        Some(Frame::data(rest.into()))
    }
}

impl HttpBody for Page {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        if let Some(last) = &mut this.last {
            return Poll::Ready(last.take().map(Ok));
        }
        loop {
            let frame = match ready!(Pin::new(&mut this.answer).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(this.finish(None).map(Ok)),
            };
            let data = match frame.into_data() {
                Ok(data) => data,
                Err(trailers) => return Poll::Ready(this.finish(Some(trailers)).map(Ok)),
            };
            let mut out = Vec::new();
            this.rewriter.feed(&data, &mut out);
            if !out.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(out.into()))));
            }
        }
    }
}
