//! `workspaces/vnc`: a machine's display, RFB from end to end.
//!
//! KubeVirt has one viewer at a time and would drop the old for a new one; with `preserveSession` it
//! refuses instead. It may still hold the viewer that we have just ended: that is waited for.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use apiserver_generic::ApiError;
use apiservice::v1alpha1::SessionMode;
use async_trait::async_trait;
use parking_lot::Mutex;

use super::{Choose, Dialling, Mode, instead};
use crate::streams::{
    negotiate::Subprotocol,
    relay::{Activity, Upstream},
    resolve::{Found, Kind, Machine, Target, Unresolved, Workspace},
    upstream::{self, Address, errors::HELD_OUTSIDE},
    wire::UpstreamWire,
};

/// How long KubeVirt may take to notice the end of a viewer of ours.
const LINGER: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_millis(250);

/// Displays.
#[derive(Default)]
pub struct Vnc {
    ended: Ended,
}

/// Every request means the same.
pub fn choose() -> Choose {
    let mode: Arc<dyn Mode> = Arc::new(Vnc::default());
    Box::new(move |asked| asked.without_port().map(|()| mode.clone()))
}

/// When we have ended a viewer of which machine, for as long as it matters.
#[derive(Debug, Default)]
struct Ended(Mutex<HashMap<String, Instant>>);

impl Ended {
    fn note(&self, uid: &str, now: Instant) {
        let mut ended = self.0.lock();
        ended.retain(|_, at| now.saturating_duration_since(*at) < LINGER);
        ended.insert(uid.to_owned(), now);
    }

    /// Until when a viewer that KubeVirt still sees may be ours.
    fn lingers_until(&self, uid: &str) -> Option<Instant> {
        self.0.lock().get(uid).map(|at| *at + LINGER)
    }
}

#[async_trait]
impl Mode for Vnc {
    fn label(&self) -> &'static str {
        "vnc"
    }

    fn session_mode(&self) -> SessionMode {
        SessionMode::Vnc
    }

    fn subprotocols(&self) -> &'static [Subprotocol] {
        &[Subprotocol::Plain, Subprotocol::Binary]
    }

    fn is_exclusive(&self, _: Kind) -> bool {
        true
    }

    fn activity(&self) -> Option<Activity> {
        Some(Activity::display())
    }

    fn check(&self, workspace: &Workspace, found: &Found) -> Result<(), ApiError> {
        match &found.target {
            Target::Container(container) => Err(instead("has no display", workspace, container)),
            Target::Machine(_) if !found.features.graphics => {
                Err(Unresolved::NoDisplay.into_error(&workspace.name))
            }
            Target::Machine(_) => Ok(()),
        }
    }

    async fn dial(&self, dialling: &Dialling<'_>) -> Result<Upstream, ApiError> {
        let Target::Machine(Machine { name, uid, .. }) = &dialling.found.target else {
            return Err(ApiError::internal("a display of a container was dialled"));
        };
        let preserve = !dialling.takeover;
        let address = Address::display(&dialling.workspace.namespace, name, preserve);
        loop {
            let error = match upstream::dial(dialling.client, &address).await {
                Ok(dialled) => return Ok(Upstream::frames(dialled.io, UpstreamWire::Display)),
                Err(error) => error,
            };
            let until = self.ended.lingers_until(uid);
            let ours = until.is_some_and(|until| Instant::now() + AGAIN < until);
            if !(ours && is_held_outside(&error)) {
                return Err(error);
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    fn ended(&self, found: &Found) {
        if let Target::Machine(machine) = &found.target {
            self.ended.note(&machine.uid, Instant::now());
        }
    }
}

fn is_held_outside(error: &ApiError) -> bool {
    let details = error.details.as_ref();
    details.is_some_and(|details| details.causes.iter().any(|c| c.reason == HELD_OUTSIDE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_viewer_that_we_have_just_ended_is_waited_for() {
        let (ended, start) = (Ended::default(), Instant::now());
        assert_eq!(ended.lingers_until("a"), None);
        ended.note("a", start);
        assert_eq!(ended.lingers_until("a"), Some(start + LINGER));
        ended.note("b", start + LINGER);
        assert_eq!(ended.lingers_until("a"), None, "forgotten");
        assert!(ended.lingers_until("b").is_some());
    }
}
