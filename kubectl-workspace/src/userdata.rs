//! `kubectl workspace userdata`: the cloud-init user-data that a machine boots with. Entry point: [`userdata`].

use http::Method;

use crate::cli;
use crate::cluster::Cluster;
use crate::say;

/// Prints it as it is.
pub async fn userdata(cluster: &Cluster, options: cli::UserData) -> anyhow::Result<u8> {
    let target = cluster.target(options.workspace)?;
    let path = format!("{}/userdata", target.path());
    let text = cluster
        .bytes(Method::GET, &path, "text/plain, */*;q=0.5", None)
        .await?;
    say::bytes(&text)?;
    Ok(0)
}
