//! One authorized request on its way to an endpoint, and what endpoints answer with.

use std::{net::SocketAddr, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    ApiError, Authorized, Authorizer, audit::Record, authn::Via, request::RequestInfo,
    stopwatch::Stopwatch,
};

/// Failure while a body is read or written.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// The body of requests and responses, streamed. Upgrades travel in the request's extensions.
pub type Body = UnsyncBoxBody<Bytes, BodyError>;

/// A body that is ready as a whole.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// Where a request came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAddress {
    /// The peer of the TCP connection.
    pub peer: SocketAddr,
    /// The last element of `X-Forwarded-For`, kept only behind an authenticated front proxy.
    pub forwarded_for: Option<String>,
    /// How its caller was recognized: by the front proxy's word, or straight at our port.
    pub via: Via,
}

/// An authorized request.
pub struct Call {
    /// The proof that the caller may do what `info` says.
    pub authorized: Authorized,
    /// The request by its URL.
    pub info: RequestInfo,
    /// The request; its body is limited already.
    pub request: Request<Body>,
    /// The request's audit id: the caller's `Audit-ID`, or ours.
    pub audit_id: Arc<str>,
    /// Where it came from.
    pub client: ClientAddress,
    /// Asks for further permissions (streams need `create` beside `get`).
    pub authorizer: Arc<dyn Authorizer>,
    /// Cancelled when the server begins to drain: streams then end with a reason.
    pub draining: CancellationToken,
    /// Where work that outlives the answer (an upgraded stream) is spawned: shutdown waits for it.
    pub streams: TaskTracker,
    /// The audit of this request. Kept until a stream ends, it writes the last event then.
    pub audit: Record,
    /// Since the request's head was read.
    pub stopwatch: Stopwatch,
}

/// A subresource with a handler of its own.
#[async_trait]
pub trait Connect: Send + Sync + 'static {
    /// Answers the request; a `101` takes the upgrade from the request's extensions.
    ///
    /// # Errors
    /// Before an upgrade everything is a Status; afterwards the stream tells its own end.
    async fn connect(&self, call: Call) -> Result<Response<Body>, ApiError>;
}

/// The resources of a server behind its filter chain: verbs, negotiation, streaming subresources.
#[async_trait]
pub trait Endpoints: Send + Sync + 'static {
    /// Answers an authorized resource request. Failures are answered too, as a Status.
    async fn handle(&self, call: Call) -> Response<Body>;
}
