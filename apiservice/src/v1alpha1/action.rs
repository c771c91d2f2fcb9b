//! Options of the actions on a workspace: bodies of `POST …/workspaces/{name}/start` and the like.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// WorkspaceStartOptions may be given to `workspaces/start`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkspaceStartOptions {
    /// Starts a machine that is paused before its first instruction (type vm only).
    pub paused: bool,
    /// `All`: nothing is done, and the answer is what it would have been.
    pub dry_run: Vec<String>,
}

/// WorkspaceStopOptions may be given to `workspaces/stop`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkspaceStopOptions {
    /// `All`: nothing is done, and the answer is what it would have been.
    pub dry_run: Vec<String>,
}

/// WorkspaceRebootOptions may be given to `workspaces/reboot`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkspaceRebootOptions {
    /// Resets the machine as a button would, instead of asking the guest to reboot (type vm only).
    pub force: bool,
    /// `All`: nothing is done, and the answer is what it would have been.
    pub dry_run: Vec<String>,
}

/// WorkspaceResetOptions may be given to `workspaces/reset`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkspaceResetOptions {
    /// `All`: nothing is done, and the answer is what it would have been.
    pub dry_run: Vec<String>,
}
