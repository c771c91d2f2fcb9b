//! The flags that every aggregated API server has, read strictly and turned into configuration.
//!
//! Entry points: [`GenericOptions`], flattened into a program's own flags, and
//! [`GenericOptions::resolve`]. Names and defaults are those of
//! `k8s.io/apiserver/pkg/server/options`, so that manifests made for Go servers work. As with
//! pflag, a flag that is repeated counts by its last value, and lists (comma-separated) grow.
//!
//! Files are read at the start. Every problem is one sentence with the flag, the file and what is
//! wrong with it, and all of them are said at once.

mod audit;
mod authentication;
mod authorization;
mod client;
mod fault;
mod kcp;
mod logging;
mod serving;

use std::path::PathBuf;

use clap::Args;

pub use audit::AuditOptions;
pub use authentication::{AuthenticationConfig, AuthenticationOptions};
pub use authorization::{AuthorizationConfig, AuthorizationOptions};
pub use client::{ClientError, client};
pub use fault::{Fault, Faults};
pub use kcp::KcpOptions;
pub use logging::LoggingOptions;
pub use serving::{ServingConfig, ServingOptions};

#[cfg(test)]
mod tests;

/// All groups of flags.
#[derive(Args, Clone, Debug)]
pub struct GenericOptions {
    /// Where to listen.
    #[command(flatten)]
    pub serving: ServingOptions,
    /// Who is calling.
    #[command(flatten)]
    pub authentication: AuthenticationOptions,
    /// What callers may do.
    #[command(flatten)]
    pub authorization: AuthorizationOptions,
    /// Audit.
    #[command(flatten)]
    pub audit: AuditOptions,
    /// Logging.
    #[command(flatten)]
    pub logging: LoggingOptions,
    /// Flags of kcp.
    #[command(flatten)]
    pub kcp: KcpOptions,

    /// Kubeconfig of the cluster to store in and to ask; without it, the Pod's own ServiceAccount
    #[arg(
        long,
        value_name = "FILE",
        overrides_with = "kubeconfig",
        help_heading = "Cluster"
    )]
    pub kubeconfig: Option<PathBuf>,
}

/// What the flags mean.
#[derive(Debug)]
pub struct GenericConfig {
    /// Where and with what to listen, and the limits.
    pub serving: ServingConfig,
    /// Who is calling.
    pub authentication: AuthenticationConfig,
    /// What callers may do.
    pub authorization: AuthorizationConfig,
    /// Where the audit log goes; `-` is standard output.
    pub audit_log: Option<PathBuf>,
    /// Kubeconfig of the cluster.
    pub kubeconfig: Option<PathBuf>,
    /// Filter for `tracing`.
    pub log_filter: &'static str,
}

impl GenericOptions {
    /// Checks the flags and reads the files that they name.
    ///
    /// # Errors
    /// With every problem that was found.
    pub fn resolve(self) -> Result<GenericConfig, Faults> {
        let Self {
            serving,
            authentication,
            authorization,
            audit,
            logging,
            kcp,
            kubeconfig,
        } = self;
        let mut faults = Faults::default();
        fault::readable(&mut faults, "--kubeconfig", kubeconfig.as_deref());
        let serving = serving.resolve(&mut faults);
        let authentication = authentication.resolve(kubeconfig.as_deref(), &mut faults);
        let authorization = authorization.resolve(kubeconfig.as_deref(), &mut faults);
        let audit_log = audit.resolve();
        let log_filter = logging.filter();
        kcp.note();
        faults.or(GenericConfig {
            serving,
            authentication,
            authorization,
            audit_log,
            kubeconfig,
            log_filter,
        })
    }
}
