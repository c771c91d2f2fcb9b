//! Connections to ports of guests and containers.
//!
//! Entry point: [`port`]. A guest's port is reached over the pod network, at the addresses of the
//! launcher pod that [`super::resolve`] has proved by its UID ([`address`]), never at one that a guest
//! reports; where that network does not lead there, by KubeVirt's portforward, if it dials one of
//! the same addresses. A container's port is reached by `pods/portforward`.

pub mod address;
pub mod tcp;

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use apiserver_generic::{ApiError, Reason};
use apiservice::v1alpha1::GROUP;

use self::tcp::{DialError, Failure};
use super::{
    mode::Dialling,
    relay::Upstream,
    resolve::{Container, Machine, Target, Unresolved, Workspace},
    upstream::{self, Address},
    wire::UpstreamWire,
};

/// How long a dial may take.
const LIMIT: Duration = Duration::from_secs(10);
/// How long the pod network is tried first where there is another way.
const FIRST: Duration = Duration::from_secs(3);

/// Connects to a port of what was found.
///
/// # Errors
/// The address and what it answered, or why it is not dialled at all.
pub async fn port(dialling: &Dialling<'_>, port: u16) -> Result<Upstream, ApiError> {
    match &dialling.found.target {
        Target::Machine(machine) => guest(dialling, machine, port).await,
        Target::Container(container) => pod(dialling, container, port).await,
    }
}

async fn guest(
    dialling: &Dialling<'_>,
    machine: &Machine,
    port: u16,
) -> Result<Upstream, ApiError> {
    let workspace = dialling.workspace;
    let pod = dialling.finder.launcher(workspace, machine).await?;
    let refused = |refused: address::Refused| match refused {
        address::Refused::Nothing => {
            Unresolved::Starting(refused.to_string()).into_error(&workspace.name)
        }
        refused => conflict(dialling, &refused.to_string()),
    };
    let addresses = address::of_pod(&pod).map_err(refused)?;
    let reported = dialling.found.features.reported_address.as_deref();
    let other_way = address::is_one_of(reported, &addresses);
    let sockets: Vec<_> = addresses
        .iter()
        .map(|ip| SocketAddr::new(*ip, port))
        .collect();
    let limit = if other_way { FIRST } else { LIMIT };
    match dialling.network.connect(&sockets, limit).await {
        Ok(io) => Ok(Upstream::Bytes(io, None)),
        Err(error) if other_way => {
            through_kubevirt(dialling, machine, (port, &addresses), &error).await
        }
        Err(error) => Err(unreached(&error)),
    }
}

/// The other way. A refusal on the first may have come from something in between, such as a policy
/// that rejects; if it was the guest's, its words are the better ones.
///
/// KubeVirt dials what the guest reports at that moment, which the guest may change at any time: it
/// is looked at right before and again before the first byte passes.
async fn through_kubevirt(
    dialling: &Dialling<'_>,
    machine: &Machine,
    (port, addresses): (u16, &[IpAddr]),
    error: &DialError,
) -> Result<Upstream, ApiError> {
    let Workspace {
        namespace, name, ..
    } = dialling.workspace;
    tracing::info!(%error, namespace, workspace = name, "trying KubeVirt's portforward");
    if !leads_to(dialling, machine, addresses).await? {
        return Err(unreached(error));
    }
    let address = Address::guest_port(namespace, &machine.name, port);
    match upstream::dial(dialling.client, &address).await {
        Ok(_) if !leads_to(dialling, machine, addresses).await? => Err(conflict(
            dialling,
            "the guest reports an address that is not its pod's, and KubeVirt is not asked to dial that",
        )),
        Ok(dialled) => Ok(Upstream::frames(dialled.io, UpstreamWire::GuestPort)),
        Err(_) if error.failure == Failure::Refused => Err(unreached(error)),
        Err(other) => Err(other),
    }
}

/// Whether what KubeVirt dials for the machine is an address of its pod.
async fn leads_to(
    dialling: &Dialling<'_>,
    machine: &Machine,
    addresses: &[IpAddr],
) -> Result<bool, ApiError> {
    let (finder, workspace) = (dialling.finder, dialling.workspace);
    let reported = finder.reported_address(workspace, machine).await?;
    Ok(address::is_one_of(reported.as_deref(), addresses))
}

async fn pod(
    dialling: &Dialling<'_>,
    container: &Container,
    port: u16,
) -> Result<Upstream, ApiError> {
    if dialling.found.features.host_network {
        let why = format!(
            "pod {} uses its node's own network (hostNetwork), whose ports are not the workspace's",
            container.pod
        );
        return Err(conflict(dialling, &why));
    }
    let address = Address::pod_port(&dialling.workspace.namespace, &container.pod, port);
    let dialled = upstream::dial(dialling.client, &address).await?;
    match dialled.subprotocol.as_deref() {
        Some("v4.channel.k8s.io") => Ok(Upstream::frames(dialled.io, UpstreamWire::pod_port())),
        other => Err(ApiError::internal(format!(
            "pods/portforward chose the subprotocol {other:?}"
        ))),
    }
}

fn conflict(dialling: &Dialling<'_>, why: &str) -> ApiError {
    ApiError::conflict(GROUP, "workspaces", &dialling.workspace.name, why)
}

fn unreached(error: &DialError) -> ApiError {
    let advice = match error.failure {
        Failure::Refused => "nothing listens on that port of the guest, or its firewall refuses",
        Failure::Unreachable => "the guest may still be booting, or a network policy is in between",
    };
    ApiError::new(
        Reason::ServiceUnavailable,
        format!("{error}; {advice}; try again"),
    )
    .retry_after(1)
}
