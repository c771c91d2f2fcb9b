//! From the 101 to the end of a stream.
//!
//! The connection is taken out of hyper, so that a fault can reset it and no layer lies between the relay and TLS.

use http::Request;
use hyper::{body::Incoming, upgrade::Upgraded};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::protocol::{Role, WebSocketConfig},
};
use tracing::{debug, warn};

use super::{
    dial_guest::Guest,
    handshake, port, raw,
    strike::{self, LONGEST_STALL, Outcome},
};
use crate::{
    between::Between,
    checker::{Excuse, Live},
    dial::Duplex,
    faults::{StreamKind, Subscription},
    server::{handler::App, reply::Reply},
};

/// What a client talks through.
pub type Client = WebSocketStream<TlsStream<TcpStream>>;

/// Buffers of KubeVirt's upgrader.
const BUFFER: usize = 10_240;
/// Largest message of a client. KubeVirt sets no limit; this one is far above what any client sends.
const MAX_MESSAGE: usize = 16 << 20;

/// A stream whose far side is there.
pub struct Opened {
    /// What it does.
    pub relay: Relay,
    /// Which kind it is.
    pub kind: StreamKind,
    /// What is to go wrong with it.
    pub faults: Subscription,
    /// Why it may outlive its client.
    pub excuse: Option<Excuse>,
}

/// What a stream does.
pub enum Relay {
    /// A console or a display.
    Raw(Upstream),
    /// A port.
    Port(Guest),
}

/// The far side of a console or display, and the checker's note of it. Both end together, the far side first.
pub type Upstream = Between<(), Box<dyn Duplex>, Live>;

impl Relay {
    async fn run(self, client: &mut Client) {
        match self {
            Self::Raw(upstream) => raw::relay(client, upstream).await,
            Self::Port(guest) => port::relay(client, guest, port::Timing::KUBEVIRT).await,
        }
    }
}

/// Accepts the upgrade and runs the relay, or says what is wrong with the request. Either way the far side is dialled
/// already, and is dropped with the stream.
pub fn upgrade(app: &App, request: Request<Incoming>, opened: Opened) -> Reply {
    let reply = match handshake::accept(request.method(), request.headers()) {
        Ok(reply) => reply,
        Err(rejection) => return rejection.reply(),
    };
    let shutdown = app.shutdown.clone();
    app.tasks.spawn(async move {
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = run(request, opened) => {}
        }
    });
    reply
}

async fn run(request: Request<Incoming>, opened: Opened) {
    let upgraded = match hyper::upgrade::on(request).await {
        Ok(upgraded) => upgraded,
        Err(error) => return debug!(%error, "the client went away during the upgrade"),
    };
    let Some(mut client) = websocket(upgraded).await else {
        return warn!("a connection that was not accepted here cannot be upgraded");
    };
    let Opened {
        relay,
        kind,
        faults,
        excuse,
    } = opened;
    let relay = relay.run(&mut client);
    let outcome = strike::under(relay, kind, faults, excuse.as_ref(), LONGEST_STALL).await;
    if outcome == Outcome::Reset
        && let Err(error) = client.get_ref().get_ref().0.set_zero_linger()
    {
        warn!(%error, "the connection is closed instead of reset");
    }
}

async fn websocket(upgraded: Upgraded) -> Option<Client> {
    let parts = upgraded.downcast::<TokioIo<TlsStream<TcpStream>>>().ok()?;
    let (stream, early) = (parts.io.into_inner(), parts.read_buf.to_vec());
    let config = WebSocketConfig::default()
        .read_buffer_size(BUFFER)
        // Every frame goes out at once.
        .write_buffer_size(0)
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE));
    let server = Role::Server;
    Some(WebSocketStream::from_partially_read(stream, early, server, Some(config)).await)
}
