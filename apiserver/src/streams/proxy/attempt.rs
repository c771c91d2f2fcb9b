//! One authorized request: which port it is for, and its way there and back.

use std::sync::Arc;

use apiserver_generic::{ApiError, Attributes, Body};
use http::{Request, Response, uri::PathAndQuery};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::time::timeout;

use super::{
    cookies::Tag,
    exchange::Exchange,
    further,
    inbound::{self, Passed},
    location::Own,
    mode::ProxyMode,
    outbound::Given,
    path::Prefix,
    request::{self, Wants},
    response::Return,
    shared::Hold,
    tunnel,
};
use crate::streams::{
    asked::Asked,
    mode::Mode as _,
    opening::{self, Streams},
    permit::Permit,
    reach::{Line, Reached},
    relay::{End, Pace},
    upgrade::UPGRADE_LIMIT,
};

/// A request that may be passed on.
pub(super) struct Attempt<'a> {
    pub(super) streams: &'a Streams,
    pub(super) asked: &'a Asked,
    pub(super) wants: Wants,
    mode: Arc<ProxyMode>,
}

/// A request that is on its way.
pub(super) struct Sent<'a> {
    attempt: Attempt<'a>,
    exchange: Exchange,
    request: Request<Body>,
    back: Return,
}

impl<'a> Attempt<'a> {
    /// Of a request.
    ///
    /// # Errors
    /// It is for what is no port.
    pub(super) fn new(
        streams: &'a Streams,
        asked: &'a Asked,
        wants: Wants,
    ) -> Result<Self, ApiError> {
        let mode = ProxyMode::of(asked, streams.options.undeclared_ports, wants)?;
        Ok(Self {
            streams,
            asked,
            wants,
            mode: Arc::new(mode),
        })
    }

    /// All that it needs to be allowed as long as it lasts.
    pub(super) fn permissions(&self) -> Vec<Attributes> {
        let first = std::iter::once(self.asked.attributes.clone());
        first.chain(further(self.asked)).collect()
    }

    /// Resolves, dials and looks again.
    ///
    /// # Errors
    /// Why there is nothing to connect to.
    pub(super) async fn reach(&self, permit: Permit) -> Result<Reached, ApiError> {
        let (streams, asked) = (self.streams, self.asked);
        opening::refuse_while_draining(asked)?;
        let finder = &streams.finder;
        let workspace = finder.workspace(&asked.namespace, &asked.name).await?;
        let found = finder.target(&workspace).await?;
        self.mode.check(&workspace, &found)?;
        let line = Line {
            mode: self.mode.clone(),
            wish: opening::wish(&*self.mode, asked, &workspace),
            workspace,
            found,
            held: None,
            permit,
            takeover: false,
        };
        line.reach(streams.means()).await
    }

    /// Makes the request ready for the connection.
    ///
    /// # Errors
    /// It is none that HTTP/1.1 can carry.
    pub(super) async fn begin(
        self,
        reached: Reached,
        given: Given,
        target: PathAndQuery,
    ) -> Result<Sent<'a>, ApiError> {
        let taken = reached.take();
        let (line, upstream) =
            taken.ok_or_else(|| ApiError::internal("an upstream was taken twice"))?;
        let port = self.mode.number(&line.workspace)?;
        let (asked, navigation) = (self.asked, self.wants == Wants::Answer);
        let back = Return {
            prefix: Prefix::new(&asked.namespace, &given.name),
            tag: Tag::new(&line.workspace.uid, port),
            own: Own::new(port, given.host.as_deref()),
            asked: target.to_string(),
            proxied: given.is_proxied(),
            navigation: navigation && request::is_navigation(&asked.method, &asked.headers),
        };
        let request = given.request(asked, self.wants, &back, target)?;
        let exchange = Exchange::begin(&self, (line, upstream), port).await?;
        Ok(Sent {
            attempt: self,
            exchange,
            request,
            back,
        })
    }
}

impl Sent<'_> {
    /// Passes the request on, and the answer back.
    ///
    /// # Errors
    /// There is no answer, or none that can be passed back.
    pub(super) async fn answer(self, upgrade: OnUpgrade) -> Result<Response<Body>, ApiError> {
        let Self {
            attempt,
            mut exchange,
            request,
            back,
        } = self;
        let streams = attempt.streams;
        let limit = streams.options.proxy_answer;
        let stopwatch = &attempt.asked.stopwatch;
        let answer = stopwatch.wait(exchange.send(request, limit)).await?;
        let traffic = exchange.hold.shared.traffic.clone();
        let label = attempt.mode.label();
        let open = streams.metrics.opened(label, stopwatch, traffic);
        let (port, hold) = (exchange.port, exchange.hold);
        // Whoever watches may have ended it meanwhile.
        let _ = exchange.opened.send(open);
        match inbound::passed(&back, port, attempt.wants, answer, hold)? {
            Passed::Answer(response) => Ok(response),
            Passed::Upgrade(response, guest, hold) => {
                let pace = streams.options.pace;
                streams.tasks.spawn(carry(upgrade, guest, hold, pace));
                Ok(response)
            }
        }
    }
}

/// The tunnel after the `101`, until it ends or is cut.
async fn carry(client: OnUpgrade, guest: OnUpgrade, hold: Hold, pace: Pace) {
    let shared = &*hold.shared;
    let carried = async {
        let both = async { tokio::try_join!(client, guest) };
        match timeout(UPGRADE_LIMIT, both).await {
            Ok(Ok((client, guest))) => {
                let (client, guest) = (TokioIo::new(client), TokioIo::new(guest));
                tunnel::carry(client, guest, shared, pace).await
            }
            _ => End::ClientGone,
        }
    };
    tokio::select! {
        biased;
        () = shared.cutting().cancelled() => {}
        end = carried => shared.ended(end),
    }
}
