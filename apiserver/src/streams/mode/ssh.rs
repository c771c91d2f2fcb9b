//! `workspaces/ssh`: `?mode=tunnel` carries bytes to the guest's SSH server, for a native client.

use std::sync::Arc;

use apiserver_generic::{ApiError, request};
use apiservice::v1alpha1::SessionMode;
use async_trait::async_trait;

use super::{Choose, Dialling, Mode, instead, portforward};
use crate::streams::{
    asked::Asked,
    dial,
    negotiate::Subprotocol,
    ports,
    relay::{Activity, Upstream},
    resolve::{Found, Kind, Target, Workspace},
};

/// The guest's SSH server.
pub struct Tunnel;

/// The query says which of the two is meant.
pub fn choose() -> Choose {
    let tunnel: Arc<dyn Mode> = Arc::new(Tunnel);
    Box::new(move |asked| {
        asked.without_port()?;
        match mode(asked).as_str() {
            "tunnel" => Ok(tunnel.clone()),
            "terminal" => Err(ApiError::bad_request(
                "this server has no SSH client of its own; connect with ?mode=tunnel and a native one: kubectl workspace ssh",
            )),
            _ => Err(ApiError::bad_request(
                "mode must be terminal (the server is the SSH client) or tunnel (bytes to the guest's SSH server)",
            )),
        }
    })
}

fn mode(asked: &Asked) -> String {
    request::first(&asked.query, "mode").unwrap_or_else(|| "terminal".to_owned())
}

#[async_trait]
impl Mode for Tunnel {
    fn label(&self) -> &'static str {
        "ssh-tunnel"
    }

    fn session_mode(&self) -> SessionMode {
        SessionMode::Ssh
    }

    fn port(&self, _: &Workspace) -> Option<u16> {
        Some(ports::SSH)
    }

    fn subprotocols(&self) -> &'static [Subprotocol] {
        portforward::SUBPROTOCOLS
    }

    fn is_exclusive(&self, _: Kind) -> bool {
        false
    }

    fn activity(&self) -> Option<Activity> {
        None
    }

    fn check(&self, workspace: &Workspace, found: &Found) -> Result<(), ApiError> {
        match &found.target {
            Target::Container(container) if !ports::declares(&workspace.ports, ports::SSH) => {
                Err(instead(
                    "declares no port 22 for an SSH server",
                    workspace,
                    container,
                ))
            }
            Target::Container(_) | Target::Machine(_) => portforward::running(workspace, found),
        }
    }

    async fn dial(&self, dialling: &Dialling<'_>) -> Result<Upstream, ApiError> {
        dial::port(dialling, ports::SSH).await
    }
}
