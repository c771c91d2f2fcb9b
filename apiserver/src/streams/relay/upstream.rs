//! The upstream side of a relay, whatever it is made of.

use std::{
    io,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use tokio::io::{AsyncRead, AsyncWrite};

use super::{
    bytes::{ByteLeg, Terminal},
    leg::Leg,
    liveness::{Pace, Verdict},
};
use crate::streams::{
    frame::Event,
    wire::{Input, Output, UpstreamWire},
};

/// A connection of any kind.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// An upstream that is connected.
pub enum Upstream<IO = Box<dyn Connection>> {
    /// A WebSocket whose handshake is done, and what its messages mean.
    Frames(IO, UpstreamWire),
    /// Bytes, and a terminal's size and exit if it is one. Its end is an end of file.
    Bytes(IO, Option<Terminal>),
}

impl Upstream {
    /// A WebSocket.
    pub fn frames(io: impl Connection + 'static, wire: UpstreamWire) -> Self {
        Self::Frames(Box::new(io), wire)
    }

    /// One that is gone: nothing is left but to tell the client.
    pub fn gone() -> Self {
        Self::bytes(tokio::io::empty(), None)
    }

    /// Says goodbye without having been relayed, and waits until it is gone, for a while.
    pub async fn end(self, pace: Pace) {
        UpstreamLeg::new(self, pace).close(pace.goodbye).await;
    }

    /// A connection, or one end of an in-process pipe.
    pub fn bytes(io: impl Connection + 'static, terminal: Option<Terminal>) -> Self {
        Self::Bytes(Box::new(io), terminal)
    }
}

/// What an upstream says.
#[derive(Debug)]
pub(super) enum Told {
    Output(Output),
    /// Nothing that matters to the client.
    Nothing,
    /// The end, with its words if it had any.
    Closed(Option<(u16, String)>),
    /// The end of a connection that has no other way to end, in both directions.
    Finished,
}

/// What became of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Given {
    Taken,
    /// It was the end of data, which this upstream can only be told by ending.
    EndsBoth,
}

#[derive(Debug)]
pub(super) enum UpstreamLeg<IO> {
    Frames(Leg<IO>, UpstreamWire),
    Bytes(ByteLeg<IO>),
}

impl<IO: AsyncRead + AsyncWrite + Unpin> UpstreamLeg<IO> {
    pub(super) fn new(upstream: Upstream<IO>, pace: Pace) -> Self {
        match upstream {
            Upstream::Frames(io, wire) => {
                Self::Frames(Leg::upstream(io, pace, wire.wants_pongs()), wire)
            }
            Upstream::Bytes(io, terminal) => Self::Bytes(ByteLeg::new(io, terminal, pace)),
        }
    }

    pub(super) fn has_room(&self) -> bool {
        match self {
            Self::Frames(leg, _) => leg.has_room(),
            Self::Bytes(leg) => leg.has_room(),
        }
    }

    pub(super) fn is_drained(&self) -> bool {
        match self {
            Self::Frames(leg, _) => leg.is_drained(),
            Self::Bytes(leg) => leg.is_drained(),
        }
    }

    /// What it says next; an error is what broke, in inside words.
    pub(super) fn poll_told(&mut self, cx: &mut Context<'_>) -> Poll<Result<Told, String>> {
        match self {
            Self::Frames(leg, wire) => poll_frames(leg, wire, cx),
            Self::Bytes(leg) => {
                let bytes = ready!(leg.poll_read(cx)).map_err(|e| e.to_string())?;
                if !bytes.is_empty() {
                    return Poll::Ready(Ok(Told::Output(Output::Data(bytes))));
                }
                let exit = ready!(leg.poll_exit(cx));
                Poll::Ready(Ok(match exit {
                    Some(exit) => Told::Output(Output::Exit(exit)),
                    // A terminal says how it ended, unless what it was on is gone.
                    None if leg.is_terminal() => Told::Closed(None),
                    None => Told::Output(Output::Eof),
                }))
            }
        }
    }

    pub(super) fn give(&mut self, input: &Input, now: Instant) -> io::Result<Given> {
        match (self, input) {
            (Self::Frames(_, wire), Input::Eof) if wire.ends_both() => return Ok(Given::EndsBoth),
            (Self::Frames(leg, wire), input) => {
                if let Some((prefix, bytes)) = wire.write(input) {
                    leg.data(&[prefix, &bytes], now)?;
                }
            }
            (Self::Bytes(leg), Input::Data(bytes)) => leg.data(bytes, now),
            (Self::Bytes(leg), Input::Resize(size)) => leg.resize(*size),
            (Self::Bytes(leg), Input::Eof) => leg.finish(),
        }
        Ok(Given::Taken)
    }

    /// What to say once more after the end of input.
    pub(super) fn end_again(&self) -> Option<Input> {
        match self {
            Self::Frames(_, wire) => wire.end_again(),
            Self::Bytes(_) => None,
        }
    }

    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>, now: Instant) -> io::Result<bool> {
        match self {
            Self::Frames(leg, _) => leg.poll_write(cx, now),
            Self::Bytes(leg) => leg.poll_write(cx, now),
        }
    }

    pub(super) fn tick(&mut self, now: Instant) -> io::Result<Verdict> {
        match self {
            Self::Frames(leg, _) => leg.tick(now),
            Self::Bytes(leg) => Ok(leg.tick(now)),
        }
    }

    /// The client takes nothing, so that this side is not read.
    pub(super) fn not_listening(&mut self) {
        if let Self::Frames(leg, _) = self {
            leg.liveness.not_listening();
        }
    }

    /// Says goodbye and waits until it is gone, `limit` at most.
    pub(super) async fn close(&mut self, limit: Duration) {
        match self {
            Self::Frames(leg, _) => leg.close(1000, "", limit).await,
            Self::Bytes(leg) => leg.close(limit).await,
        }
    }
}

fn poll_frames<IO: AsyncRead + AsyncWrite + Unpin>(
    leg: &mut Leg<IO>,
    wire: &mut UpstreamWire,
    cx: &mut Context<'_>,
) -> Poll<Result<Told, String>> {
    loop {
        let event = leg.event().map_err(|violation| violation.to_string())?;
        let told = match event {
            Some(Event::Piece(piece)) => wire.read(piece).map_or(Told::Nothing, Told::Output),
            Some(Event::Ping(payload)) => {
                leg.answer(payload);
                Told::Nothing
            }
            Some(Event::Pong) => {
                leg.liveness.pong();
                Told::Nothing
            }
            Some(Event::Close(said)) if wire.is_ordinary_end(Some(&said)) => Told::Finished,
            Some(Event::Close(said)) => Told::Closed(said),
            None => match ready!(leg.poll_fill(cx)).map_err(|e| e.to_string())? {
                0 if wire.is_ordinary_end(None) => Told::Finished,
                0 => Told::Closed(None),
                _ => continue,
            },
        };
        return Poll::Ready(Ok(told));
    }
}
