//! `start` and `stop`: the annotation, written through the same registry as every edit.

use apiserver_generic::{ApiError, endpoints::Action};
use jiff::Timestamp;

use super::{
    Deps, Outcome,
    decide::{self, Power},
};

/// `start`.
pub(super) async fn start(deps: &Deps, action: &Action) -> Result<Outcome, ApiError> {
    match action.switch("paused") {
        true => write(deps, action, Power::Paused).await,
        false => write(deps, action, Power::On).await,
    }
}

/// `stop`.
pub(super) async fn stop(deps: &Deps, action: &Action) -> Result<Outcome, ApiError> {
    write(deps, action, Power::Off).await
}

async fn write(deps: &Deps, action: &Action, wish: Power) -> Result<Outcome, ApiError> {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let mut changed = false;
    let written = deps
        .workspaces
        .update_with(&action.writer, &action.key, None, |object| {
            changed = decide::power(object, wish, &now)?;
            Ok(())
        })
        .await?;
    Ok(Outcome {
        message: sentence(&action.key.name, wish, changed),
        workspace: written.object,
        changed,
    })
}

fn sentence(name: &str, wish: Power, changed: bool) -> String {
    let what = match (wish, changed) {
        (Power::On, true) => "is being started",
        (Power::On, false) => "is started already",
        (Power::Paused, true) => "is being started, paused",
        (Power::Paused, false) => "is being started, paused, already",
        (Power::Off, true) => "is being stopped",
        (Power::Off, false) => "is stopped already",
    };
    format!("workspace \"{name}\" {what}")
}
