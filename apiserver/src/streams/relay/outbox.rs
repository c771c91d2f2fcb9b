//! What waits to be written to one side, and how it goes out.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Instant,
};

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use super::liveness::Liveness;

/// The most that waits before the other side is no longer read.
pub(super) const QUEUE: usize = 48 * 1024;

/// A queue of bytes.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// Frames, or bytes as they are.
    pub(super) bytes: BytesMut,
    unflushed: bool,
}

impl Outbox {
    /// Whether more may be queued.
    pub(super) fn has_room(&self) -> bool {
        self.bytes.len() < QUEUE
    }

    /// Whether everything is on its way.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && !self.unflushed
    }

    /// Writes what the connection takes; tells whether anything moved.
    pub(super) fn poll_write<IO: AsyncWrite + Unpin>(
        &mut self,
        io: &mut IO,
        liveness: &mut Liveness,
        cx: &mut Context<'_>,
        now: Instant,
    ) -> io::Result<bool> {
        let mut moved = false;
        while !self.bytes.is_empty() {
            match Pin::new(&mut *io).poll_write(cx, &self.bytes) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(n)) => {
                    self.bytes.advance(n);
                    self.unflushed = true;
                    moved = true;
                    liveness.wrote(now, !self.bytes.is_empty());
                }
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => return Ok(moved),
            }
        }
        if self.unflushed && Pin::new(io).poll_flush(cx)?.is_ready() {
            self.unflushed = false;
        }
        Ok(moved)
    }

    /// Writes all of it.
    pub(super) async fn flush<IO: AsyncWrite + Unpin>(&mut self, io: &mut IO) -> io::Result<()> {
        io.write_all_buf(&mut self.bytes).await?;
        io.flush().await?;
        self.unflushed = false;
        Ok(())
    }

    /// Lets go of the buffer while nothing is in it.
    pub(super) fn shrink(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = BytesMut::new();
        }
    }
}
