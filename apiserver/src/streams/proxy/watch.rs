//! The task that watches over one exchange from its connection to its end: it drives the connection,
//! shows the session, hears what ends it, and tells what it was.

use std::{convert::Infallible, future::Future, pin::pin, sync::Arc, time::Duration};

use tokio::{sync::oneshot, time::interval};
use tokio_util::sync::CancellationToken;

use super::shared::{Shared, now};
use crate::{
    sessions::{Seat, Sessions, record::Wish},
    streams::{
        close::CloseReason,
        follow::Followers,
        metrics::Open,
        opening::StreamOptions,
        permit::Permit,
        recheck::Watched,
        relay::End,
        resolve::{Found, Machine, Workspace},
        session::{Caller, Ending, annotate, log, over, reason},
        target::Finder,
    },
};

/// How often counters are passed on, and slow clients looked for.
const EVERY: Duration = Duration::from_secs(15);
/// How long answers under way may take when the server ends; a tunnel knows no end to wait for.
const LAST_ANSWERS: Duration = Duration::from_secs(10);

/// How long an exchange has to last before its machine is watched: most are over by then, and would cost
/// kube-apiserver a watch each.
const LASTING: Duration = Duration::from_secs(2);

/// What an exchange is watched with.
pub(super) struct Watch {
    pub(super) shared: Arc<Shared>,
    pub(super) label: &'static str,
    pub(super) is_tunnel: bool,
    pub(super) workspace: Workspace,
    pub(super) found: Found,
    /// The machine whose end the connection would not tell.
    pub(super) followed: Option<Machine>,
    pub(super) wish: Wish,
    pub(super) permit: Permit,
    pub(super) caller: Caller,
    pub(super) watched: Watched,
    pub(super) draining: CancellationToken,
    pub(super) sessions: Sessions,
    pub(super) finder: Finder,
    pub(super) followers: Followers,
    pub(super) options: StreamOptions,
    /// The answer has begun.
    pub(super) opened: oneshot::Receiver<Open>,
    /// Cancelled when nobody holds the exchange any more.
    pub(super) over: CancellationToken,
}

impl Watch {
    /// Until the end. `connection` moves the bytes of the guest's connection.
    pub(super) async fn run<C, E>(self, connection: C)
    where
        C: Future<Output = Result<(), E>>,
        E: std::fmt::Display,
    {
        let began = now();
        let Self {
            shared,
            label,
            is_tunnel,
            workspace,
            found,
            followed,
            wish,
            permit,
            caller,
            mut watched,
            draining,
            sessions,
            finder,
            followers,
            options,
            mut opened,
            over: held,
        } = self;
        let mut seat = Seat::take(&sessions, None, &wish, shared.traffic.clone());
        let mut open = None;
        let ending = {
            let mut driven = pin!(drive(connection));
            let told = async {
                tokio::select! {
                    biased;
                    reason = seat.told() => Ending::Told(reason),
                    () = drained(&draining, is_tunnel) => Ending::Told(CloseReason::Draining),
                    reason = watched.revoked() => Ending::Told(reason),
                    () = tokio::time::sleep(options.max_duration) => Ending::Told(CloseReason::Expired),
                    () = machine_over(&followers, &workspace, followed.as_ref()) => {
                        Ending::End(End::UpstreamLost("its machine is over".into()))
                    }
                }
            };
            let ending = tokio::select! {
                biased;
                () = held.cancelled() => Ending::End(shared.end()),
                ending = told => ending,
                never = &mut driven => match never {},
                () = count(&shared, &mut opened, &mut open, options.pace.no_progress) => {
                    Ending::Told(CloseReason::SlowReader)
                }
            };
            // Before the connection is dropped: a body that is cut must not look like one that is whole.
            shared.cut(&ending.at_once());
            ending
        };
        seat.release().await;
        // Without an answer, whoever asked has been told why.
        let Some(open) = open.or_else(|| opened.try_recv().ok()) else {
            return;
        };
        let reason = reason(ending, &finder, &workspace, &found.target).await;
        open.closed(&reason);
        let (traffic, lived) = (&shared.traffic, now() - began);
        annotate(&caller, &reason, traffic, lived);
        if is_tunnel {
            log(&caller, label, &workspace, &reason, traffic, lived);
        }
        drop(permit);
    }
}

/// A connection that has ended may still have left an answer to be read.
async fn drive<C, E>(connection: C) -> Infallible
where
    C: Future<Output = Result<(), E>>,
    E: std::fmt::Display,
{
    if let Err(error) = pin!(connection).await {
        tracing::debug!(%error, "a connection to a guest broke");
    }
    std::future::pending().await
}

async fn machine_over(followers: &Followers, workspace: &Workspace, machine: Option<&Machine>) {
    tokio::time::sleep(LASTING).await;
    over(followers, workspace, machine).await;
}

async fn drained(draining: &CancellationToken, is_tunnel: bool) {
    draining.cancelled().await;
    if !is_tunnel {
        tokio::time::sleep(LAST_ANSWERS).await;
    }
}

/// Counts while it lasts; ends when the client takes nothing for too long.
async fn count(
    shared: &Shared,
    opened: &mut oneshot::Receiver<Open>,
    open: &mut Option<Open>,
    limit: Duration,
) {
    *open = opened.await.ok();
    let mut ticks = interval(EVERY);
    while !shared.is_stalled(now(), limit) {
        ticks.tick().await;
        if let Some(open) = open {
            open.progress();
        }
    }
}
