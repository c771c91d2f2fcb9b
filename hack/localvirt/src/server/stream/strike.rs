//! Where [`faults`](crate::faults) strike: before a stream is opened, and while it runs.

use std::time::Duration;

use tokio::{
    pin,
    time::{sleep, timeout},
};

use crate::{
    api::Instance,
    checker::Excuse,
    faults::{Fault, Plan, Planned, StreamKind, Subscription},
    server::reply::Failure,
};

/// Nobody watches a stalled stream's connection, so one that its client left goes after this time.
pub const LONGEST_STALL: Duration = Duration::from_secs(120);

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// By itself, or it died: either way the connection is closed.
    Closed,
    /// The connection is to be reset.
    Reset,
}

/// The instance's plan, unless it keeps a new stream of this kind from being opened.
///
/// # Errors
/// When the plan refuses the stream, or cannot be read.
pub async fn before(vmi: &Instance, kind: StreamKind) -> Result<Plan, Failure> {
    let plan = Plan::of(&vmi.meta).map_err(Failure::internal)?;
    match plan.on(kind) {
        Some(Planned {
            fault: Fault::Refuse,
            after,
        }) => {
            sleep(after).await;
            let node = vmi.node_name.as_deref().unwrap_or_default();
            // What virt-api says of a virt-handler that does not listen.
            let text = format!("dial tcp {node}:8186: connect: connection refused");
            Err(Failure::Internal(text))
        }
        // The caller's patience ends it, or this server's end.
        Some(Planned {
            fault: Fault::Hang, ..
        }) => std::future::pending().await,
        _ => Ok(plan),
    }
}

/// Runs a relay under its instance's plan; no stall lasts longer than `longest` ([`LONGEST_STALL`] but for tests).
pub async fn under(
    relay: impl Future<Output = ()>,
    kind: StreamKind,
    mut plan: Subscription,
    excuse: Option<&Excuse>,
    longest: Duration,
) -> Outcome {
    pin!(relay);
    loop {
        let due = due(plan.now(kind));
        // What is due at once strikes before a byte is moved.
        let fault = tokio::select! {
            biased;
            fault = due => fault,
            () = plan.changed() => continue,
            () = &mut relay => return Outcome::Closed,
        };
        match fault {
            Fault::Reset => return Outcome::Reset,
            Fault::Stall => {
                if let Some(excuse) = excuse {
                    excuse.apply();
                }
                // The relay is not polled meanwhile: nothing moves.
                if timeout(longest, lifted(&mut plan, kind)).await.is_err() {
                    return Outcome::Closed;
                }
            }
            Fault::Die | Fault::Refuse | Fault::Hang => return Outcome::Closed,
        }
    }
}

/// Waits until the fault is due; forever if there is none, or one that only new streams meet.
async fn due(planned: Option<Planned>) -> Fault {
    match planned {
        Some(Planned {
            fault: fault @ (Fault::Die | Fault::Reset | Fault::Stall),
            after,
        }) => {
            if !after.is_zero() {
                sleep(after).await;
            }
            fault
        }
        _ => std::future::pending().await,
    }
}

async fn lifted(plan: &mut Subscription, kind: StreamKind) {
    while plan.now(kind).is_some_and(|p| p.fault == Fault::Stall) {
        plan.changed().await;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::sync::mpsc;

    use super::*;
    use crate::{
        faults::{ANNOTATION, Faults},
        testing::instance,
    };

    const KIND: StreamKind = StreamKind::Console;

    fn vmi(plan: &str) -> Instance {
        let mut vmi = instance(json!({"domain": {}}), json!({"nodeName": "node1"}));
        vmi.meta.annotations = Some([(ANNOTATION.to_owned(), plan.to_owned())].into());
        vmi
    }

    #[tokio::test]
    async fn a_refusal_is_kubevirts_and_other_kinds_do_not_meet_it() {
        let vmi = vmi("console=refuse");
        let refused = before(&vmi, KIND).await.unwrap_err();
        let text = "dial tcp node1:8186: connect: connection refused";
        assert!(refused.to_string().ends_with(text), "{refused}");
        before(&vmi, StreamKind::Vnc).await.unwrap();
    }

    #[tokio::test]
    async fn a_plan_that_cannot_be_read_is_an_error_of_the_stream() {
        let refused = before(&vmi("console=burn"), KIND).await.unwrap_err();
        assert_eq!(refused.code(), 500);
        assert!(refused.to_string().contains(ANNOTATION), "{refused}");
    }

    /// Long enough for what must not happen.
    const MOMENT: Duration = Duration::from_millis(30);

    fn run(plan: &str, longest: Duration) -> impl Future<Output = Outcome> {
        let plan = Faults::default().subscribe("a", plan.parse().unwrap());
        under(std::future::pending(), KIND, plan, None, longest)
    }

    #[tokio::test]
    async fn a_hanging_dial_is_never_answered() {
        let vmi = vmi("console=hang");
        assert!(timeout(MOMENT, before(&vmi, KIND)).await.is_err());
    }

    #[tokio::test]
    async fn an_open_stream_dies_or_is_reset_when_its_time_has_come() {
        for (plan, outcome) in [
            ("console=die:30ms", Outcome::Closed),
            ("console=reset:30ms", Outcome::Reset),
        ] {
            let start = tokio::time::Instant::now();
            assert_eq!(run(plan, LONGEST_STALL).await, outcome);
            assert!(start.elapsed() >= MOMENT);
        }
        let others = run("vnc=die,console=refuse", LONGEST_STALL);
        assert!(timeout(MOMENT, others).await.is_err());
    }

    #[tokio::test]
    async fn a_stalled_stream_does_nothing_and_goes_on_when_the_plan_is_lifted() {
        let faults = Faults::default();
        let plan = faults.subscribe("a", "console=stall".parse().unwrap());
        let (sender, mut sent) = mpsc::unbounded_channel();
        let relay = async move { sender.send(()).unwrap() };
        let stalled = tokio::spawn(under(relay, KIND, plan, None, LONGEST_STALL));
        assert!(timeout(MOMENT, sent.recv()).await.is_err());
        faults.publish("a", Plan::default());
        assert_eq!(stalled.await.unwrap(), Outcome::Closed);
        sent.try_recv().unwrap();
    }

    #[tokio::test]
    async fn no_stall_is_for_ever() {
        assert_eq!(run("console=stall", MOMENT).await, Outcome::Closed);
    }
}
