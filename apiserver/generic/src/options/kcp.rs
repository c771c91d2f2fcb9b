//! Flags that kcp-operator passes to every aggregated server.

use std::path::PathBuf;

use clap::Args;

/// Flags of kcp. They are accepted so that a Deployment made by kcp-operator starts.
#[derive(Args, Clone, Debug)]
pub struct KcpOptions {
    /// URL under which kcp's shard is reached from outside
    #[arg(long, hide = true, overrides_with = "shard_external_url")]
    pub shard_external_url: Option<String>,

    /// Kubeconfig of kcp's cache server
    #[arg(long, hide = true, overrides_with = "cache_kubeconfig")]
    pub cache_kubeconfig: Option<PathBuf>,
}

impl KcpOptions {
    pub(super) fn note(self) {
        let Self {
            shard_external_url,
            cache_kubeconfig,
        } = self;
        if shard_external_url.is_some() || cache_kubeconfig.is_some() {
            tracing::info!("--shard-external-url and --cache-kubeconfig are accepted and not used");
        }
    }
}
