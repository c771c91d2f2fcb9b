//! Importing images into the node, for steps that have built some.

use std::path::PathBuf;

use super::Context;
use crate::root::elevate;

/// Imports OCI archives into the node of `context`; those that it has already are left alone.
pub async fn import(context: &Context, archives: &[PathBuf]) -> anyhow::Result<()> {
    let mut words = context.root_command("root-import");
    words.extend(
        archives
            .iter()
            .map(|archive| archive.clone().into_os_string()),
    );
    Ok(tokio::task::spawn_blocking(move || elevate(&words)).await??)
}
