//! Which port of a workspace a request is for, and how it is reached.

use apiserver_generic::{ApiError, Reason};
use apiservice::v1alpha1::{GROUP, SessionMode};
use async_trait::async_trait;
use controller::plan::Protocol;

use crate::streams::{
    asked::Asked,
    dial,
    mode::{
        Dialling, Mode,
        portforward::{refused, running},
    },
    negotiate::Subprotocol,
    ports::{self, Wanted},
    relay::{Activity, Upstream},
    resolve::{Found, Kind, Workspace},
};

use super::request::Wants;

/// HTTP to one port.
pub(super) struct ProxyMode {
    port: Option<Wanted>,
    undeclared: bool,
    wants: Wants,
}

impl ProxyMode {
    /// What a request is for: the port behind the colon, else the first.
    ///
    /// # Errors
    /// It is no port.
    pub(super) fn of(asked: &Asked, undeclared: bool, wants: Wants) -> Result<Self, ApiError> {
        let port = asked.named_port.as_deref().map(Wanted::read).transpose();
        Ok(Self {
            port: port.map_err(|error| ApiError::bad_request(error.to_string()))?,
            undeclared,
            wants,
        })
    }

    /// The port's number.
    ///
    /// # Errors
    /// It is not declared, or nothing is.
    pub(super) fn number(&self, workspace: &Workspace) -> Result<u16, ApiError> {
        match &self.port {
            Some(wanted) => ports::find_declared(wanted, &workspace.ports, self.undeclared)
                .map_err(|error| refused(&error, workspace)),
            None => first(workspace),
        }
    }
}

fn first(workspace: &Workspace) -> Result<u16, ApiError> {
    let tcp = |port: &&controller::plan::Port| port.protocol == Protocol::Tcp;
    let port = workspace.ports.iter().find(tcp);
    port.map(|port| port.number).ok_or_else(|| {
        ApiError::new(
            Reason::BadRequest,
            format!(
                "workspace \"{}\" declares no TCP port: declare one in spec.template.spec.containers[0].ports",
                workspace.name
            ),
        )
        .about(GROUP, "workspaces", &workspace.name)
    })
}

#[async_trait]
impl Mode for ProxyMode {
    fn label(&self) -> &'static str {
        match self.wants {
            Wants::Answer => "proxy-request",
            Wants::WebSocket => "proxy",
        }
    }

    fn session_mode(&self) -> SessionMode {
        SessionMode::Proxy
    }

    fn port(&self, workspace: &Workspace) -> Option<u16> {
        self.number(workspace).ok()
    }

    /// What is spoken is the guest's business.
    fn subprotocols(&self) -> &'static [Subprotocol] {
        &[]
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
