//! `workspaces/portforward/{port}`: bytes to and from a TCP port.
//!
//! Spellings: `portforward/8080`, `portforward/http` (a declared port's name), KubeVirt's
//! `portforward/8080/tcp`, and `workspaces/demo:8080/portforward`.

use std::sync::Arc;

use apiserver_generic::{ApiError, Reason, request};
use apiservice::v1alpha1::{GROUP, SessionMode};
use async_trait::async_trait;

use super::{Choose, Dialling, Mode, Plain};
use crate::streams::{
    asked::Asked,
    dial,
    negotiate::Subprotocol,
    ports::{self, PortError, Wanted},
    relay::{Activity, Upstream},
    resolve::{Found, Kind, Unresolved, Workspace},
};

/// What clients of a port may speak.
pub(super) const SUBPROTOCOLS: &[Subprotocol] =
    &[Subprotocol::Tunnel, Subprotocol::Plain, Subprotocol::Binary];

/// A forward to one port, or a question about all.
pub struct PortForward {
    wanted: Option<Wanted>,
    undeclared: bool,
}

/// The port is in the path; `undeclared` lets every port through.
pub fn choose(undeclared: bool) -> Choose {
    Box::new(move |asked| {
        let wanted = wanted(asked)?;
        Ok(Arc::new(PortForward { wanted, undeclared }))
    })
}

fn wanted(asked: &Asked) -> Result<Option<Wanted>, ApiError> {
    let (port, protocol) = match asked.rest.as_slice() {
        [] => (None, None),
        [port] => (Some(port), None),
        [port, protocol] => (Some(port), Some(protocol)),
        _ => {
            return Err(ApiError::new(
                Reason::NotFound,
                "the server could not find the requested resource",
            ));
        }
    };
    check_protocol(protocol.map_or("tcp", String::as_str))?;
    let port = match (port, &asked.named_port) {
        (Some(one), Some(other)) if one != other => {
            return Err(ApiError::bad_request(format!(
                "the path names two ports, {other:?} and {one:?}: name one"
            )));
        }
        (one, other) => one.or(other.as_ref()),
    };
    if port.is_none() && request::first(&asked.query, "ports").is_some() {
        return Err(nameless(&asked.name));
    }
    let read = |port: &String| Wanted::read(port).map_err(|e| ApiError::bad_request(e.to_string()));
    port.map(read).transpose()
}

fn check_protocol(protocol: &str) -> Result<(), ApiError> {
    match protocol.to_ascii_lowercase().as_str() {
        "tcp" => Ok(()),
        "udp" => Err(udp()),
        _ => Err(ApiError::bad_request(
            "only TCP ports are forwarded: portforward/{port} or portforward/{port}/tcp",
        )),
    }
}

fn udp() -> ApiError {
    ApiError::bad_request(
        "UDP is not forwarded: a stream has no datagrams; reach a UDP port through the workspace's Service",
    )
}

fn nameless(workspace: &str) -> ApiError {
    ApiError::bad_request(format!(
        "which port? Name it in the path: workspaces/{workspace}/portforward/8080"
    ))
}

impl PortForward {
    fn number(&self, workspace: &Workspace) -> Result<u16, ApiError> {
        let wanted = self.wanted.as_ref();
        let wanted = wanted.ok_or_else(|| nameless(&workspace.name))?;
        ports::find(wanted, &workspace.ports, self.undeclared)
            .map_err(|error| refused(&error, workspace))
    }
}

/// A port that is not forwarded is forbidden; everything else is a fault of the request.
pub(in crate::streams) fn refused(error: &PortError, workspace: &Workspace) -> ApiError {
    match error {
        PortError::Datagrams(_) => udp(),
        PortError::Undeclared { .. } => ApiError::new(Reason::Forbidden, error.to_string()).about(
            GROUP,
            "workspaces",
            &workspace.name,
        ),
        PortError::Malformed(_) | PortError::Unknown { .. } => {
            ApiError::bad_request(error.to_string())
        }
    }
}

#[async_trait]
impl Mode for PortForward {
    fn label(&self) -> &'static str {
        "portforward"
    }

    fn session_mode(&self) -> SessionMode {
        SessionMode::Portforward
    }

    fn port(&self, workspace: &Workspace) -> Option<u16> {
        self.number(workspace).ok()
    }

    fn subprotocols(&self) -> &'static [Subprotocol] {
        SUBPROTOCOLS
    }

    fn plain(&self) -> Plain {
        Plain::Own
    }

    fn is_exclusive(&self, _: Kind) -> bool {
        false
    }

    fn activity(&self) -> Option<Activity> {
        None
    }

    fn check(&self, workspace: &Workspace, found: &Found) -> Result<(), ApiError> {
        self.number(workspace)?;
        running(workspace, found)
    }

    async fn dial(&self, dialling: &Dialling<'_>) -> Result<Upstream, ApiError> {
        dial::port(dialling, self.number(dialling.workspace)?).await
    }
}

/// A paused machine answers no connection.
pub(in crate::streams) fn running(workspace: &Workspace, found: &Found) -> Result<(), ApiError> {
    match found.features.paused {
        true => Err(Unresolved::Paused.into_error(&workspace.name)),
        false => Ok(()),
    }
}
