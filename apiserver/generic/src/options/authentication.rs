//! Who is calling: CAs, front proxies, and where the rest is looked up.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use clap::{Args, builder::BoolishValueParser};
use http::HeaderName;

use super::{
    fault::{self, Faults},
    serving::go_duration,
};
use crate::authn::{CaBundle, Missing, RequestHeader, TokenConfig, Trust, TrustFiles};

/// Flags of authentication.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Authentication")]
pub struct AuthenticationOptions {
    /// CAs of client certificates (PEM); replaces the lookup in the cluster
    #[arg(long, value_name = "FILE", overrides_with = "client_ca_file")]
    pub client_ca_file: Option<PathBuf>,

    /// CAs of front proxies (PEM); replaces the lookup in the cluster
    #[arg(
        long,
        value_name = "FILE",
        overrides_with = "requestheader_client_ca_file"
    )]
    pub requestheader_client_ca_file: Option<PathBuf>,

    /// Common names of front proxies; none means any that the CA signed
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub requestheader_allowed_names: Vec<String>,

    /// Headers with the user's name, in order of preference
    #[arg(
        long,
        value_name = "HEADERS",
        value_delimiter = ',',
        default_value = "x-remote-user"
    )]
    pub requestheader_username_headers: Vec<String>,

    /// Headers with the user's UID, in order of preference
    #[arg(long, value_name = "HEADERS", value_delimiter = ',')]
    pub requestheader_uid_headers: Vec<String>,

    /// Headers with the user's groups
    #[arg(
        long,
        value_name = "HEADERS",
        value_delimiter = ',',
        default_value = "x-remote-group"
    )]
    pub requestheader_group_headers: Vec<String>,

    /// Prefixes of headers with extra attributes of the user
    #[arg(
        long,
        value_name = "PREFIXES",
        value_delimiter = ',',
        default_value = "x-remote-extra-"
    )]
    pub requestheader_extra_headers_prefix: Vec<String>,

    /// Kubeconfig for TokenReviews and the lookup; by default --kubeconfig
    #[arg(
        long,
        value_name = "FILE",
        overrides_with = "authentication_kubeconfig"
    )]
    pub authentication_kubeconfig: Option<PathBuf>,

    /// Look nothing up in the cluster: trust what the flags give and nothing else
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false",
        default_missing_value = "true", value_parser = BoolishValueParser::new(),
        action = clap::ArgAction::Set, overrides_with = "authentication_skip_lookup")]
    pub authentication_skip_lookup: bool,

    /// Start even if the lookup fails; readiness says so until it succeeds
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false",
        default_missing_value = "true", value_parser = BoolishValueParser::new(),
        action = clap::ArgAction::Set, overrides_with = "authentication_tolerate_lookup_failure")]
    pub authentication_tolerate_lookup_failure: bool,

    /// How long the verdict on a token is kept
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = go_duration,
        overrides_with = "authentication_token_webhook_cache_ttl")]
    pub authentication_token_webhook_cache_ttl: Duration,
}

/// What the flags of authentication mean.
#[derive(Debug)]
pub struct AuthenticationConfig {
    /// What the files say now.
    pub trust: Trust,
    /// The files, to follow.
    pub files: TrustFiles,
    /// What to look up in the cluster.
    pub missing: Missing,
    /// Whether a failed lookup is fatal at the start.
    pub tolerate_lookup_failure: bool,
    /// Kubeconfig for TokenReviews and the lookup.
    pub kubeconfig: Option<PathBuf>,
    /// Reviews of tokens.
    pub tokens: TokenConfig,
}

impl AuthenticationOptions {
    pub(super) fn resolve(
        self,
        kubeconfig: Option<&Path>,
        faults: &mut Faults,
    ) -> AuthenticationConfig {
        let Self {
            client_ca_file,
            requestheader_client_ca_file,
            requestheader_allowed_names,
            requestheader_username_headers,
            requestheader_uid_headers,
            requestheader_group_headers,
            requestheader_extra_headers_prefix,
            authentication_kubeconfig,
            authentication_skip_lookup,
            authentication_tolerate_lookup_failure,
            authentication_token_webhook_cache_ttl,
        } = self;
        fault::readable(
            faults,
            "--authentication-kubeconfig",
            authentication_kubeconfig.as_deref(),
        );
        let client_ca = bundle("--client-ca-file", client_ca_file.as_deref(), faults);
        let front_ca = bundle(
            "--requestheader-client-ca-file",
            requestheader_client_ca_file.as_deref(),
            faults,
        );
        let username_headers = headers(
            "--requestheader-username-headers",
            &requestheader_username_headers,
            faults,
        );
        let uid_headers = headers(
            "--requestheader-uid-headers",
            &requestheader_uid_headers,
            faults,
        );
        let group_headers = headers(
            "--requestheader-group-headers",
            &requestheader_group_headers,
            faults,
        );
        let extra_prefixes = headers(
            "--requestheader-extra-headers-prefix",
            &requestheader_extra_headers_prefix,
            faults,
        );
        let request_header = front_ca.map(|ca| RequestHeader {
            ca,
            allowed_names: given(requestheader_allowed_names),
            username_headers,
            uid_headers,
            group_headers,
            extra_prefixes: extra_prefixes
                .iter()
                .map(|p| p.as_str().to_owned())
                .collect(),
        });
        let missing = Missing {
            client_ca: client_ca_file.is_none() && !authentication_skip_lookup,
            request_header: requestheader_client_ca_file.is_none() && !authentication_skip_lookup,
        };
        let trust = Trust {
            client_ca: client_ca.map(Arc::new),
            request_header: request_header.map(Arc::new),
        };
        if let Err(hazard) = trust.check() {
            faults.add("--requestheader-allowed-names", hazard.to_string());
        }
        AuthenticationConfig {
            files: TrustFiles {
                client_ca: client_ca_file,
                request_header_ca: requestheader_client_ca_file,
            },
            trust,
            missing,
            tolerate_lookup_failure: authentication_tolerate_lookup_failure,
            kubeconfig: authentication_kubeconfig.or_else(|| kubeconfig.map(Path::to_owned)),
            tokens: TokenConfig {
                ttl: authentication_token_webhook_cache_ttl,
                ..TokenConfig::default()
            },
        }
    }
}

fn bundle(flag: &'static str, path: Option<&Path>, faults: &mut Faults) -> Option<CaBundle> {
    let path = path?;
    let pem = fault::read(faults, flag, path)?;
    CaBundle::from_pem(&pem)
        .map_err(|error| faults.file(flag, path, error))
        .ok()
}

fn headers(flag: &'static str, names: &[String], faults: &mut Faults) -> Vec<HeaderName> {
    let mut out = Vec::new();
    for name in given(names.to_vec()) {
        match HeaderName::from_bytes(name.as_bytes()) {
            Ok(name) => out.push(name),
            Err(_) => faults.add(flag, format!("{name:?} is no header name")),
        }
    }
    out
}

/// The entries that say something: `--flag=` gives one empty string.
fn given(list: Vec<String>) -> Vec<String> {
    let trimmed = list.into_iter().map(|entry| entry.trim().to_owned());
    trimmed.filter(|entry| !entry.is_empty()).collect()
}
