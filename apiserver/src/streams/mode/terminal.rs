//! `workspaces/ssh?mode=terminal`: this server is the SSH client, for those that have none.
//!
//! The key exchange with the guest is part of the dial, so that a host key that changed is a Status;
//! who logs in is said after the upgrade, in the first message.

use std::{sync::Arc, time::Duration};

use apiserver_generic::ApiError;
use apiservice::v1alpha1::SessionMode;
use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::{Dialling, Mode, instead, portforward};
use crate::streams::{
    close::{CloseReason, Fault},
    dial,
    negotiate::Subprotocol,
    ports,
    relay::{Activity, ClientSide, Connection, Pace, Terminal, Upstream},
    resolve::{Found, Kind, Target, Workspace},
    ssh::{
        first::{self, NoMessage},
        guest::{Guest, Screen},
        hello::Hello,
        hostkeys::{Hosts, OnChange, subject},
        key::UserKey,
        trouble::Trouble,
    },
    wire::{ClientWire, Size, SizeReader},
};

/// How long the first message may take.
const FIRST_MESSAGE: Duration = Duration::from_secs(10);
const BAD_MESSAGE: &str = "BadMessage";

/// A terminal for one request.
pub struct SshTerminal {
    hosts: Arc<dyn Hosts>,
    tasks: TaskTracker,
    change: OnChange,
    size: Option<Size>,
    /// Met before the upgrade, logged in to after it.
    guest: Mutex<Option<Guest>>,
}

impl SshTerminal {
    /// Of this size, unless the first message has another.
    pub fn new(
        hosts: Arc<dyn Hosts>,
        tasks: TaskTracker,
        change: OnChange,
        size: Option<Size>,
    ) -> Self {
        Self {
            hosts,
            tasks,
            change,
            size,
            guest: Mutex::new(None),
        }
    }
}

#[async_trait]
impl Mode for SshTerminal {
    fn label(&self) -> &'static str {
        "ssh-terminal"
    }

    fn session_mode(&self) -> SessionMode {
        SessionMode::Ssh
    }

    fn port(&self, _: &Workspace) -> Option<u16> {
        Some(ports::SSH)
    }

    fn subprotocols(&self) -> &'static [Subprotocol] {
        &[Subprotocol::Plain, Subprotocol::Binary]
    }

    fn client_wire(&self, _: Subprotocol) -> ClientWire {
        ClientWire::Ssh(SizeReader::default())
    }

    fn is_exclusive(&self, _: Kind) -> bool {
        true
    }

    fn activity(&self) -> Option<Activity> {
        Some(Activity::Both)
    }

    fn check(&self, workspace: &Workspace, found: &Found) -> Result<(), ApiError> {
        match &found.target {
            Target::Machine(_) => portforward::running(workspace, found),
            Target::Container(container) => {
                Err(instead("has no SSH terminal", workspace, container))
            }
        }
    }

    async fn dial(&self, dialling: &Dialling<'_>) -> Result<Upstream, ApiError> {
        let subject = subject(dialling, &self.tasks).await?;
        let pin = self.hosts.pin(&subject, self.change).await?;
        let upstream = dial::port(dialling, ports::SSH).await?;
        let io = upstream.into_kept_connection(Pace::default(), &self.tasks);
        match Guest::meet(io, &pin.host_keys).await {
            Ok(guest) => *self.guest.lock() = Some(guest),
            Err(Trouble::HostKey) => return Err(self.hosts.refusal(&subject, &pin).await),
            Err(trouble) => return Err(trouble.into_error(&dialling.workspace.name)),
        }
        // What is relayed comes with the login.
        Ok(Upstream::gone())
    }

    fn abandon(&self) {
        drop(self.guest.lock().take());
    }

    async fn greet(&self, client: &mut ClientSide, _: Upstream) -> Result<Upstream, CloseReason> {
        let guest = self.guest.lock().take();
        let guest = guest.ok_or(CloseReason::CutByUpstream)?;
        let hello = hello(&mut client.io).await?;
        let screen = Screen {
            term: hello.term.clone(),
            size: hello.size.or(self.size),
        };
        let (user, key) = UserKey::read(hello)
            .await
            .map_err(|bad| refused(&Trouble::Key(bad)))?;
        let entered = guest.log_in(&user, key, &screen, &self.tasks).await;
        let shell = entered.map_err(|trouble| refused(&trouble))?;
        let terminal = Terminal {
            sizes: shell.sizes,
            exit: shell.exit,
        };
        Ok(Upstream::bytes(shell.io, Some(terminal)))
    }
}

async fn hello(io: &mut Box<dyn Connection>) -> Result<Hello, CloseReason> {
    let late = || {
        let seconds = FIRST_MESSAGE.as_secs();
        bad(
            Fault::Client,
            format!(
                "no first message within {seconds} s; send {{\"type\":\"ssh\",\"user\":…,\"privateKey\":…}}"
            ),
        )
    };
    let message = timeout(FIRST_MESSAGE, first::message(io)).await;
    let message = message.map_err(|_| late())?.map_err(|none| match none {
        NoMessage::Closed => CloseReason::ClientClosed,
        NoMessage::Gone(_) => CloseReason::ClientGone,
        NoMessage::Violation(violation) => CloseReason::Protocol(violation.0),
        NoMessage::NotText => bad(Fault::Client, none.to_string()),
        NoMessage::TooLong => bad(Fault::TooLong, none.to_string()),
    })?;
    Hello::read(message).map_err(|misread| bad(Fault::Client, misread.to_string()))
}

fn bad(fault: Fault, message: String) -> CloseReason {
    CloseReason::NoTerminal {
        fault,
        reason: BAD_MESSAGE,
        message,
    }
}

fn refused(trouble: &Trouble) -> CloseReason {
    CloseReason::NoTerminal {
        fault: match trouble {
            Trouble::Key(_) => Fault::Client,
            _ => Fault::Guest,
        },
        reason: trouble.reason(),
        message: trouble.to_string(),
    }
}
