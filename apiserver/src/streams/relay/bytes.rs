//! The upstream side of a relay where it is bytes: a connection to a pod, or a channel inside this
//! process.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use bytes::{BufMut as _, Bytes, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _},
    sync::{oneshot, watch},
};
use tokio_util::io::poll_read_buf;

use super::{
    leg::{FIRST_READ, READ_AHEAD},
    liveness::{Liveness, Pace, Rule, Verdict},
    outbox::Outbox,
};
use crate::streams::wire::{Exit, Size};

/// What an upstream in this process has beside its bytes, when it is a terminal.
#[derive(Debug)]
pub struct Terminal {
    /// The newest size.
    pub sizes: watch::Sender<Option<Size>>,
    /// How the command ended; looked at once its bytes have.
    pub exit: oneshot::Receiver<Exit>,
}

/// Whether more will be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writing {
    Open,
    /// Nothing more comes; what is queued goes first.
    Ending,
    Ended,
}

/// A connection that carries bytes.
#[derive(Debug)]
pub(super) struct ByteLeg<IO> {
    io: IO,
    input: BytesMut,
    read_size: usize,
    out: Outbox,
    writing: Writing,
    terminal: Option<Terminal>,
    liveness: Liveness,
}

impl<IO: AsyncRead + AsyncWrite + Unpin> ByteLeg<IO> {
    pub(super) fn new(io: IO, terminal: Option<Terminal>, pace: Pace) -> Self {
        Self {
            io,
            input: BytesMut::new(),
            read_size: FIRST_READ,
            out: Outbox::default(),
            writing: Writing::Open,
            terminal,
            liveness: Liveness::new(Rule::ProgressOnly, pace.no_progress),
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.out.has_room()
    }

    /// Whether everything that was given is on its way.
    pub(super) fn is_drained(&self) -> bool {
        self.out.is_empty() && self.writing != Writing::Ending
    }

    /// What there is; nothing is the end.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        let size = self.read_size;
        self.input.reserve(size);
        let mut room = (&mut self.input).limit(size);
        let read = ready!(poll_read_buf(Pin::new(&mut self.io), cx, &mut room))?;
        if read == size {
            self.read_size = (size * 4).min(READ_AHEAD);
        }
        Poll::Ready(Ok(self.input.split().freeze()))
    }

    /// Whether it is a terminal.
    pub(super) fn is_terminal(&self) -> bool {
        self.terminal.is_some()
    }

    /// How the command on a terminal ended, after its bytes have; `None`: nobody will say.
    pub(super) fn poll_exit(&mut self, cx: &mut Context<'_>) -> Poll<Option<Exit>> {
        match &mut self.terminal {
            None => Poll::Ready(None),
            Some(terminal) => {
                let exit = ready!(Pin::new(&mut terminal.exit).poll(cx));
                Poll::Ready(exit.ok())
            }
        }
    }

    pub(super) fn data(&mut self, bytes: &[u8], now: Instant) {
        if self.writing == Writing::Open {
            self.out.bytes.extend_from_slice(bytes);
            self.liveness.queued(now);
        }
    }

    pub(super) fn resize(&self, size: Size) {
        if let Some(terminal) = &self.terminal {
            terminal.sizes.send_replace(Some(size));
        }
    }

    /// Nothing more will be given: the other side reads an end once it has read all.
    pub(super) fn finish(&mut self) {
        if self.writing == Writing::Open {
            self.writing = Writing::Ending;
        }
    }

    /// Writes what waits; tells whether anything moved.
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>, now: Instant) -> io::Result<bool> {
        let (io, liveness) = (&mut self.io, &mut self.liveness);
        let mut moved = self.out.poll_write(io, liveness, cx, now)?;
        if self.out.is_empty()
            && self.writing == Writing::Ending
            && Pin::new(&mut self.io).poll_shutdown(cx)?.is_ready()
        {
            self.writing = Writing::Ended;
            moved = true;
        }
        Ok(moved)
    }

    pub(super) fn tick(&mut self, now: Instant) -> Verdict {
        self.out.shrink();
        if self.input.is_empty() {
            self.input = BytesMut::new();
            self.read_size = FIRST_READ;
        }
        self.liveness.tick(now)
    }

    /// Writes the rest and ends. Who serves a terminal is waited for: the next holder must not meet
    /// it. If that waits for a guest that reads nothing, it is told by the end of its sizes that nobody
    /// waits for it any more.
    pub(super) async fn close(&mut self, limit: Duration) {
        let is_terminal = self.is_terminal();
        let polite = if is_terminal { limit / 2 } else { limit };
        let left = tokio::time::timeout(polite, self.leave()).await.is_ok();
        if is_terminal && !left {
            self.terminal = None;
            let _ = tokio::time::timeout(limit - polite, self.drain()).await;
        }
    }

    async fn leave(&mut self) -> io::Result<()> {
        self.out.flush(&mut self.io).await?;
        self.io.shutdown().await?;
        match self.is_terminal() {
            true => self.drain().await,
            false => Ok(()),
        }
    }

    async fn drain(&mut self) -> io::Result<()> {
        while self.read_and_drop().await? > 0 {}
        Ok(())
    }

    async fn read_and_drop(&mut self) -> io::Result<usize> {
        let read = std::future::poll_fn(|cx| self.poll_read(cx)).await?;
        Ok(read.len())
    }
}
