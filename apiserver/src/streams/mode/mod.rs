//! What one kind of stream decides; all else is shared by all of them.
//!
//! [`super::opening`] asks a [`Mode`] what it is called, who may hold it, what its clients speak and
//! how it is dialled. A mode never authorizes, resolves, claims, relays or audits.

pub mod console;
pub mod portforward;
pub mod ssh;
pub mod terminal;
pub mod vnc;

use std::sync::Arc;

use apiserver_generic::ApiError;
use apiservice::v1alpha1::SessionMode;
use async_trait::async_trait;
use kube::Client;

use super::{
    asked::Asked,
    close::CloseReason,
    dial::tcp::Network,
    negotiate::Subprotocol,
    relay::{Activity, ClientSide, Upstream},
    resolve::{Container, Found, Kind, Workspace},
    target::Finder,
    wire::ClientWire,
};
use crate::sessions::Predecessor;

/// Which mode a request means: some subresources serve more than one, or carry a port.
pub type Choose = Box<dyn Fn(&Asked) -> Result<Arc<dyn Mode>, ApiError> + Send + Sync>;

/// What a request without an upgrade is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plain {
    /// The session of whoever holds the stream, or an empty one.
    Holder,
    /// The caller's own sessions of this mode.
    Own,
}

/// A dial under way: everything was checked, and is checked again before the first byte.
pub struct Dialling<'a> {
    /// Our own credentials towards the cluster.
    pub client: &'a Client,
    /// Looks things up with them.
    pub finder: &'a Finder,
    /// Where pods are.
    pub network: &'a Arc<dyn Network>,
    /// Whose stream it is.
    pub workspace: &'a Workspace,
    /// What it leads to.
    pub found: &'a Found,
    /// Whether whoever has the stream now is to lose it.
    pub takeover: bool,
    /// What was claimed before this, where the mode is exclusive.
    pub before: Option<Predecessor>,
}

/// One kind of stream, for one request.
#[async_trait]
pub trait Mode: Send + Sync + 'static {
    /// Its word in metrics, logs and messages: `console`, `ssh-tunnel`.
    fn label(&self) -> &'static str;

    /// As sessions spell it.
    fn session_mode(&self) -> SessionMode;

    /// The port that sessions show.
    fn port(&self, _workspace: &Workspace) -> Option<u16> {
        None
    }

    /// What its clients may speak, in the order in which messages list it; nothing named is always
    /// allowed and means bytes.
    fn subprotocols(&self) -> &'static [Subprotocol];

    /// The client's dialect for what was negotiated.
    fn client_wire(&self, subprotocol: Subprotocol) -> ClientWire {
        ClientWire::bytes(subprotocol)
    }

    /// The answer without an upgrade.
    fn plain(&self) -> Plain {
        Plain::Holder
    }

    /// Whether such a workspace lets one caller in at a time.
    fn is_exclusive(&self, kind: Kind) -> bool;

    /// What keeps the stream from being idle; `None`: it never is.
    fn activity(&self) -> Option<Activity>;

    /// Whether the workspace has what the mode needs, before anything is claimed or dialled.
    ///
    /// # Errors
    /// What is missing, and what to use instead.
    fn check(&self, workspace: &Workspace, found: &Found) -> Result<(), ApiError>;

    /// Connects.
    ///
    /// # Errors
    /// The upstream's refusal in our words, or that it could not be reached in time.
    async fn dial(&self, dialling: &Dialling<'_>) -> Result<Upstream, ApiError>;

    /// After the upgrade and before the relay: what a mode agrees on with its client first. Ends at
    /// the latest when the stream is told to end; the client then still gets the reason.
    ///
    /// # Errors
    /// Why there is nothing to relay.
    async fn greet(
        &self,
        _client: &mut ClientSide,
        upstream: Upstream,
    ) -> Result<Upstream, CloseReason> {
        Ok(upstream)
    }

    /// What was dialled is wanted no more, before [`Mode::greet`] took it: the mode lets go of what it
    /// keeps. The name is still taken.
    fn abandon(&self) {}
}

/// 400 for what a container does not have, with the commands that do have it.
pub(super) fn instead(lacks: &str, workspace: &Workspace, container: &Container) -> ApiError {
    let Workspace {
        name, namespace, ..
    } = workspace;
    let Container {
        pod,
        name: container,
        ..
    } = container;
    ApiError::bad_request(format!(
        "workspace \"{name}\" is a container and {lacks}; open a shell with: kubectl workspace console {name} -n {namespace}, \
         or run a command with: kubectl exec -it -n {namespace} {pod} -c {container} -- sh, \
         or copy files with: kubectl cp -n {namespace} -c {container} {pod}:/path path"
    ))
}
