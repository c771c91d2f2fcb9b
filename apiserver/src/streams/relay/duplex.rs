//! The relay itself: one task, two legs, no channel between them.
//!
//! A leg is read only while the other has room, so that backpressure reaches whoever writes too
//! fast. Every frame in a queue is whole and short: pings and closes fit between any two of them.

use std::{
    future::poll_fn,
    io,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Interval, MissedTickBehavior, interval_at},
};

use super::{
    leg::Leg,
    liveness::{Pace, Verdict},
    traffic::Traffic,
};
use crate::streams::{
    close::CloseReason,
    frame::Event,
    wire::{ClientWire, Exit, Input, Output, UpstreamWire},
};

/// Why the bytes stopped, before the cause of it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The client said goodbye.
    ClientClosed,
    /// The client's connection broke, or it stopped answering.
    ClientGone,
    /// The client broke the protocol.
    ClientViolation(&'static str),
    /// The client took nothing for ten minutes.
    ClientStalled,
    /// The command ended.
    Exited(Exit),
    /// The upstream said goodbye, with its words.
    UpstreamClosed(Option<(u16, String)>),
    /// The upstream's connection broke, or it stopped answering; inside words.
    UpstreamLost(String),
    /// Nothing passed for the idle time.
    Idle,
}

/// A relay between a client and an upstream.
#[derive(Debug)]
pub struct Relay<C, U> {
    client: Leg<C>,
    upstream: Leg<U>,
    client_wire: ClientWire,
    upstream_wire: UpstreamWire,
    ticks: Interval,
    traffic: Arc<Traffic>,
    limits: Limits,
    /// The client has said that nothing more will be typed.
    input_ended: bool,
}

/// The times that bound a relay.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Pings, stalls and goodbyes.
    pub pace: Pace,
    /// The end of a stream on which nothing passes.
    pub idle_after: Option<Duration>,
}

impl<C, U> Relay<C, U>
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
{
    /// Over two connections whose handshakes are done.
    pub fn new(
        (client, client_wire): (C, ClientWire),
        (upstream, upstream_wire): (U, UpstreamWire),
        traffic: Arc<Traffic>,
        limits: Limits,
    ) -> Self {
        let pace = limits.pace;
        let first = tokio::time::Instant::now() + pace.ping_every;
        let mut ticks = interval_at(first, pace.ping_every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            client: Leg::client(client, pace),
            upstream: Leg::upstream(upstream, pace),
            client_wire,
            upstream_wire,
            ticks,
            traffic,
            limits,
            input_ended: false,
        }
    }

    /// Relays until one side ends.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped: all state is in `self`.
    pub async fn run(&mut self) -> End {
        poll_fn(|cx| self.poll(cx)).await
    }

    /// Ends the upstream's side: says goodbye and waits until it is gone, 2 s at most.
    pub async fn end_upstream(&mut self) {
        let limit = self.limits.pace.goodbye;
        self.upstream.close(1000, "", limit).await;
    }

    /// Ends the client's side with the reason; whatever was printed before goes first.
    pub async fn end_client(mut self, reason: &CloseReason) {
        if !reason.reaches_client() {
            return;
        }
        if let Some(status) = self.client_wire.status(&reason.status()) {
            let _ = self.client.data(&[&status], now());
        }
        let (text, limit) = (reason.text(), self.limits.pace.goodbye);
        match reason {
            CloseReason::ClientClosed => self.client.echo(reason.code(), &text, limit).await,
            _ => self.client.close(reason.code(), &text, limit).await,
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        match self.turn(cx) {
            Ok(()) => Poll::Pending,
            Err(end) => Poll::Ready(end),
        }
    }

    /// Moves what can be moved, until nothing moves. Each source of events has registered the
    /// waker by then: reads that pend, writes that pend, and the clock.
    fn turn(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        let now = now();
        while self.ticks.poll_tick(cx).is_ready() {
            self.tick(now)?;
        }
        loop {
            let mut moved = self.pump_client(cx, now)?;
            moved |= self.pump_upstream(cx, now)?;
            moved |= self.upstream.poll_write(cx, now).map_err(lost)?;
            moved |= self.client.poll_write(cx, now).map_err(gone)?;
            if !moved {
                return Ok(());
            }
        }
    }

    fn tick(&mut self, now: Instant) -> Result<(), End> {
        match self.client.tick(now).map_err(gone)? {
            Verdict::Dead => return Err(End::ClientGone),
            Verdict::Stalled => return Err(End::ClientStalled),
            Verdict::Ping | Verdict::Wait => {}
        }
        match self.upstream.tick(now).map_err(lost)? {
            Verdict::Dead => return Err(End::UpstreamLost("it answers no pings".into())),
            Verdict::Stalled => return Err(End::UpstreamLost("it takes no data".into())),
            Verdict::Ping | Verdict::Wait => {}
        }
        if self.input_ended
            && let Some(input) = self.upstream_wire.end_again()
        {
            self.tell(&input, now)?;
        }
        match self.limits.idle_after {
            Some(limit) if self.traffic.idle(now) >= limit => Err(End::Idle),
            _ => Ok(()),
        }
    }

    fn pump_client(&mut self, cx: &mut Context<'_>, now: Instant) -> Result<bool, End> {
        let mut moved = false;
        while self.upstream.has_room() {
            match self.client.event() {
                Err(violation) => return Err(End::ClientViolation(violation.0)),
                Ok(Some(event)) => {
                    self.client_event(event, now)?;
                    moved = true;
                }
                Ok(None) => match self.client.poll_fill(cx) {
                    Poll::Pending => return Ok(moved),
                    Poll::Ready(Ok(0) | Err(_)) => return Err(End::ClientGone),
                    Poll::Ready(Ok(_)) => {}
                },
            }
        }
        self.client.liveness.not_listening();
        Ok(moved)
    }

    fn client_event(&mut self, event: Event, now: Instant) -> Result<(), End> {
        match event {
            Event::Piece(piece) => {
                let Some(input) = self.client_wire.read(piece) else {
                    return Ok(());
                };
                match &input {
                    Input::Data(bytes) => self.traffic.typed(bytes.len(), now),
                    Input::Eof => self.input_ended = true,
                    Input::Resize(_) => {}
                }
                self.tell(&input, now)
            }
            Event::Ping(payload) => {
                self.client.answer(payload);
                Ok(())
            }
            Event::Pong => {
                self.client.liveness.pong();
                Ok(())
            }
            Event::Close(_) => Err(End::ClientClosed),
        }
    }

    fn tell(&mut self, input: &Input, now: Instant) -> Result<(), End> {
        match self.upstream_wire.write(input) {
            Some((prefix, bytes)) => self.upstream.data(&[prefix, &bytes], now).map_err(lost),
            None => Ok(()),
        }
    }

    fn pump_upstream(&mut self, cx: &mut Context<'_>, now: Instant) -> Result<bool, End> {
        let mut moved = false;
        while self.client.has_room() {
            match self.upstream.event() {
                Err(violation) => return Err(End::UpstreamLost(violation.to_string())),
                Ok(Some(event)) => {
                    self.upstream_event(event, now)?;
                    moved = true;
                }
                Ok(None) => match self.upstream.poll_fill(cx) {
                    Poll::Pending => return Ok(moved),
                    Poll::Ready(Ok(0)) => return Err(End::UpstreamClosed(None)),
                    Poll::Ready(Err(error)) => return Err(lost(error)),
                    Poll::Ready(Ok(_)) => {}
                },
            }
        }
        self.upstream.liveness.not_listening();
        Ok(moved)
    }

    fn upstream_event(&mut self, event: Event, now: Instant) -> Result<(), End> {
        match event {
            Event::Piece(piece) => match self.upstream_wire.read(piece) {
                Some(Output::Exit(exit)) => Err(End::Exited(exit)),
                Some(output) => self.print(&output, now),
                None => Ok(()),
            },
            Event::Ping(payload) => {
                self.upstream.answer(payload);
                Ok(())
            }
            Event::Pong => {
                self.upstream.liveness.pong();
                Ok(())
            }
            Event::Close(said) => Err(End::UpstreamClosed(said)),
        }
    }

    fn print(&mut self, output: &Output, now: Instant) -> Result<(), End> {
        let Some((prefix, bytes)) = self.client_wire.data(output) else {
            return Ok(());
        };
        self.traffic.printed(bytes.len(), now);
        self.client.data(&[prefix, bytes], now).map_err(gone)
    }
}

/// The runtime's clock, which tests may pause.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

fn gone(_: io::Error) -> End {
    End::ClientGone
}

fn lost(error: io::Error) -> End {
    End::UpstreamLost(error.to_string())
}
