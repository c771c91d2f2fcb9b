//! One side of a relay: a connection, what was read and not taken, what waits to be written.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use bytes::{BufMut as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio_util::io::poll_read_buf;

use super::{
    liveness::{Liveness, Pace, Rule, Verdict},
    outbox::{Outbox, QUEUE},
};
use crate::streams::frame::{
    Decoder, Event, Masks, Opcode, Passing, Peer, Violation, encode, encode_close,
};

/// The most that is read ahead, so that both buffers of a direction stay within 64 KiB.
pub(super) const READ_AHEAD: usize = 16 * 1024;
/// Where reading begins: an idle stream holds no more than this.
pub(super) const FIRST_READ: usize = 1024;

/// A WebSocket connection by its bytes.
#[derive(Debug)]
pub(super) struct Leg<IO> {
    io: IO,
    decoder: Decoder,
    read_size: usize,
    out: Outbox,
    /// The newest ping that was not answered yet; older ones need no answer (RFC 6455 §5.5.3).
    pong: Option<Bytes>,
    /// Only clients mask, and towards upstreams we are one.
    masks: Option<Masks>,
    /// Whether the peer gets pongs that it did not ask for.
    pongs: bool,
    /// Whether the peer is alive.
    pub(super) liveness: Liveness,
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Leg<IO> {
    /// Towards a client, of whom `early` was read already.
    pub(super) fn client(io: IO, early: BytesMut, pace: Pace) -> Self {
        let liveness = Liveness::new(Rule::NothingQueued, pace.no_progress);
        let mut leg = Self::new(io, Peer::Client, None, liveness);
        *leg.decoder.buffer() = early;
        leg
    }

    /// Towards an upstream, which may want pongs that it did not ask for.
    pub(super) fn upstream(io: IO, pace: Pace, pongs: bool) -> Self {
        let liveness = Liveness::new(Rule::NothingUnproved, pace.no_progress);
        let mut leg = Self::new(io, Peer::Server, Some(Masks::default()), liveness);
        leg.pongs = pongs;
        leg
    }

    fn new(io: IO, peer: Peer, masks: Option<Masks>, liveness: Liveness) -> Self {
        Self {
            io,
            decoder: Decoder::new(peer),
            read_size: FIRST_READ,
            out: Outbox::default(),
            pong: None,
            masks,
            pongs: false,
            liveness,
        }
    }

    /// Whether more may be queued.
    pub(super) fn has_room(&self) -> bool {
        self.out.has_room()
    }

    /// Whether everything that was queued is on its way.
    pub(super) fn is_drained(&self) -> bool {
        self.out.is_empty()
    }

    /// The next event of what was read.
    pub(super) fn event(&mut self) -> Result<Option<Event>, Violation> {
        self.decoder.event()
    }

    /// Moves data that is in hand to the other side as it is; tells how many bytes of payload.
    pub(super) fn pass<O>(&mut self, to: &mut Leg<O>, passing: Passing, now: Instant) -> usize {
        let moved = self.decoder.pass(&mut to.out.bytes, QUEUE, passing);
        if moved > 0 {
            to.liveness.queued(now);
        }
        moved
    }

    /// Reads what there is; 0 is the end. More is read at once the more there was.
    pub(super) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let buffer = self.decoder.buffer();
        let size = self.read_size.saturating_sub(buffer.len()).max(FIRST_READ);
        buffer.reserve(size);
        let mut room = buffer.limit(size);
        let read = ready!(poll_read_buf(Pin::new(&mut self.io), cx, &mut room))?;
        self.read_size = match read {
            n if n == size => (self.read_size * 4).min(READ_AHEAD),
            _ => self.read_size,
        };
        if read > 0 {
            self.liveness.heard();
        }
        Poll::Ready(Ok(read))
    }

    /// Writes what waits; tells whether anything moved.
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>, now: Instant) -> io::Result<bool> {
        if let Some(ping) = self.has_room().then(|| self.pong.take()).flatten() {
            self.frame(Opcode::Pong, &[&ping])?;
        }
        let (io, liveness) = (&mut self.io, &mut self.liveness);
        self.out.poll_write(io, liveness, cx, now)
    }

    /// Queues a data message.
    pub(super) fn data(&mut self, parts: &[&[u8]], now: Instant) -> io::Result<()> {
        self.frame(Opcode::Binary, parts)?;
        self.liveness.queued(now);
        Ok(())
    }

    /// Queues a message for people or programs beside the data.
    pub(super) fn text(&mut self, text: &str, now: Instant) -> io::Result<()> {
        self.frame(Opcode::Text, &[text.as_bytes()])?;
        self.liveness.queued(now);
        Ok(())
    }

    /// Answers a ping as soon as there is room.
    pub(super) fn answer(&mut self, ping: Bytes) {
        self.pong = Some(ping);
    }

    /// Now and then: pings, judges, and lets go of buffers that nobody needs.
    pub(super) fn tick(&mut self, now: Instant) -> io::Result<Verdict> {
        let verdict = self.liveness.tick(now);
        if verdict == Verdict::Ping {
            self.frame(Opcode::Ping, &[])?;
        }
        if self.pongs {
            self.frame(Opcode::Pong, &[])?;
        }
        if self.decoder.buffer().is_empty() {
            *self.decoder.buffer() = BytesMut::new();
            self.read_size = FIRST_READ;
        }
        self.out.shrink();
        Ok(verdict)
    }

    /// Says goodbye and waits, at most `limit`, until the peer has said so too or is gone.
    pub(super) async fn close(&mut self, code: u16, reason: &str, limit: Duration) {
        if self.farewell(code, reason).is_err() {
            return;
        }
        let goodbye = async {
            self.flush().await?;
            self.drain().await
        };
        let _ = tokio::time::timeout(limit, goodbye).await;
        let _ = tokio::time::timeout(limit, self.io.shutdown()).await;
    }

    /// Answers the peer's close and ends.
    pub(super) async fn echo(&mut self, code: u16, reason: &str, limit: Duration) {
        if self.farewell(code, reason).is_err() {
            return;
        }
        let _ = tokio::time::timeout(limit, self.flush()).await;
        let _ = tokio::time::timeout(limit, self.io.shutdown()).await;
    }

    /// Queues the last frames.
    fn farewell(&mut self, code: u16, reason: &str) -> io::Result<()> {
        if let Some(ping) = self.pong.take() {
            self.frame(Opcode::Pong, &[&ping])?;
        }
        let mask = self.mask()?;
        encode_close(&mut self.out.bytes, mask, code, reason);
        Ok(())
    }

    async fn flush(&mut self) -> io::Result<()> {
        self.out.flush(&mut self.io).await
    }

    /// Reads and drops until the peer's close, its end, or nonsense.
    async fn drain(&mut self) -> io::Result<()> {
        loop {
            match self.decoder.event() {
                Ok(Some(Event::Close(_))) | Err(_) => return Ok(()),
                Ok(Some(_)) => {}
                Ok(None) => {
                    if std::future::poll_fn(|cx| self.poll_fill(cx)).await? == 0 {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn frame(&mut self, opcode: Opcode, parts: &[&[u8]]) -> io::Result<()> {
        let mask = self.mask()?;
        encode(&mut self.out.bytes, opcode, mask, parts);
        Ok(())
    }

    fn mask(&mut self) -> io::Result<Option<[u8; 4]>> {
        self.masks.as_mut().map(Masks::fresh).transpose()
    }
}
