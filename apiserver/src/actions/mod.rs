//! Actions on workspaces: `start`, `stop`, `reboot` and `reset`; and `userdata`.
//!
//! Entry point: [`handlers`]. **One rule says whether a workspace is to run: the annotation
//! `kubeworkspaces.io/stopped`.** `start` and `stop` write it on behalf of a caller who may act but
//! not edit; the controller obeys the annotation and knows nothing of actions. `reboot` and `reset`
//! change no workspace: they act once on what runs it.
//!
//! What is reached is found by UIDs from the Workspace, as streams do: our rights reach every machine
//! and pod, the caller's one Workspace. Deletions carry the UID; KubeVirt's own actions cannot, and
//! follow the check at once.

mod decide;
mod machine;
mod pods;
mod power;
#[cfg(test)]
mod tests;
mod userdata;

use std::sync::Arc;

use apiserver_generic::{
    ApiError, Body, Call, Connect, Object, Reason, Registry, Resource, endpoints::Action,
    resource::OptionsKind,
};
use async_trait::async_trait;
use http::Response;
use kube::Client;

use crate::streams::resolve::fetch::Fetch;

/// What actions need.
struct Deps {
    client: Client,
    fetch: Fetch,
    workspaces: Registry,
    images: Registry,
}

/// A subresource and its handler.
pub type Handler = (&'static str, Arc<dyn Connect>);

/// The subresources and their handlers.
pub fn handlers(client: &Client, workspaces: &Registry, images: &Registry) -> Vec<Handler> {
    let deps = Arc::new(Deps {
        client: client.clone(),
        fetch: Fetch::new(client.clone()),
        workspaces: workspaces.clone(),
        images: images.clone(),
    });
    let act = |verb: Verb| -> Handler {
        let deps = deps.clone();
        (verb.name(), Arc::new(Act { deps, verb }))
    };
    vec![
        act(Verb::Start),
        act(Verb::Stop),
        act(Verb::Reboot),
        act(Verb::Reset),
        (
            "userdata",
            Arc::new(userdata::UserData { deps: deps.clone() }),
        ),
    ]
}

/// An action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Start,
    Stop,
    Reboot,
    Reset,
}

impl Verb {
    fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Reboot => "reboot",
            Self::Reset => "reset",
        }
    }
}

struct Act {
    deps: Arc<Deps>,
    verb: Verb,
}

#[async_trait]
impl Connect for Act {
    async fn connect(&self, call: Call) -> Result<Response<Body>, ApiError> {
        let row = self.deps.workspaces.resource();
        let action = Action::read(call, row, options(row, self.verb)?).await?;
        let outcome = match self.verb {
            Verb::Start => power::start(&self.deps, &action).await?,
            Verb::Stop => power::stop(&self.deps, &action).await?,
            Verb::Reboot => machine::reboot(&self.deps, &action).await?,
            Verb::Reset => machine::reset(&self.deps, &action).await?,
        };
        action.audit.annotate(
            "actions.kubeworkspaces.io/changed",
            (outcome.changed && !action.writer.dry_run).to_string(),
        );
        action.done(row, &outcome.workspace, &outcome.message)
    }
}

/// What an action came to.
struct Outcome {
    workspace: Object,
    changed: bool,
    message: String,
}

fn options(row: &Resource, verb: Verb) -> Result<&OptionsKind, ApiError> {
    row.subresource(verb.name())
        .and_then(|sub| row.options(sub.kind))
        .ok_or_else(|| ApiError::internal(format!("{} has no options", verb.name())))
}

/// 409: the state of the workspace does not allow it.
fn conflict(workspace: &str, why: &str) -> ApiError {
    ApiError::conflict("kubeworkspaces.io", "workspaces", workspace, why)
}

/// 503: the cluster or KubeVirt did not answer.
fn unavailable(error: impl std::fmt::Display) -> ApiError {
    let text = "the workspace's machine or pod could not be reached; try again";
    ApiError::new(Reason::ServiceUnavailable, text)
        .retry_after(1)
        .because(error)
}
