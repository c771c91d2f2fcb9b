//! One request and its answer over one connection to the guest, which nothing else ever uses: what is
//! kept of a connection could be another user's, or another machine's by now.

use std::{sync::Arc, time::Duration};

use apiserver_generic::{ApiError, Body};
use http::{Request, Response, header};
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::{
    attempt::Attempt,
    body::{Leave, Upload},
    errors,
    request::Wants,
    shared::{Hold, Shared, now},
    watch::Watch,
};
use crate::streams::{
    metrics::Open,
    reach::Line,
    relay::{Connection, Upstream},
    resolve::{Machine, Target},
    session::Caller,
};

/// Header lines of an answer.
const MAX_HEADERS: usize = 500;
/// Bytes of an answer's head, and of what waits in either direction.
const MAX_HEAD: usize = 64 * 1024;

/// A connection to a guest, and what holds it.
pub(super) struct Exchange {
    sender: SendRequest<Upload>,
    pub(super) hold: Hold,
    pub(super) opened: oneshot::Sender<Open>,
    pub(super) port: u16,
}

impl Exchange {
    /// Begins to watch over a connection that was made for this attempt.
    ///
    /// # Errors
    /// When HTTP cannot begin.
    pub(super) async fn begin(
        attempt: &Attempt<'_>,
        (line, upstream): (Line, Upstream),
        port: u16,
    ) -> Result<Self, ApiError> {
        let (streams, asked) = (attempt.streams, attempt.asked);
        let followed = followed(&upstream, &line.found.target);
        let io = upstream.into_kept_connection(streams.options.pace, &streams.tasks);
        let (sender, connection) = handshake(io).await?;
        let shared = Arc::new(Shared::new(now()));
        let (hold, over) = Hold::new(shared.clone());
        let (opened, told) = oneshot::channel();
        let watch = Watch {
            shared,
            label: line.mode.label(),
            is_tunnel: attempt.wants == Wants::WebSocket,
            followed,
            wish: line.wish,
            permit: line.permit,
            caller: Caller::of(asked),
            watched: streams.rechecks.watch(&asked.user, attempt.permissions()),
            draining: asked.draining.clone(),
            sessions: streams.sessions.clone(),
            finder: streams.finder.clone(),
            followers: streams.followers.clone(),
            options: streams.options.clone(),
            opened: told,
            over,
            workspace: line.workspace,
            found: line.found,
        };
        streams.tasks.spawn(watch.run(connection.with_upgrades()));
        Ok(Self {
            sender,
            hold,
            opened,
            port,
        })
    }

    /// Sends the request and waits for the head of its answer.
    ///
    /// # Errors
    /// There is none, or none that can be passed on.
    pub(super) async fn send(
        &mut self,
        mut request: Request<Body>,
        limit: Duration,
    ) -> Result<Response<Incoming>, ApiError> {
        let shared = self.hold.shared.clone();
        let leave = asks_for_leave(&mut request);
        let request = request.map(|body| Upload::new(body, shared.clone(), leave));
        tokio::select! {
            biased;
            () = shared.cutting().cancelled() => Err(errors::told(shared.reason().as_ref())),
            answer = self.sender.send_request(request) => {
                answer.map_err(|error| errors::no_answer(self.port, &error))
            }
            () = silence(&shared, limit) => Err(errors::late(self.port, limit)),
        }
    }
}

async fn handshake(
    io: Box<dyn Connection>,
) -> Result<
    (
        SendRequest<Upload>,
        http1::Connection<TokioIo<Box<dyn Connection>>, Upload>,
    ),
    ApiError,
> {
    let mut builder = http1::Builder::new();
    builder
        .max_headers(MAX_HEADERS)
        .max_header_size(MAX_HEAD)
        .max_buf_size(MAX_HEAD);
    let begun = builder.handshake(TokioIo::new(io)).await;
    begun.map_err(ApiError::internal)
}

/// The machine that falls silent when it is gone.
fn followed(upstream: &Upstream, target: &Target) -> Option<Machine> {
    match (upstream, target) {
        (Upstream::Bytes(..), Target::Machine(machine)) => Some(machine.clone()),
        _ => None,
    }
}

/// Whether the guest is asked first if it wants the body.
fn asks_for_leave(request: &mut Request<Body>) -> Option<Leave> {
    let expects = request.headers().get(header::EXPECT)?;
    if !expects.as_bytes().eq_ignore_ascii_case(b"100-continue") {
        return None;
    }
    let given = CancellationToken::new();
    let leave = Leave::new(&given);
    hyper::ext::on_informational(request, move |answer| {
        if answer.status() == http::StatusCode::CONTINUE {
            given.cancel();
        }
    });
    Some(leave)
}

/// Nothing passed for so long, in either direction.
async fn silence(shared: &Shared, limit: Duration) {
    loop {
        let idle = shared.traffic.idle(now());
        if idle >= limit {
            return;
        }
        tokio::time::sleep(limit - idle).await;
    }
}
