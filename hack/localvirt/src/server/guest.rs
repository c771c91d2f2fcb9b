//! What is done to a guest by its launcher: `pause`, `unpause`, `reset`, `softreboot`, and a picture.

use serde::Deserialize;
use tokio::io::AsyncReadExt as _;

use super::{
    cluster::Cluster,
    reply::Failure,
    require,
    route::{GuestVerb, Named},
};
use crate::{
    api::Instance,
    dial::{Answer, Launchers},
    launcher::protocol::{Action, Reply, Request},
};

/// Largest picture that is passed on: a raw 4K screen.
const MAX_IMAGE: u64 = 32 << 20;

/// The body of such a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Options {
    /// `["All"]` does nothing.
    pub dry_run: Vec<String>,
}

/// Checks, and has the launcher do it.
///
/// # Errors
/// When the guest's state forbids it, or the launcher fails.
pub async fn perform(
    cluster: &dyn Cluster,
    launchers: &dyn Launchers,
    object: &Named,
    verb: GuestVerb,
    options: &Options,
) -> Result<(), Failure> {
    let vmi = cluster.instance(object).await?;
    let action = match verb {
        GuestVerb::Pause => require::pause(&vmi).map(|()| Action::Pause),
        GuestVerb::Unpause => require::unpause(&vmi).map(|()| Action::Unpause),
        GuestVerb::Reset => require::reset(&vmi).map(|()| Action::Reset),
        GuestVerb::SoftReboot => require::soft_reboot(&vmi).map(|()| Action::SoftReboot),
    }?;
    if options.dry_run.iter().any(|d| d == "All") {
        return Ok(());
    }
    let answer = ask(cluster, launchers, &vmi, &Request::Act { action }).await?;
    match answer.reply {
        Reply::Done => Ok(()),
        other => Err(refused(other)),
    }
}

/// The display as PNG.
///
/// # Errors
/// When there is none, or the launcher fails.
pub async fn screenshot(
    cluster: &dyn Cluster,
    launchers: &dyn Launchers,
    object: &Named,
) -> Result<Vec<u8>, Failure> {
    let vmi = cluster.instance(object).await?;
    require::vnc(&vmi)?;
    let mut answer = ask(cluster, launchers, &vmi, &Request::Screendump).await?;
    let length = match answer.reply {
        Reply::Image { length } if length <= MAX_IMAGE => length,
        Reply::Image { length } => {
            return Err(Failure::Internal(format!(
                "a picture of {length} bytes is too large"
            )));
        }
        other => return Err(refused(other)),
    };
    let mut image = vec![0; usize::try_from(length).map_err(Failure::internal)?];
    answer
        .stream
        .read_exact(&mut image)
        .await
        .map_err(Failure::internal)?;
    Ok(image)
}

async fn ask(
    cluster: &dyn Cluster,
    launchers: &dyn Launchers,
    vmi: &Instance,
    request: &Request,
) -> Result<Answer, Failure> {
    let target = cluster.launcher(vmi).await?;
    launchers
        .ask(&target, request)
        .await
        .map_err(Failure::internal)
}

/// KubeVirt's words for a virt-handler that says no.
fn refused(reply: Reply) -> Failure {
    let text = match reply {
        Reply::Refused { message, .. } => message,
        _ => "the launcher answered another question".to_owned(),
    };
    Failure::Internal(format!(
        "unexpected return code 500 (500 Internal Server Error), message: {text}"
    ))
}
