//! An upstream of any kind as a connection that lives whether or not it is read: frames are unwrapped
//! by a task of its own, which sends signs of life, hears them, and says goodbye.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Instant,
};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, duplex},
    time::{Interval, MissedTickBehavior, interval_at},
};
use tokio_util::task::TaskTracker;

use super::{
    bytes::ByteLeg,
    liveness::{Pace, Verdict},
    upstream::{Connection, Given, Told, Upstream, UpstreamLeg},
};
use crate::streams::wire::{Exit, Input, Output};

/// Bytes under way in each direction between the task and whoever uses the connection.
const PIPE: usize = 16 * 1024;

impl Upstream {
    /// As a connection. An upstream that breaks is a read that fails, and never a clean end; dropping
    /// the connection ends the upstream in order.
    pub fn into_kept_connection(self, pace: Pace, tasks: &TaskTracker) -> Box<dyn Connection> {
        let upstream = match self {
            Self::Bytes(io, None) => return io,
            other => UpstreamLeg::new(other, pace),
        };
        let (near, far) = duplex(PIPE);
        let broken = Arc::default();
        let pump = Pump {
            upstream,
            user: ByteLeg::new(far, None, pace),
            ticks: ticks(pace),
            output_over: false,
        };
        tasks.spawn(pump.run(pace, Arc::clone(&broken)));
        Box::new(Near { io: near, broken })
    }
}

fn ticks(pace: Pace) -> Interval {
    let first = tokio::time::Instant::now() + pace.ping_every;
    let mut ticks = interval_at(first, pace.ping_every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// What broke, in words.
type Broken = Arc<Mutex<Option<String>>>;

/// Why a pump stops.
enum Stop {
    /// One of the sides has ended.
    Over,
    /// The upstream broke.
    Broken(String),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Broken(error.to_string())
    }
}

struct Pump {
    upstream: UpstreamLeg<Box<dyn Connection>>,
    user: ByteLeg<DuplexStream>,
    ticks: Interval,
    /// The upstream's data has ended, and the user reads the rest.
    output_over: bool,
}

impl Pump {
    async fn run(mut self, pace: Pace, broken: Broken) {
        let stop = poll_fn(|cx| match self.turn(cx) {
            Ok(()) => Poll::Pending,
            Err(stop) => Poll::Ready(stop),
        });
        if let Stop::Broken(words) = stop.await {
            *broken.lock() = Some(words);
        }
        // The user reads an end, or what broke, before the goodbye is over.
        drop(self.user);
        self.upstream.close(pace.goodbye).await;
    }

    /// Moves what can be moved, until nothing moves; every source has the waker by then.
    fn turn(&mut self, cx: &mut Context<'_>) -> Result<(), Stop> {
        let now = now();
        while self.ticks.poll_tick(cx).is_ready() {
            match self.upstream.tick(now)? {
                Verdict::Dead => return Err(Stop::Broken("it answers no pings".into())),
                Verdict::Stalled => return Err(Stop::Broken("it takes no data".into())),
                Verdict::Ping | Verdict::Wait => {}
            }
        }
        loop {
            let mut moved = self.push_input(cx, now)?;
            moved |= self.pull_output(cx, now)?;
            moved |= self.upstream.poll_write(cx, now)?;
            // A user who is gone is noticed by reading.
            moved |= self.user.poll_write(cx, now).unwrap_or(false);
            if self.output_over && self.user.is_drained() {
                return Err(Stop::Over);
            }
            if !moved {
                return Ok(());
            }
        }
    }

    fn push_input(&mut self, cx: &mut Context<'_>, now: Instant) -> Result<bool, Stop> {
        let mut moved = false;
        while self.upstream.has_room() {
            let bytes = match self.user.poll_read(cx) {
                Poll::Pending => return Ok(moved),
                Poll::Ready(Err(_)) => return Err(Stop::Over),
                Poll::Ready(Ok(bytes)) if bytes.is_empty() => return Err(Stop::Over),
                Poll::Ready(Ok(bytes)) => bytes,
            };
            moved = true;
            if self.upstream.give(&Input::Data(bytes), now)? == Given::EndsBoth {
                return Err(Stop::Over);
            }
        }
        Ok(moved)
    }

    fn pull_output(&mut self, cx: &mut Context<'_>, now: Instant) -> Result<bool, Stop> {
        let mut moved = false;
        while !self.output_over {
            if !self.user.has_room() {
                self.upstream.not_listening();
                return Ok(moved);
            }
            let told = match self.upstream.poll_told(cx) {
                Poll::Pending => return Ok(moved),
                Poll::Ready(told) => told.map_err(Stop::Broken)?,
            };
            moved = true;
            match told {
                Told::Nothing => {}
                Told::Output(Output::Data(bytes) | Output::Errors(bytes)) => {
                    self.user.data(&bytes, now);
                }
                Told::Output(Output::Exit(Exit::Failed(words))) => {
                    return Err(Stop::Broken(words));
                }
                Told::Output(Output::Eof | Output::Exit(_)) | Told::Closed(_) | Told::Finished => {
                    self.output_over = true;
                    self.user.finish();
                }
            }
        }
        Ok(moved)
    }
}

/// The end for whoever uses it.
struct Near {
    io: DuplexStream,
    broken: Broken,
}

impl AsyncRead for Near {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buffer))?;
        let is_end = buffer.filled().len() == before && buffer.remaining() > 0;
        match is_end.then(|| self.broken.lock().clone()).flatten() {
            Some(words) => Poll::Ready(Err(io::Error::other(words))),
            None => Poll::Ready(Ok(())),
        }
    }
}

impl AsyncWrite for Near {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::streams::{
        frame::{Decoder, Event, Opcode, Peer, encode},
        wire::UpstreamWire,
    };

    fn kept(wire: UpstreamWire) -> (Box<dyn Connection>, DuplexStream, TaskTracker) {
        let (ours, theirs) = duplex(64 * 1024);
        let tasks = TaskTracker::new();
        let kept = Upstream::frames(ours, wire).into_kept_connection(Pace::default(), &tasks);
        (kept, theirs, tasks)
    }

    async fn say(peer: &mut DuplexStream, opcode: Opcode, payload: &[u8]) {
        let mut bytes = BytesMut::new();
        encode(&mut bytes, opcode, None, &[payload]);
        peer.write_all(&bytes).await.unwrap();
    }

    async fn event(peer: &mut DuplexStream, decoder: &mut Decoder) -> Option<Event> {
        loop {
            if let Some(event) = decoder.event().unwrap() {
                return Some(event);
            }
            if peer.read_buf(decoder.buffer()).await.unwrap() == 0 {
                return None;
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_upstream_gets_signs_of_life_while_nobody_reads() {
        let (mut kept, mut peer, _tasks) = kept(UpstreamWire::GuestPort);
        let mut decoder = Decoder::new(Peer::Client);
        kept.write_all(b"hello").await.unwrap();
        let first = event(&mut peer, &mut decoder).await;
        assert!(matches!(first, Some(Event::Piece(piece)) if &piece.payload[..] == b"hello"));
        for _ in 0..3 {
            loop {
                match event(&mut peer, &mut decoder).await {
                    Some(Event::Pong) => break,
                    Some(Event::Ping(payload)) => say(&mut peer, Opcode::Pong, &payload).await,
                    other => panic!("{other:?}"),
                }
            }
        }
        say(&mut peer, Opcode::Binary, b"late").await;
        let mut read = [0; 4];
        kept.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"late");
    }

    #[tokio::test]
    async fn dropping_it_says_goodbye() {
        let (kept, mut peer, tasks) = kept(UpstreamWire::GuestPort);
        drop(kept);
        let mut decoder = Decoder::new(Peer::Client);
        let end = event(&mut peer, &mut decoder).await;
        assert!(matches!(end, Some(Event::Close(_))), "{end:?}");
        drop(peer);
        tasks.close();
        tasks.wait().await;
    }

    #[tokio::test]
    async fn an_end_is_an_end_and_what_broke_is_not() {
        let (mut kept, mut peer, _tasks) = self::kept(UpstreamWire::GuestPort);
        say(&mut peer, Opcode::Binary, b"x").await;
        say(&mut peer, Opcode::Close, &1000u16.to_be_bytes()).await;
        let mut all = Vec::new();
        kept.read_to_end(&mut all).await.unwrap();
        assert_eq!(all, b"x");
        let (mut kept, mut peer, _tasks) = self::kept(UpstreamWire::pod_port());
        for message in [
            &b"\x00\x50\x1f"[..],
            b"\x01\x50\x1f",
            b"\x01connect: connection refused",
        ] {
            say(&mut peer, Opcode::Binary, message).await;
        }
        let error = kept.read_to_end(&mut all).await.unwrap_err();
        assert_eq!(error.to_string(), "connection refused");
    }
}
