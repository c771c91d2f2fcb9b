//! `workspaces/ssh`: `?mode=tunnel` carries bytes to the guest's SSH server, for a native client;
//! `?mode=terminal` is [`super::terminal`].

use std::sync::Arc;

use apiserver_generic::{ApiError, request};
use apiservice::v1alpha1::SessionMode;
use async_trait::async_trait;
use tokio_util::task::TaskTracker;

use super::{Choose, Dialling, Mode, instead, portforward, terminal::SshTerminal};
use crate::streams::{
    asked::Asked,
    dial,
    negotiate::Subprotocol,
    opening::Streams,
    ports,
    relay::{Activity, Upstream},
    resolve::{Found, Kind, Target, Workspace},
    ssh::hostkeys::{Hosts, OnChange, subject},
    wire::Size,
};

/// The guest's SSH server.
pub struct Tunnel {
    hosts: Arc<dyn Hosts>,
    tasks: TaskTracker,
    change: OnChange,
}

/// The query says which of the two is meant.
pub fn choose(streams: &Streams) -> Choose {
    let (hosts, tasks) = streams.ssh();
    Box::new(move |asked| {
        asked.without_port()?;
        let (hosts, tasks) = (hosts.clone(), tasks.clone());
        let change = match asked.accepts_host_key() {
            true => OnChange::Accept,
            false => OnChange::Refuse,
        };
        match mode(asked).as_str() {
            "tunnel" => Ok(Arc::new(Tunnel {
                hosts,
                tasks,
                change,
            })),
            "terminal" => {
                let size = size(asked)?;
                Ok(Arc::new(SshTerminal::new(hosts, tasks, change, size)))
            }
            _ => Err(ApiError::bad_request(
                "mode must be terminal (the server is the SSH client) or tunnel (bytes to the guest's SSH server)",
            )),
        }
    })
}

fn mode(asked: &Asked) -> String {
    request::first(&asked.query, "mode").unwrap_or_else(|| "terminal".to_owned())
}

/// `cols` and `rows`, as the bridges before us had them.
fn size(asked: &Asked) -> Result<Option<Size>, ApiError> {
    let number = |key: &str| {
        let given = request::first(&asked.query, key);
        given
            .map(|text| text.parse().ok().filter(|n: &u16| *n > 0))
            .map(|n| n.ok_or_else(|| bad_size(key)))
            .transpose()
    };
    let (cols, rows) = (number("cols")?, number("rows")?);
    Ok(cols.zip(rows).map(|(cols, rows)| Size { cols, rows }))
}

fn bad_size(key: &str) -> ApiError {
    ApiError::bad_request(format!("{key} must be a whole number from 1 to 65535"))
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
        let subject = subject(dialling, &self.tasks).await?;
        let pin = self.hosts.pin(&subject, self.change).await?;
        self.hosts.prove(&subject, &pin).await?;
        dial::port(dialling, ports::SSH).await
    }
}
