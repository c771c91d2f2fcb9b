//! The relay between scripted peers. The peers speak through another WebSocket implementation, or
//! by bare bytes where they have to misbehave.

mod dialects;
mod endings;
mod liveness;
mod passing;
mod tunnels;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, protocol::Role},
};

use super::{Activity, ClientSide, End, Limits, Pace, Relay, Terminal, Traffic, Upstream};
use crate::streams::{
    close::CloseReason,
    negotiate::Subprotocol,
    wire::{ClientWire, Exit, Stdio, UpstreamWire},
};

const PIPE: usize = 4096;

struct Bench {
    relay: Relay<DuplexStream, DuplexStream>,
    client: DuplexStream,
    upstream: DuplexStream,
    traffic: Arc<Traffic>,
}

/// Real times, a thousandth as long.
fn quick() -> Limits {
    Limits {
        pace: Pace {
            ping_every: Duration::from_millis(15),
            no_progress: Duration::from_millis(600),
            goodbye: Duration::from_secs(2),
        },
        idle: Some((Duration::from_millis(400), Activity::Both)),
        drains: false,
    }
}

fn bench(subprotocol: Subprotocol, upstream_wire: UpstreamWire) -> Bench {
    bench_with(subprotocol, upstream_wire, Limits::default())
}

fn bench_with(subprotocol: Subprotocol, upstream_wire: UpstreamWire, limits: Limits) -> Bench {
    let client = ClientWire::terminal(subprotocol);
    between(client, |io| Upstream::Frames(io, upstream_wire), limits)
}

fn between(
    client_wire: ClientWire,
    upstream_of: impl FnOnce(DuplexStream) -> Upstream<DuplexStream>,
    limits: Limits,
) -> Bench {
    let (client, ours) = duplex(PIPE);
    let (upstream, theirs) = duplex(PIPE);
    let traffic = Arc::new(Traffic::new(tokio::time::Instant::now().into_std()));
    let relay = Relay::new(
        ClientSide::new(ours, client_wire),
        upstream_of(theirs),
        Arc::clone(&traffic),
        limits,
    );
    Bench {
        relay,
        client,
        upstream,
        traffic,
    }
}

fn console() -> Bench {
    bench(Subprotocol::Plain, UpstreamWire::Serial)
}

fn quick_console() -> Bench {
    bench_with(Subprotocol::Plain, UpstreamWire::Serial, quick())
}

async fn speak(io: DuplexStream, role: Role) -> WebSocketStream<DuplexStream> {
    WebSocketStream::from_raw_socket(io, role, None).await
}

async fn bytes(peer: &mut WebSocketStream<DuplexStream>, length: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < length {
        match peer.next().await {
            Some(Ok(Message::Binary(data))) => all.extend_from_slice(&data),
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            other => panic!("{other:?} after {} bytes", all.len()),
        }
    }
    all
}

fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(byte).take(length).collect()
}

/// A relay whose upstream is bytes.
fn tunnel(subprotocol: Subprotocol, terminal: Option<Terminal>, limits: Limits) -> Bench {
    let client = ClientWire::bytes(subprotocol);
    between(client, |io| Upstream::Bytes(io, terminal), limits)
}
