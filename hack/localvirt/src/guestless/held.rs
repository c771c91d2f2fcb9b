//! A stream that holds a device, and lets go of it at the first sign of its end.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

use crate::launcher::session::Session;

/// The session of a stream, which ends with either end of the stream, whichever goes first: the player leaves when it is
/// cut, so that a reader that stalls keeps nobody from the device.
#[derive(Clone)]
pub(super) struct Hold(Arc<Mutex<Option<Session>>>);

/// The reader's end of the stream. Dropping it frees the device before anything else happens.
pub(super) struct Held {
    io: DuplexStream,
    hold: Hold,
}

impl Hold {
    pub(super) fn new(session: Session) -> Self {
        Self(Arc::new(Mutex::new(Some(session))))
    }

    /// The device is free.
    pub(super) fn release(&self) {
        self.0.lock().take();
    }
}

impl Held {
    pub(super) fn new(io: DuplexStream, hold: Hold) -> Self {
        Self { io, hold }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.hold.release();
    }
}

impl AsyncRead for Held {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Held {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
