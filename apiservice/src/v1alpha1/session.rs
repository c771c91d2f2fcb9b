//! WorkspaceSession: a live stream to a workspace, who holds it, since when.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// Held by a session while its stream lives, so that a deletion waits until it has really ended.
pub const STREAM_FINALIZER: &str = "kubeworkspaces.io/stream";

/// WorkspaceSession is a live stream to a workspace, or several of one user to the same port: who
/// holds it, since when, and how many bytes passed. Deleting it ends them.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceSession {
    /// Standard object metadata; the name is `<workspace>.<mode>` for a stream that has one holder, and
    /// `<workspace>.<mode>.<hash>` for streams that disturb nobody.
    #[schemars(schema_with = "schema::any_object")]
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Who holds what.
    #[serde(default)]
    pub spec: WorkspaceSessionSpec,
    /// What has passed.
    #[serde(default)]
    pub status: WorkspaceSessionStatus,
}

/// Who holds what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceSessionSpec {
    /// Name of the workspace.
    #[serde(default)]
    pub workspace: String,
    /// UID of the workspace.
    #[serde(default, rename = "workspaceUID")]
    pub workspace_uid: String,
    /// What kind of stream it is.
    #[serde(default)]
    pub mode: SessionMode,
    /// Port in the workspace, for modes that have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
    /// The holder's name.
    #[serde(default)]
    pub user: String,
    /// The holder's UID.
    #[serde(default, rename = "userUID", skip_serializing_if = "String::is_empty")]
    pub user_uid: String,
    /// The holder's groups, 32 at most.
    #[serde(default)]
    pub groups: Vec<String>,
    /// How many groups the holder has.
    #[serde(default)]
    pub group_count: i64,
    /// Where the holder's request came from; the first one's, for streams that share a session.
    #[serde(default)]
    pub client_address: String,
    /// Since when (RFC 3339).
    #[serde(default)]
    pub since: String,
    /// Identity of the server replica that carries the stream.
    #[serde(default)]
    pub replica: String,
    /// Audit id of the request that opened it; the first one's, for streams that share a session.
    #[serde(default, rename = "auditID")]
    pub audit_id: String,
    /// Identity of the claim; unlike an audit id no caller can choose it.
    #[serde(default)]
    pub claim: String,
    /// Who has taken the session over and waits for the stream to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub successor: Option<SessionSuccessor>,
    /// Whether the session was handed to this holder after a take-over, and waits for them to come.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub offered: bool,
}

/// A caller who has taken a session over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionSuccessor {
    /// Their name.
    pub user: String,
    /// Their UID.
    #[serde(default, rename = "userUID", skip_serializing_if = "String::is_empty")]
    pub user_uid: String,
    /// Identity of the replica that serves them.
    pub replica: String,
    /// Audit id of their request.
    #[serde(rename = "auditID")]
    pub audit_id: String,
    /// Identity of their claim.
    #[serde(default)]
    pub claim: String,
    /// When they asked (RFC 3339).
    pub at: String,
}

/// What kind of stream a session is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SessionMode {
    /// Serial console or shell.
    #[default]
    Console,
    /// Display.
    Vnc,
    /// SSH.
    Ssh,
    /// Port forward.
    Portforward,
    /// HTTP.
    Proxy,
}

impl SessionMode {
    /// As `spec.mode` and the subresource spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Console => "console",
            Self::Vnc => "vnc",
            Self::Ssh => "ssh",
            Self::Portforward => "portforward",
            Self::Proxy => "proxy",
        }
    }
}

/// What has passed through a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceSessionStatus {
    /// Whether somebody holds the stream; `false` only in the answer of `GET …/console`.
    #[serde(default)]
    pub in_use: bool,
    /// How many streams are open.
    #[serde(default)]
    pub streams: i64,
    /// When bytes last passed (RFC 3339); like the counters it is written about once a minute, and the
    /// exact ones are in the audit event of the stream's end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_activity: Option<String>,
    /// Bytes from the client.
    #[serde(default)]
    pub received_bytes: i64,
    /// Bytes to the client.
    #[serde(default)]
    pub sent_bytes: i64,
}
