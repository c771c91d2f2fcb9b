//! What callers may do.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;

use super::{
    fault::{self, Faults},
    serving::go_duration,
};
use crate::authz::{PathRule, ReviewConfig};

/// Flags of authorization.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Authorization")]
pub struct AuthorizationOptions {
    /// Kubeconfig for SubjectAccessReviews; by default --kubeconfig
    #[arg(long, value_name = "FILE", overrides_with = "authorization_kubeconfig")]
    pub authorization_kubeconfig: Option<PathBuf>,

    /// Paths that everybody may read; a * at the end makes a prefix
    #[arg(long, value_name = "PATHS", value_delimiter = ',',
        default_values = ["/healthz", "/readyz", "/livez"])]
    pub authorization_always_allow_paths: Vec<String>,

    /// How long a yes is kept
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = go_duration,
        overrides_with = "authorization_webhook_cache_authorized_ttl")]
    pub authorization_webhook_cache_authorized_ttl: Duration,

    /// How long a no is kept
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = go_duration,
        overrides_with = "authorization_webhook_cache_unauthorized_ttl")]
    pub authorization_webhook_cache_unauthorized_ttl: Duration,
}

/// What the flags of authorization mean.
#[derive(Debug)]
pub struct AuthorizationConfig {
    /// Kubeconfig for reviews.
    pub kubeconfig: Option<PathBuf>,
    /// Open paths.
    pub paths: Vec<PathRule>,
    /// Reviews.
    pub reviews: ReviewConfig,
}

impl AuthorizationOptions {
    pub(super) fn resolve(
        self,
        kubeconfig: Option<&Path>,
        faults: &mut Faults,
    ) -> AuthorizationConfig {
        let Self {
            authorization_kubeconfig,
            authorization_always_allow_paths,
            authorization_webhook_cache_authorized_ttl,
            authorization_webhook_cache_unauthorized_ttl,
        } = self;
        fault::readable(
            faults,
            "--authorization-kubeconfig",
            authorization_kubeconfig.as_deref(),
        );
        let mut paths = Vec::new();
        for text in authorization_always_allow_paths
            .iter()
            .filter(|text| !text.is_empty())
        {
            match PathRule::parse(text) {
                Ok(rule) => paths.push(rule),
                Err(problem) => faults.add("--authorization-always-allow-paths", problem),
            }
        }
        AuthorizationConfig {
            kubeconfig: authorization_kubeconfig.or_else(|| kubeconfig.map(Path::to_owned)),
            paths,
            reviews: ReviewConfig {
                allow_ttl: authorization_webhook_cache_authorized_ttl,
                deny_ttl: authorization_webhook_cache_unauthorized_ttl,
                ..ReviewConfig::default()
            },
        }
    }
}
