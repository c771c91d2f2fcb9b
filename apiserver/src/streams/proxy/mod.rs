//! `workspaces/proxy/{path}`: HTTP and WebSockets to a declared port, streamed both ways.
//!
//! A request goes the way of every stream: authorize, admit, resolve, dial, look again
//! ([`super::opening`]); then its head and body go to the guest, and the answer back. Nothing is
//! buffered but the piece in hand.
//!
//! # Where things are
//!
//! - [`path`]: what the guest is asked for, and the prefix under which its client sees it.
//! - [`request`], [`response`], [`hops`], [`cookies`], [`location`], [`page`], [`html`]: what becomes of
//!   headers, cookies, redirects and pages, by pure functions.
//! - [`attempt`], [`outbound`], [`inbound`]: one request from its authorization to its answer.
//! - [`exchange`], [`watch`], [`shared`]: one connection, what it carries, and what ends it.
//! - [`body`], [`tunnel`]: bytes under way.
//!
//! **Architecture Invariant:** what a guest sends is never believed about where anything is, and never
//! speaks for kube-apiserver's origin.
//!
//! Sources: RFC 9110 §7 and 9112 (messages through an intermediary), 6455 (WebSocket), 6265 (cookies);
//! `k8s.io/apimachinery/pkg/util/proxy` for what kube-apiserver does to what passes through it.
//! `docs/streams.md` says what clients meet. Entry point: [`Proxy`].

mod attempt;
mod body;
mod cookies;
mod errors;
mod exchange;
mod hops;
mod html;
mod inbound;
mod location;
mod mode;
mod outbound;
mod page;
mod path;
mod request;
mod response;
mod shared;
mod tunnel;
mod watch;

use apiserver_generic::{ApiError, Attributes, Body, Call, Connect, authz::authorize};
use async_trait::async_trait;
use http::Response;

use self::{attempt::Attempt, outbound::Given, request::Wants};
use super::{asked::Asked, handshake, opening, opening::Streams, permit::Permit};

/// The handler of `workspaces/proxy`.
pub struct Proxy {
    streams: Streams,
}

impl Proxy {
    /// With what streams have.
    pub fn new(streams: &Streams) -> Self {
        let streams = streams.clone();
        Self { streams }
    }
}

#[async_trait]
impl Connect for Proxy {
    async fn connect(&self, mut call: Call) -> Result<Response<Body>, ApiError> {
        let streams = &self.streams;
        let given = Given::take(&mut call);
        let (asked, upgrade) = Asked::read(call);
        let wants = request::wants(&asked.method, &asked.headers)?;
        given.check_handshake(wants)?;
        let mut place = match wants {
            Wants::WebSocket => streams.limits.enter(&asked.user.name)?,
            Wants::Answer => streams.limits.enter_at_any_pace(&asked.user.name)?,
        };
        for attributes in further(&asked) {
            let review = authorize(&*asked.authorizer, &asked.user, attributes);
            asked.stopwatch.wait(review).await?;
        }
        place.reach(&asked.namespace, &asked.name)?;
        if wants == Wants::WebSocket {
            handshake::check_origin(&asked.headers, &streams.options.allowed_origins)?;
        }
        let target = path::target(&given.uri)?;
        let permit = streams.gates.admit(&opening::asking(&asked))?;
        let attempt = Attempt::new(streams, &asked, wants)?;
        let permit = permit.join(Permit::holding(place));
        let reached = asked.stopwatch.wait(attempt.reach(permit)).await?;
        let exchange = attempt.begin(reached, given, target).await?;
        exchange.answer(upgrade).await
    }
}

/// What is needed beside what was asked for, the verb of the method: `get` and `create`, as for every
/// stream, since a GET too does whatever the app makes of it; and on `w1` all that is needed on `w1:port`.
fn further(asked: &Asked) -> Vec<Attributes> {
    let asked_for = &asked.attributes;
    let mut verbs = vec!["get", "create"];
    if !verbs.contains(&asked_for.verb.as_str()) {
        verbs.push(&asked_for.verb);
    }
    let names = match asked.named_port {
        None => vec![&asked_for.name],
        Some(_) => vec![&asked_for.name, &asked.name],
    };
    let all = names.into_iter().flat_map(|name| {
        verbs.iter().map(move |verb| Attributes {
            verb: (*verb).to_owned(),
            name: name.clone(),
            ..asked_for.clone()
        })
    });
    all.filter(|one| one != asked_for).collect()
}
