//! Streams: consoles, displays, shells and ports between a client and what a workspace runs.
//!
//! A stream is authorized, admitted, resolved, claimed, dialled, checked again, accepted, relayed
//! and released, in this order, whatever its mode ([`opening`]). Before the upgrade every failure is
//! a Status; after it a close frame says why the stream ended ([`close`]). What clients meet is
//! written down in `docs/streams.md`.
//!
//! # Where things plug in
//!
//! - A **mode** implements [`mode::Mode`] and gets a row in [`handlers`]: its name, who may hold it,
//!   its dialects, what keeps it alive, how it is dialled. [`mode::Mode::greet`] is what it has to
//!   settle with its client between the upgrade and the relay.
//! - An **upstream** is [`relay::Upstream`]: a WebSocket with a dialect ([`wire::UpstreamWire`]), or
//!   bytes, be they a TCP connection or one end of a pipe in this process; a [`relay::Terminal`]
//!   beside the bytes carries sizes in and an exit status out.
//! - A **limit** implements [`permit::Gate`] and is added to [`permit::Gates`]; its
//!   [`permit::Permit`] lives as long as the stream.
//! - A **session** is taken in `opening`'s `claim` and told of its end through
//!   [`crate::sessions::Held`].
//! - **Re-checks** are shared: [`recheck::Rechecks::watch`].

mod asked;
pub mod close;
pub mod dial;
pub mod files;
mod follow;
pub mod frame;
pub mod handshake;
pub mod limits;
pub mod metrics;
pub mod mode;
pub mod negotiate;
pub mod opening;
pub mod permit;
pub mod ports;
pub mod proxy;
mod reach;
pub mod recheck;
pub mod relay;
pub mod resolve;
pub mod screenshot;
mod session;
pub mod ssh;
pub mod target;
#[cfg(test)]
mod tests;
mod upgrade;
pub mod upstream;
pub mod wire;

use std::sync::Arc;

use apiserver_generic::Connect;

use mode::{Choose, console, portforward, vnc};
use opening::{Handler, Streams};
use proxy::Proxy;
use screenshot::Screenshot;

/// The handlers of all subresources of `workspaces` that lead to what runs, by name.
pub fn handlers(streams: &Streams) -> Vec<(&'static str, Arc<dyn Connect>)> {
    let stream =
        |choose: Choose| -> Arc<dyn Connect> { Arc::new(Handler::new(streams.clone(), choose)) };
    let undeclared = streams.options().undeclared_ports;
    vec![
        ("console", stream(console::choose())),
        ("vnc", stream(vnc::choose())),
        ("ssh", stream(mode::ssh::choose(streams))),
        ("portforward", stream(portforward::choose(undeclared))),
        ("proxy", Arc::new(Proxy::new(streams))),
        ("screenshot", Arc::new(Screenshot::new(streams))),
    ]
}
