//! What was seen, in one sentence: phase, readiness, and a reason that can be acted on.

use apiservice::v1alpha1::Phase;

/// The state of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) phase: Phase,
    pub(crate) ready: bool,
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl Verdict {
    pub(crate) fn ready(message: &str) -> Self {
        Self {
            phase: Phase::Running,
            ready: true,
            reason: "Ready".to_owned(),
            message: message.to_owned(),
        }
    }

    pub(crate) fn not_ready(phase: Phase, reason: &str, message: impl Into<String>) -> Self {
        Self {
            phase,
            ready: false,
            reason: reason.to_owned(),
            message: message.into(),
        }
    }

    pub(crate) fn stopped() -> Self {
        let how = "it was stopped; remove the annotation kubeworkspaces.io/stopped to start it";
        Self::not_ready(Phase::Stopped, "Stopped", how)
    }

    pub(crate) fn stopping() -> Self {
        Self::not_ready(
            Phase::Stopping,
            "Stopping",
            "it was stopped and is shutting down",
        )
    }

    pub(crate) fn terminating(finalizers: &[String]) -> Self {
        let held = match finalizers {
            [] => String::new(),
            held => format!(
                "; it goes when these finalizers are removed: {}",
                held.join(", ")
            ),
        };
        let how = format!("it is being deleted{held}");
        Self::not_ready(Phase::Terminating, "Terminating", how)
    }

    pub(crate) fn not_created() -> Self {
        Self::not_ready(
            Phase::Pending,
            "NotCreated",
            "the workload is not there yet",
        )
    }
}
