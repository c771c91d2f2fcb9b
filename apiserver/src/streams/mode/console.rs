//! `workspaces/console`: the serial line of a machine, or a shell in a container.

use std::sync::Arc;

use apiserver_generic::ApiError;
use apiservice::v1alpha1::SessionMode;
use async_trait::async_trait;

use super::{Choose, Dialling, Mode};
use crate::streams::{
    negotiate::Subprotocol,
    relay::{Activity, Upstream},
    resolve::{Found, Kind, Target, Unresolved, Workspace},
    upstream::{self, Address},
    wire::{ClientWire, Stdio, UpstreamWire},
};

/// A serial line has one holder; shells do not disturb each other.
pub struct Console {
    stdio: Stdio,
}

/// Requests differ by what a shell gets for input and output.
pub fn choose() -> Choose {
    Box::new(|asked| {
        asked.without_port()?;
        Ok(Arc::new(Console { stdio: asked.stdio }))
    })
}

#[async_trait]
impl Mode for Console {
    fn label(&self) -> &'static str {
        "console"
    }

    fn session_mode(&self) -> SessionMode {
        SessionMode::Console
    }

    fn subprotocols(&self) -> &'static [Subprotocol] {
        use Subprotocol::{Binary, ChannelV4, ChannelV5, Plain};
        &[Plain, Binary, ChannelV5, ChannelV4]
    }

    fn client_wire(&self, subprotocol: Subprotocol) -> ClientWire {
        ClientWire::terminal(subprotocol)
    }

    fn is_exclusive(&self, kind: Kind) -> bool {
        kind == Kind::Vm
    }

    fn activity(&self) -> Option<Activity> {
        Some(Activity::Both)
    }

    fn check(&self, workspace: &Workspace, found: &Found) -> Result<(), ApiError> {
        match &found.target {
            Target::Machine(_) if !found.features.serial => {
                Err(Unresolved::NoSerial.into_error(&workspace.name))
            }
            Target::Machine(_) | Target::Container(_) => Ok(()),
        }
    }

    async fn dial(&self, dialling: &Dialling<'_>) -> Result<Upstream, ApiError> {
        let Workspace {
            namespace, shell, ..
        } = dialling.workspace;
        let (target, stdio) = (&dialling.found.target, self.stdio);
        let address = match target {
            Target::Machine(machine) => Address::console(namespace, &machine.name),
            Target::Container(container) => {
                Address::shell(namespace, container, shell.as_deref(), stdio)
            }
        };
        let dialled = upstream::dial(dialling.client, &address).await?;
        let wire = match (target, dialled.subprotocol.as_deref(), stdio) {
            (Target::Machine(_), ..) => UpstreamWire::Serial,
            (Target::Container(_), Some("v5.channel.k8s.io"), _)
            | (Target::Container(_), Some("v4.channel.k8s.io"), Stdio::Terminal) => {
                UpstreamWire::exec(stdio)
            }
            (Target::Container(_), other, _) => {
                return Err(ApiError::internal(format!(
                    "pods/exec chose the subprotocol {other:?}"
                )));
            }
        };
        Ok(Upstream::frames(dialled.io, wire))
    }
}
