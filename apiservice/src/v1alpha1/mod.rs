//! The kinds of `kubeworkspaces.io/v1alpha1` as Rust types.
//!
//! They are views to read: objects travel as JSON, so that fields which these types do not know
//! survive. [`View::read`] gives a typed view of an object.

mod action;
mod image;
mod session;
mod ssh;
mod workspace;

pub use action::{
    WorkspaceRebootOptions, WorkspaceResetOptions, WorkspaceStartOptions, WorkspaceStopOptions,
};
pub use image::{
    Credentials, EnvVar, Image, ImageSpec, ImageStatus, Link, NamedPort, ProxyConfig, RemoteDesktop,
};
pub use session::{
    STREAM_FINALIZER, SessionMode, SessionSuccessor, WorkspaceSession, WorkspaceSessionSpec,
    WorkspaceSessionStatus,
};
pub use ssh::{HostKey, HostKeyAlgorithm, RootIdentity, RootKind, SshStatus};
pub use workspace::{
    Condition, DiskBus, GuestMount, MountType, Phase, ResolvedImage, Workspace, WorkspaceSpec,
    WorkspaceStatus, WorkspaceTemplate, WorkspaceType,
};

use apiserver_generic::Object;
use serde::de::DeserializeOwned;

/// The API group.
pub const GROUP: &str = "kubeworkspaces.io";
/// The served version.
pub const VERSION: &str = "v1alpha1";
/// Group and version.
pub const API_VERSION: &str = "kubeworkspaces.io/v1alpha1";

/// Annotation whose presence stops a workspace.
pub const STOPPED: &str = "kubeworkspaces.io/stopped";

/// Annotation that makes the next start of a machine leave it paused. The controller removes it when
/// the machine has been started.
pub const START_PAUSED: &str = "kubeworkspaces.io/start-paused";

/// The stored object does not have the shape that validation promises.
#[derive(Debug, thiserror::Error)]
#[error("{kind} {name}: {source}")]
pub struct ViewError {
    kind: &'static str,
    name: String,
    #[source]
    source: serde_json::Error,
}

/// A typed view of an [`Object`].
pub trait View: DeserializeOwned {
    /// The kind.
    const KIND: &'static str;

    /// Reads an object.
    ///
    /// # Errors
    /// When a field has another type than the schema says, which admission refuses.
    fn read(object: &Object) -> Result<Self, ViewError> {
        serde_json::from_value(object.clone().into_value()).map_err(|source| ViewError {
            kind: Self::KIND,
            name: object.name().to_owned(),
            source,
        })
    }
}

impl View for Workspace {
    const KIND: &'static str = "Workspace";
}

impl View for Image {
    const KIND: &'static str = "Image";
}

impl View for WorkspaceSession {
    const KIND: &'static str = "WorkspaceSession";
}
