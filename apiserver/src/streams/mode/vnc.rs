//! `workspaces/vnc`: a machine's display, RFB from end to end.
//!
//! KubeVirt has one viewer at a time and would drop the old for a new one; with `preserveSession` it
//! refuses instead. It may still hold a viewer that we have just ended, at whichever replica: that is waited for.

use std::{sync::Arc, time::Duration};

use apiserver_generic::ApiError;
use apiservice::v1alpha1::SessionMode;
use async_trait::async_trait;
use tokio::time::{Instant, sleep, timeout};

use super::{Choose, Dialling, Mode, instead};
use crate::{
    sessions::Predecessor,
    streams::{
        negotiate::Subprotocol,
        relay::{Activity, Upstream},
        resolve::{Found, Kind, Machine, Target, Unresolved, Workspace},
        upstream::{self, Address, errors::HELD_OUTSIDE},
        wire::UpstreamWire,
    },
};

/// Between two tries at a display whose viewer may be one of ours that KubeVirt has not let go of.
const AGAIN: Duration = Duration::from_millis(250);
/// How long the sessions may take to tell whether it is. Then it is tried again in any case.
const KNOWN: Duration = Duration::from_secs(1);

/// Displays.
pub struct Vnc;

/// Every request means the same.
pub fn choose() -> Choose {
    let mode: Arc<dyn Mode> = Arc::new(Vnc);
    Box::new(move |asked| asked.without_port().map(|()| mode.clone()))
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
        let Target::Machine(Machine { name, .. }) = &dialling.found.target else {
            return Err(ApiError::internal("a display of a container was dialled"));
        };
        let preserve = !dialling.takeover;
        let address = Address::display(&dialling.workspace.namespace, name, preserve);
        let began = Instant::now();
        loop {
            let error = match upstream::dial(dialling.client, &address).await {
                Ok(dialled) => return Ok(Upstream::frames(dialled.io, UpstreamWire::Display)),
                Err(error) => error,
            };
            if !is_held_outside(&error) || !may_be_ours(dialling.before.as_ref(), began).await {
                return Err(error);
            }
            sleep(AGAIN).await;
        }
    }
}

/// Whether KubeVirt may still see a viewer of ours, so that another try makes sense.
async fn may_be_ours(before: Option<&Predecessor>, began: Instant) -> bool {
    let Some(before) = before else {
        return false;
    };
    // A viewer that was ended before our claim does not linger longer than one that was ended at it.
    let latest = began + before.lingers();
    let until = timeout(KNOWN, before.lingers_until()).await;
    Instant::now() + AGAIN < until.map_or(latest, |until| until.min(latest))
}

fn is_held_outside(error: &ApiError) -> bool {
    let details = error.details.as_ref();
    details.is_some_and(|details| details.causes.iter().any(|c| c.reason == HELD_OUTSIDE))
}
