//! The relay itself: one task, two legs, no channel between them.
//!
//! A leg is read only while the other has room, so that backpressure reaches whoever writes too
//! fast. Every frame in a queue is whole and short: pings and closes fit between any two of them.

use std::{
    future::poll_fn,
    io,
    sync::Arc,
    task::{Context, Poll},
    time::Instant,
};

use bytes::BytesMut;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Interval, MissedTickBehavior, interval_at},
};

use super::{
    end::End,
    leg::Leg,
    limits::Limits,
    liveness::Verdict,
    traffic::Traffic,
    upstream::{Connection, Given, Told, Upstream, UpstreamLeg},
};
use crate::streams::{
    close::CloseReason,
    frame::Event,
    wire::{ClientWire, Input, Output},
};

/// The client's WebSocket after its handshake.
pub struct ClientSide<IO = Box<dyn Connection>> {
    /// The connection.
    pub io: IO,
    /// What was read of it already.
    pub early: BytesMut,
    /// What its messages mean.
    pub wire: ClientWire,
}

impl<IO> ClientSide<IO> {
    /// Nothing was read yet.
    pub fn new(io: IO, wire: ClientWire) -> Self {
        let early = BytesMut::new();
        Self { io, early, wire }
    }
}

/// A relay between a client and an upstream.
#[derive(Debug)]
pub struct Relay<C, U> {
    pub(super) client: Leg<C>,
    pub(super) upstream: UpstreamLeg<U>,
    pub(super) wire: ClientWire,
    ticks: Interval,
    pub(super) traffic: Arc<Traffic>,
    pub(super) limits: Limits,
    /// The client's data has ended.
    input_over: bool,
    /// The upstream's data has ended, and the client was told.
    output_over: bool,
    /// How it ends once everything that was queued has been written.
    ending: Option<End>,
}

impl<C, U> Relay<C, U>
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
{
    /// Over two connections whose handshakes are done.
    pub fn new(
        client: ClientSide<C>,
        upstream: Upstream<U>,
        traffic: Arc<Traffic>,
        limits: Limits,
    ) -> Self {
        let pace = limits.pace;
        let first = tokio::time::Instant::now() + pace.ping_every;
        let mut ticks = interval_at(first, pace.ping_every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            client: Leg::client(client.io, client.early, pace),
            upstream: UpstreamLeg::new(upstream, pace),
            wire: client.wire,
            ticks,
            traffic,
            limits,
            input_over: false,
            output_over: false,
            ending: None,
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
        self.upstream.close(self.limits.pace.goodbye).await;
    }

    /// Ends the client's side with the reason; whatever was printed before goes first.
    pub async fn end_client(mut self, reason: &CloseReason) {
        if !reason.reaches_client() {
            return;
        }
        if let Some(status) = self.wire.status(&reason.status()) {
            let _ = self.client.data(&[&status], now());
        }
        if let Some(text) = self.wire.farewell(reason) {
            let _ = self.client.text(&text, now());
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
            moved |= self.write_upstream(cx, now)?;
            moved |= self.client.poll_write(cx, now).map_err(gone)?;
            self.check_end()?;
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
        if !self.upstream_is_over() {
            match self.upstream.tick(now).map_err(lost)? {
                Verdict::Dead => return Err(End::UpstreamLost("it answers no pings".into())),
                Verdict::Stalled => return Err(End::UpstreamLost("it takes no data".into())),
                Verdict::Ping | Verdict::Wait => {}
            }
        }
        if self.input_over
            && let Some(input) = self.upstream.end_again()
        {
            self.give(&input, now)?;
        }
        match &self.limits.idle {
            Some((limit, _)) if self.traffic.idle(now) >= *limit => Err(End::Idle),
            _ => Ok(()),
        }
    }

    /// Whether the upstream is gone and only the client's queue is still written.
    pub(super) fn upstream_is_over(&self) -> bool {
        matches!(&self.ending, Some(end) if *end != End::InputEnded)
    }

    /// Ends once nothing waits any more.
    fn check_end(&mut self) -> Result<(), End> {
        let drained = match &self.ending {
            Some(End::InputEnded) => self.upstream.is_drained(),
            Some(_) => self.client.is_drained(),
            None if self.input_over && self.output_over => {
                self.upstream.is_drained() && self.client.is_drained()
            }
            None => return Ok(()),
        };
        match drained {
            true => Err(self.ending.take().unwrap_or(End::Finished)),
            false => Ok(()),
        }
    }

    /// The upstream ended: at once, or after the client has got what came before.
    fn upstream_ended(&mut self, end: End) -> Result<(), End> {
        if !self.limits.drains {
            return Err(end);
        }
        self.ending = Some(end);
        Ok(())
    }

    fn pump_client(&mut self, cx: &mut Context<'_>, now: Instant) -> Result<bool, End> {
        let mut moved = false;
        while self.upstream_is_over() || self.upstream.has_room() {
            if self.pass_up(now) {
                moved = true;
                continue;
            }
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
                let input = self.wire.read(piece).map_err(End::ClientViolation)?;
                input.map_or(Ok(()), |input| self.input(&input, now))
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

    fn input(&mut self, input: &Input, now: Instant) -> Result<(), End> {
        match input {
            Input::Data(bytes) => {
                self.traffic.typed(bytes.len());
                if self.limits.counts_typed(bytes) {
                    self.traffic.touch(now);
                }
            }
            Input::Eof => self.input_over = true,
            Input::Resize(_) => {}
        }
        self.give(input, now)
    }

    fn give(&mut self, input: &Input, now: Instant) -> Result<(), End> {
        if self.upstream_is_over() {
            return Ok(());
        }
        if self.upstream.give(input, now).map_err(lost)? == Given::EndsBoth {
            self.ending = Some(End::InputEnded);
        }
        Ok(())
    }

    fn pump_upstream(&mut self, cx: &mut Context<'_>, now: Instant) -> Result<bool, End> {
        let mut moved = false;
        while self.client.has_room() {
            if self.output_over || self.upstream_is_over() {
                return Ok(moved);
            }
            if self.pass_down(now) {
                moved = true;
                continue;
            }
            match self.upstream.poll_told(cx) {
                Poll::Pending => return Ok(moved),
                Poll::Ready(Err(broken)) => return Err(End::UpstreamLost(broken)),
                Poll::Ready(Ok(told)) => {
                    self.told(told, now)?;
                    moved = true;
                }
            }
        }
        self.upstream.not_listening();
        Ok(moved)
    }

    fn told(&mut self, told: Told, now: Instant) -> Result<(), End> {
        match told {
            Told::Nothing => Ok(()),
            Told::Closed(said) => self.upstream_ended(End::UpstreamClosed(said)),
            Told::Finished => {
                if self.wire.has_eof() {
                    self.print(&Output::Eof, now)?;
                }
                self.upstream_ended(End::UpstreamFinished)
            }
            Told::Output(Output::Exit(exit)) => self.upstream_ended(End::Exited(exit)),
            Told::Output(Output::Eof) if !self.wire.has_eof() => {
                self.upstream_ended(End::OutputEnded)
            }
            Told::Output(output) => {
                self.output_over |= output == Output::Eof;
                self.print(&output, now)
            }
        }
    }

    fn print(&mut self, output: &Output, now: Instant) -> Result<(), End> {
        let Some((prefix, bytes)) = self.wire.data(output) else {
            return Ok(());
        };
        let length = bytes.len();
        self.client.data(&[prefix, bytes], now).map_err(gone)?;
        self.printed(length, now);
        Ok(())
    }

    pub(super) fn printed(&self, bytes: usize, now: Instant) {
        self.traffic.printed(bytes);
        if self.limits.counts_printed() {
            self.traffic.touch(now);
        }
    }

    fn write_upstream(&mut self, cx: &mut Context<'_>, now: Instant) -> Result<bool, End> {
        if self.upstream_is_over() {
            return Ok(false);
        }
        match self.upstream.poll_write(cx, now) {
            // It said all it had to say before it went.
            Err(_) if self.output_over => {
                self.ending = Some(End::Finished);
                Ok(true)
            }
            written => written.map_err(lost),
        }
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
