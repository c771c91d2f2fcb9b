//! What a VirtualMachineInstance says of its last migration.

use serde::Deserialize;

/// `status.migrationState`: the last migration, or the one under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MigrationState {
    /// UID of the VirtualMachineInstanceMigration.
    pub migration_uid: String,
    /// The launcher that the guest was in.
    pub source_pod: String,
    /// The launcher that it goes to.
    pub target_pod: String,
    /// When it began, RFC 3339.
    pub start_timestamp: Option<String>,
    /// When it ended, RFC 3339.
    pub end_timestamp: Option<String>,
    /// Whether it has ended, well or not.
    pub completed: bool,
    /// Whether it went wrong.
    pub failed: bool,
}

impl MigrationState {
    /// Whether it has not ended.
    pub fn is_under_way(&self) -> bool {
        !self.completed && !self.failed
    }

    /// Whether the guest is in the target.
    pub fn has_moved(&self) -> bool {
        self.completed && !self.failed
    }
}
