//! kubectl's connection flags, spelled and meant as kubectl has them.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::time;

/// Where `--token` is taken from when it is not typed: a command line can be read by every user of a machine.
pub const TOKEN_VARIABLE: &str = "KUBECTL_WORKSPACE_TOKEN";

/// kubectl's connection flags.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Flags of kubectl")]
pub struct ClusterFlags {
    /// Kubeconfig file; KUBECONFIG may name several
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
    /// Cluster of the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
    pub cluster: Option<String>,
    /// User of the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
    pub user: Option<String>,
    /// Namespace of the workspace
    #[arg(short, long, global = true, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Act as this user
    #[arg(long = "as", global = true, value_name = "USER")]
    pub impersonate: Option<String>,
    /// Act as a member of this group; repeat
    #[arg(long = "as-group", global = true, value_name = "GROUP")]
    pub impersonate_groups: Vec<String>,
    /// Act with this uid
    #[arg(long = "as-uid", global = true, value_name = "UID")]
    pub impersonate_uid: Option<String>,
    /// Bearer token
    #[arg(long, global = true, env = TOKEN_VARIABLE, hide_env_values = true)]
    pub token: Option<String>,
    /// Address of the API server
    #[arg(short, long, global = true, value_name = "URL")]
    pub server: Option<String>,
    /// CA certificate file of the API server
    #[arg(long, global = true, value_name = "FILE")]
    pub certificate_authority: Option<PathBuf>,
    /// Client certificate file
    #[arg(long, global = true, value_name = "FILE")]
    pub client_certificate: Option<PathBuf>,
    /// Client key file
    #[arg(long, global = true, value_name = "FILE")]
    pub client_key: Option<PathBuf>,
    /// Do not verify the API server's certificate
    #[arg(long, global = true)]
    pub insecure_skip_tls_verify: bool,
    /// Name to verify in the API server's certificate
    #[arg(long, global = true, value_name = "NAME")]
    pub tls_server_name: Option<String>,
    /// Time for one request, as 30s or 2m; 0 is no limit. Streams have none
    #[arg(long, global = true, value_name = "TIME", value_parser = time::parse)]
    pub request_timeout: Option<Duration>,
}
