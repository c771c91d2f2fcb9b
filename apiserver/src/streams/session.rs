//! An accepted stream from the upgrade to its end.

use std::{
    convert::Infallible,
    future::Future,
    pin::{Pin, pin},
    sync::Arc,
    time::{Duration, Instant},
};

use apiserver_generic::{UserInfo, audit::Record, stopwatch::Stopwatch};
use hyper::upgrade::OnUpgrade;
use tokio_util::sync::CancellationToken;

use super::{
    asked::Asked,
    close::CloseReason,
    follow::Followers,
    metrics::{Open, StreamMetrics},
    mode::Mode,
    negotiate::Subprotocol,
    opening::StreamOptions,
    permit::Permit,
    recheck::Watched,
    relay::{ClientSide, Connection, End, Limits, Relay, Traffic, Upstream},
    resolve::{Found, Machine, Target, Workspace},
    target::Finder,
    upgrade::{Upgraded, tell, upgraded},
    wire::Exit,
};
use crate::sessions::{Held, Seat, Sessions, record::Wish};

/// How often what has passed is added to the metrics.
const COUNT_EVERY: Duration = Duration::from_secs(15);
/// Exit statuses from here on mean that the command was killed by a signal.
const KILLED: i32 = 128;

type Duplex = Relay<Box<dyn Connection>, Box<dyn Connection>>;

/// Who opened the stream, for the log and the audit.
pub(super) struct Caller {
    user: UserInfo,
    audit_id: Arc<str>,
    /// Writes the stream's last event when it is dropped.
    audit: Record,
}

impl Caller {
    /// Of this request.
    pub(super) fn of(asked: &Asked) -> Self {
        Self {
            user: asked.user.clone(),
            audit_id: asked.audit_id.clone(),
            audit: asked.audit.clone(),
        }
    }
}

/// A stream whose upstream is connected and whose client is about to be.
pub(super) struct Accepted {
    pub(super) upgrade: OnUpgrade,
    pub(super) subprotocol: Subprotocol,
    pub(super) upstream: Upstream,
    pub(super) workspace: Workspace,
    pub(super) found: Found,
    pub(super) wish: Wish,
    pub(super) held: Option<Held>,
    pub(super) watched: Watched,
    pub(super) sessions: Sessions,
    pub(super) permit: Permit,
    pub(super) mode: Arc<dyn Mode>,
    pub(super) draining: CancellationToken,
    pub(super) finder: Finder,
    pub(super) followers: Followers,
    pub(super) metrics: StreamMetrics,
    pub(super) options: StreamOptions,
    pub(super) stopwatch: Stopwatch,
}

/// What ended a stream.
pub(super) enum Ending {
    /// One of its sides.
    End(End),
    /// Somebody else, for this reason.
    Told(CloseReason),
}

impl Ending {
    /// The reason as far as it is known without a look.
    pub(super) fn at_once(&self) -> CloseReason {
        match self {
            Self::Told(reason) => reason.clone(),
            Self::End(_) => CloseReason::CutByUpstream,
        }
    }
}

impl Accepted {
    /// Carries the stream to its end and releases what it held.
    pub(super) async fn run(self, caller: Caller) {
        let Self {
            mut upgrade,
            subprotocol,
            upstream,
            workspace,
            found,
            wish,
            mut held,
            mut watched,
            sessions,
            permit,
            mode,
            draining,
            finder,
            followers,
            metrics,
            options,
            stopwatch,
        } = self;
        let lost = async {
            match held.as_mut() {
                Some(held) => held.told().await,
                None => std::future::pending().await,
            }
        };
        let client = match upgraded(&mut upgrade, lost).await {
            Upgraded::Ours(client) => client,
            early => {
                upstream.end(options.pace).await;
                mode.abandon();
                if let Some(held) = held {
                    held.release().await;
                }
                let Upgraded::Told(told) = early else {
                    tracing::info!(
                        audit_id = &*caller.audit_id,
                        "the client was gone before its upgrade"
                    );
                    return;
                };
                let reason = reason(Ending::Told(told), &finder, &workspace, &found.target).await;
                let traffic = Traffic::new(tokio::time::Instant::now().into_std());
                annotate(&caller, &reason, &traffic, Duration::ZERO);
                let limits = limits(&*mode, &workspace, &options);
                tell(upgrade, mode.client_wire(subprotocol), &reason, limits).await;
                drop(permit);
                return;
            }
        };
        let (began, label) = (Instant::now(), mode.label());
        let traffic = Arc::new(Traffic::new(tokio::time::Instant::now().into_std()));
        let open = metrics.opened(label, &stopwatch, traffic.clone());
        let mut seat = Seat::take(&sessions, held, &wish, traffic.clone());
        let limits = limits(&*mode, &workspace, &options);
        let client = ClientSide::new(client, mode.client_wire(subprotocol));
        let (mut relay, ending) = {
            let machine = followed(&upstream, &found.target);
            let told = pin!(async {
                tokio::select! {
                    biased;
                    reason = told(&mut seat, &mut watched, &draining, &options) => Ending::Told(reason),
                    () = over(&followers, &workspace, machine) => {
                        Ending::End(End::UpstreamLost("its machine is over".into()))
                    }
                }
            });
            let carrying = carry(&*mode, client, upstream, told, traffic.clone(), limits);
            tokio::select! {
                carried = carrying => carried,
                never = count(&open) => match never {},
            }
        };
        let finding = reason(ending, &finder, &workspace, &found.target);
        let (reason, ()) = tokio::join!(finding, free(&mut relay, seat));
        open.closed(&reason);
        let lived = began.elapsed();
        log(&caller, label, &workspace, &reason, &traffic, lived);
        annotate(&caller, &reason, &traffic, lived);
        relay.end_client(&reason).await;
        drop(permit);
    }
}

/// The machine whose end this upstream would not tell.
fn followed<'a>(upstream: &Upstream, target: &'a Target) -> Option<&'a Machine> {
    match (upstream, target) {
        (Upstream::Bytes(..), Target::Machine(machine)) => Some(machine),
        _ => None,
    }
}

pub(super) async fn over(followers: &Followers, workspace: &Workspace, machine: Option<&Machine>) {
    match machine {
        Some(machine) => followers.over(&workspace.namespace, machine).await,
        None => std::future::pending().await,
    }
}

/// The bounds of this stream.
fn limits(mode: &dyn Mode, workspace: &Workspace, options: &StreamOptions) -> Limits {
    Limits {
        pace: options.pace,
        idle: options.idle_after.zip(mode.activity()),
        drains: !mode.is_exclusive(workspace.kind),
    }
}

/// Greets, then relays, until a side ends or the stream is told to end.
async fn carry(
    mode: &dyn Mode,
    mut client: ClientSide,
    upstream: Upstream,
    mut told: Pin<&mut impl Future<Output = Ending>>,
    traffic: Arc<Traffic>,
    limits: Limits,
) -> (Duplex, Ending) {
    // A mode that has nothing to say has said it at once: an upstream is not dropped for it.
    let greeted = tokio::select! {
        biased;
        greeted = mode.greet(&mut client, upstream) => greeted.map_err(Ending::Told),
        ending = told.as_mut() => Err(ending),
    };
    let upstream = match greeted {
        Ok(upstream) => upstream,
        Err(ending) => {
            let relay = Relay::new(client, Upstream::gone(), traffic, limits);
            return (relay, ending);
        }
    };
    let mut relay = Relay::new(client, upstream, traffic, limits);
    let ending = tokio::select! {
        biased;
        ending = told => ending,
        end = relay.run() => Ending::End(end),
    };
    (relay, ending)
}

/// Keeps the metrics of a long stream from standing still.
async fn count(open: &Open) -> Infallible {
    loop {
        tokio::time::sleep(COUNT_EVERY).await;
        open.progress();
    }
}

/// Says in the log what the stream was.
pub(super) fn log(
    caller: &Caller,
    mode: &'static str,
    workspace: &Workspace,
    reason: &CloseReason,
    traffic: &Traffic,
    lived: Duration,
) {
    let (received, sent) = (traffic.received(), traffic.sent());
    tracing::info!(
        audit_id = &*caller.audit_id,
        user = caller.user.name,
        namespace = workspace.namespace,
        workspace = workspace.name,
        mode,
        seconds = lived.as_secs_f64(),
        received_bytes = received,
        sent_bytes = sent,
        reason = reason.label(),
        "stream ended"
    );
}

/// Says in the event that closes its request's audit what the stream was.
pub(super) fn annotate(caller: &Caller, reason: &CloseReason, traffic: &Traffic, lived: Duration) {
    for (key, value) in [
        ("duration", format!("{:.3}s", lived.as_secs_f64())),
        ("received-bytes", traffic.received().to_string()),
        ("sent-bytes", traffic.sent().to_string()),
        ("end", reason.label().to_owned()),
    ] {
        caller
            .audit
            .annotate(&format!("streams.kubeworkspaces.io/{key}"), value);
    }
}

/// Waits until somebody else than its two sides ends the stream.
async fn told(
    seat: &mut Seat,
    watched: &mut Watched,
    draining: &CancellationToken,
    options: &StreamOptions,
) -> CloseReason {
    tokio::select! {
        biased;
        reason = seat.told() => reason,
        () = draining.cancelled() => CloseReason::Draining,
        reason = watched.revoked() => reason,
        () = tokio::time::sleep(options.max_duration) => CloseReason::Expired,
    }
}

/// The upstream first, then the name: whoever gets it next finds the line free.
async fn free(relay: &mut Duplex, seat: Seat) {
    relay.end_upstream().await;
    seat.release().await;
}

/// Why it ended, as precisely as can be found out.
pub(super) async fn reason(
    ending: Ending,
    finder: &Finder,
    workspace: &Workspace,
    target: &Target,
) -> CloseReason {
    let end = match ending {
        Ending::Told(CloseReason::EndedByAdmin) => {
            // The sessions of a deleted workspace or namespace are deleted with it.
            return match finder.is_deleted(workspace).await {
                true => CloseReason::Deleted,
                false => CloseReason::EndedByAdmin,
            };
        }
        Ending::Told(reason) => return reason,
        Ending::End(end) => end,
    };
    match end {
        End::ClientClosed => CloseReason::ClientClosed,
        End::ClientGone => CloseReason::ClientGone,
        End::ClientViolation(what) => CloseReason::Protocol(what),
        End::ClientStalled => CloseReason::SlowReader,
        End::Idle => CloseReason::Idle,
        End::Finished => CloseReason::Ended,
        End::InputEnded => CloseReason::EndedBoth,
        End::OutputEnded => {
            // An ordinary end of a connection, which nobody should wait to hear of.
            let cause = finder.cause_now(workspace, target).await;
            cause.unwrap_or(CloseReason::Ended)
        }
        End::Exited(Exit::Code(code)) if code > KILLED => {
            let killed = finder.cause_now(workspace, target).await;
            killed.unwrap_or(CloseReason::Exited(code))
        }
        End::Exited(Exit::Code(code)) => CloseReason::Exited(code),
        End::Exited(Exit::Signal {
            name,
            core_dumped,
            message,
        }) => {
            let killed = finder.cause_now(workspace, target).await;
            killed.unwrap_or(CloseReason::Killed {
                signal: name,
                core_dumped,
                message,
            })
        }
        End::Exited(Exit::Failed(said)) => CloseReason::Upstream(said),
        End::UpstreamFinished => {
            // Its guest may be gone, which such a way does not tell.
            let cause = finder.cause(workspace, target).await;
            cause.unwrap_or(CloseReason::Ended)
        }
        End::UpstreamClosed(said) => {
            let cause = finder.cause(workspace, target).await;
            let unexplained = match said {
                Some((_, said)) if !said.is_empty() => CloseReason::Upstream(said),
                _ => CloseReason::CutByUpstream,
            };
            cause.unwrap_or(unexplained)
        }
        End::UpstreamLost(inside) => {
            tracing::info!(workspace = workspace.name, inside, "an upstream was lost");
            let cause = finder.cause(workspace, target).await;
            cause.unwrap_or(CloseReason::CutByUpstream)
        }
    }
}
