//! The audit log.

use std::path::PathBuf;

use clap::Args;

/// Flags of audit.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Audit")]
pub struct AuditOptions {
    /// File to append audit events to, one JSON line each; - is standard output. The server does
    /// not rotate it: use logrotate with copytruncate
    #[arg(long, value_name = "FILE", overrides_with = "audit_log_path")]
    pub audit_log_path: Option<PathBuf>,

    /// Accepted for manifests of other servers; the log is not rotated
    #[arg(long, hide = true, overrides_with = "audit_log_maxage")]
    pub audit_log_maxage: Option<u32>,

    /// Accepted for manifests of other servers; the log is not rotated
    #[arg(long, hide = true, overrides_with = "audit_log_maxbackup")]
    pub audit_log_maxbackup: Option<u32>,

    /// Accepted for manifests of other servers; the log is not rotated
    #[arg(long, hide = true, overrides_with = "audit_log_maxsize")]
    pub audit_log_maxsize: Option<u32>,
}

impl AuditOptions {
    pub(super) fn resolve(self) -> Option<PathBuf> {
        let Self {
            audit_log_path,
            audit_log_maxage,
            audit_log_maxbackup,
            audit_log_maxsize,
        } = self;
        let rotation = [audit_log_maxage, audit_log_maxbackup, audit_log_maxsize];
        if rotation.into_iter().flatten().any(|limit| limit > 0) {
            tracing::warn!("--audit-log-max* have no effect: the audit log is not rotated");
        }
        audit_log_path
    }
}
