//! A connection that can be cut from outside.
//!
//! The SSH library runs a task of its own over the connection, and waits there for a peer that takes
//! no bytes as long as it likes. Cutting makes every read and write fail, so that the task ends.

use std::{
    future::Future as _,
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

type Waiting = Pin<Box<WaitForCancellationFutureOwned>>;

/// A connection with a knife at it.
pub(super) struct Cuttable<IO> {
    io: IO,
    /// One each: the two halves may be polled by different tasks.
    reading: Waiting,
    writing: Waiting,
}

impl<IO> Cuttable<IO> {
    /// Cut when `knife` is cancelled.
    pub(super) fn new(io: IO, knife: &CancellationToken) -> Self {
        let waiting = || Box::pin(knife.clone().cancelled_owned());
        Self {
            io,
            reading: waiting(),
            writing: waiting(),
        }
    }
}

fn check(waiting: &mut Waiting, cx: &mut Context<'_>) -> io::Result<()> {
    match waiting.as_mut().poll(cx) {
        Poll::Ready(()) => Err(io::ErrorKind::ConnectionAborted.into()),
        Poll::Pending => Ok(()),
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Cuttable<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        check(&mut self.reading, cx)?;
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Cuttable<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        check(&mut self.writing, cx)?;
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        check(&mut self.writing, cx)?;
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        check(&mut self.writing, cx)?;
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    #[tokio::test]
    async fn a_cut_connection_fails_what_waits_on_it() {
        let (ours, _theirs) = duplex(1);
        let knife = CancellationToken::new();
        let (mut reading, mut writing) = tokio::io::split(Cuttable::new(ours, &knife));
        let read = tokio::spawn(async move { reading.read_u8().await });
        let write = tokio::spawn(async move { writing.write_all(b"more than fits").await });
        tokio::task::yield_now().await;
        knife.cancel();
        let aborted = Some(io::ErrorKind::ConnectionAborted);
        assert_eq!(read.await.unwrap().err().map(|e| e.kind()), aborted);
        assert_eq!(write.await.unwrap().err().map(|e| e.kind()), aborted);
    }
}
