//! Raw pass-through: where both sides speak bare bytes in binary messages, payload goes on as it came.
//!
//! What has to be looked at takes the long way through [`crate::streams::wire`]: text on a terminal, control frames, and
//! what the client of a display sends, since a person is told from a program by it.

use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite};

use super::{duplex::Relay, upstream::UpstreamLeg};
use crate::streams::frame::Passing;

impl<C, U> Relay<C, U>
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
{
    /// From the client; tells whether anything moved.
    pub(super) fn pass_up(&mut self, now: Instant) -> bool {
        if self.limits.looks_at_input() || self.upstream_is_over() {
            return false;
        }
        let (Some(passing), UpstreamLeg::Frames(upstream, wire)) =
            (self.wire.passing(), &mut self.upstream)
        else {
            return false;
        };
        if !wire.is_bare() {
            return false;
        }
        let moved = self.client.pass(upstream, passing, now);
        if moved > 0 {
            self.traffic.typed(moved);
            self.traffic.touch(now);
        }
        moved > 0
    }

    /// To the client; tells whether anything moved.
    pub(super) fn pass_down(&mut self, now: Instant) -> bool {
        let UpstreamLeg::Frames(upstream, wire) = &mut self.upstream else {
            return false;
        };
        if !wire.is_bare() || self.wire.passing().is_none() {
            return false;
        }
        let moved = upstream.pass(&mut self.client, Passing::Everything, now);
        if moved > 0 {
            self.printed(moved, now);
        }
        moved > 0
    }
}
