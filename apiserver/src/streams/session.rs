//! An accepted stream from the upgrade to its end.

use std::{
    convert::Infallible,
    sync::Arc,
    time::{Duration, Instant},
};

use apiserver_generic::{Attributes, Authorizer, UserInfo, audit::Record};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio_util::sync::CancellationToken;

use super::{
    asked::Asked,
    close::CloseReason,
    console::StreamOptions,
    metrics::StreamMetrics,
    negotiate::Subprotocol,
    recheck,
    relay::{End, Limits, Relay, Traffic},
    resolve::Workspace,
    target::{Finder, Target},
    wire::{ClientWire, Exit, UpstreamWire},
};
use crate::sessions::{Counters, Held};

/// How long the client's connection may take to be ours after the 101.
const UPGRADE_LIMIT: Duration = Duration::from_secs(10);
/// How often a session's counters are written.
const COUNT_EVERY: Duration = Duration::from_secs(60);
/// Exit statuses from here on mean that the command was killed by a signal.
const KILLED: i32 = 128;

const MODE: &str = "console";

type Duplex = Relay<TokioIo<Upgraded>, TokioIo<Upgraded>>;

/// Who opened the stream, for the log and for re-checks.
pub(super) struct Caller {
    user: UserInfo,
    audit_id: Arc<str>,
    /// Writes the stream's last event when it is dropped.
    audit: Record,
    authorizer: Arc<dyn Authorizer>,
    permissions: Vec<Attributes>,
}

impl Caller {
    /// Of this request.
    pub(super) fn of(asked: Asked) -> Self {
        Self {
            permissions: vec![asked.attributes.clone(), asked.create()],
            user: asked.user,
            audit_id: asked.audit_id,
            audit: asked.audit,
            authorizer: asked.authorizer,
        }
    }
}

/// A stream whose upstream is connected and whose client is about to be.
pub(super) struct Accepted {
    pub(super) upgrade: OnUpgrade,
    pub(super) subprotocol: Subprotocol,
    pub(super) upstream: TokioIo<Upgraded>,
    pub(super) wire: UpstreamWire,
    pub(super) workspace: Workspace,
    pub(super) target: Target,
    pub(super) held: Option<Held>,
    pub(super) caller: Caller,
    pub(super) draining: CancellationToken,
    pub(super) finder: Finder,
    pub(super) metrics: StreamMetrics,
    pub(super) options: StreamOptions,
    pub(super) set_up: Instant,
}

/// What ended a stream.
enum Ending {
    /// One of its sides.
    End(End),
    /// Somebody else, for this reason.
    Told(CloseReason),
}

impl Accepted {
    /// Carries the stream to its end and releases what it held.
    pub(super) async fn run(self) {
        let Self {
            upgrade,
            subprotocol,
            upstream,
            wire,
            workspace,
            target,
            mut held,
            caller,
            draining,
            finder,
            metrics,
            options,
            set_up,
        } = self;
        let client = match tokio::time::timeout(UPGRADE_LIMIT, upgrade).await {
            Ok(Ok(client)) => TokioIo::new(client),
            failed => {
                tracing::info!(
                    audit_id = &*caller.audit_id,
                    ?failed,
                    "the client was gone before the upgrade"
                );
                if let Some(held) = held {
                    held.release().await;
                }
                return;
            }
        };
        let began = Instant::now();
        metrics.opened(MODE, began.duration_since(set_up));
        let traffic = Arc::new(Traffic::new(tokio::time::Instant::now().into_std()));
        let limits = Limits {
            pace: options.pace,
            idle_after: options.idle_after,
        };
        let client = (client, ClientWire::new(subprotocol));
        let mut relay = Relay::new(client, (upstream, wire), traffic.clone(), limits);
        let counting = count(held.as_ref().map(Held::counters), traffic.clone());
        let ending = tokio::select! {
            ending = ending(&mut relay, held.as_mut(), &caller, &draining, &options) => ending,
            never = counting => match never {},
        };
        let finding = reason(ending, &finder, &workspace, &target);
        let (reason, ()) = tokio::join!(finding, free(&mut relay, held));
        metrics.closed(MODE, &reason, &traffic);
        record(&caller, &workspace, &reason, &traffic, began.elapsed());
        relay.end_client(&reason).await;
    }
}

/// Writes the counters of a session now and then, while they change.
async fn count(counters: Option<Counters>, traffic: Arc<Traffic>) -> Infallible {
    let Some(counters) = counters else {
        return std::future::pending().await;
    };
    let mut written = (0, 0);
    loop {
        tokio::time::sleep(COUNT_EVERY).await;
        let passed = (traffic.received(), traffic.sent());
        if passed != written {
            let now = tokio::time::Instant::now().into_std();
            counters.write(passed.0, passed.1, traffic.idle(now)).await;
            written = passed;
        }
    }
}

/// Says what the stream was: in the log, and in the event that closes its request's audit.
fn record(
    caller: &Caller,
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
        mode = MODE,
        seconds = lived.as_secs_f64(),
        received_bytes = received,
        sent_bytes = sent,
        reason = reason.label(),
        "stream ended"
    );
    for (key, value) in [
        ("duration", format!("{:.3}s", lived.as_secs_f64())),
        ("received-bytes", received.to_string()),
        ("sent-bytes", sent.to_string()),
        ("end", reason.label().to_owned()),
    ] {
        caller
            .audit
            .annotate(&format!("streams.kubeworkspaces.io/{key}"), value);
    }
}

/// Relays until something ends the stream.
async fn ending(
    relay: &mut Duplex,
    held: Option<&mut Held>,
    caller: &Caller,
    draining: &CancellationToken,
    options: &StreamOptions,
) -> Ending {
    let told = async {
        match held {
            Some(held) => held.told().await,
            None => std::future::pending().await,
        }
    };
    let revoked = recheck::revoked(
        caller.authorizer.clone(),
        caller.user.clone(),
        caller.permissions.clone(),
        options.recheck,
    );
    tokio::select! {
        biased;
        reason = told => Ending::Told(reason),
        () = draining.cancelled() => Ending::Told(CloseReason::Draining),
        reason = revoked => Ending::Told(reason),
        () = tokio::time::sleep(options.max_duration) => Ending::Told(CloseReason::Expired),
        end = relay.run() => Ending::End(end),
    }
}

/// The upstream first, then the name: whoever gets it next finds the line free.
async fn free(relay: &mut Duplex, held: Option<Held>) {
    relay.end_upstream().await;
    if let Some(held) = held {
        held.release().await;
    }
}

/// Why it ended, as precisely as can be found out.
async fn reason(
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
        End::Exited(Exit::Code(code)) if code > KILLED => {
            let killed = finder.cause_now(workspace, target).await;
            killed.unwrap_or(CloseReason::Exited(code))
        }
        End::Exited(Exit::Code(code)) => CloseReason::Exited(code),
        End::Exited(Exit::Failed(said)) => CloseReason::Upstream(said),
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
