//! Where to listen, with which certificate, and how much to take.

use std::{net::IpAddr, path::PathBuf, sync::Arc, time::Duration};

use clap::Args;

use super::fault::{self, Faults};
use crate::{
    duration,
    server::{RequestLimits, ShutdownPlan},
    serving::FileCertificate,
};

/// Flags of serving.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Serving")]
pub struct ServingOptions {
    /// Address to listen on; 0.0.0.0 and :: mean all addresses of both families
    #[arg(
        long,
        value_name = "IP",
        default_value = "0.0.0.0",
        overrides_with = "bind_address"
    )]
    pub bind_address: IpAddr,

    /// Port to serve HTTPS on
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 443,
        overrides_with = "secure_port"
    )]
    pub secure_port: u16,

    /// Serving certificate and its chain (PEM); read again when it changes
    #[arg(long, value_name = "FILE", overrides_with = "tls_cert_file")]
    pub tls_cert_file: Option<PathBuf>,

    /// Private key of --tls-cert-file (PEM); read again when it changes
    #[arg(long, value_name = "FILE", overrides_with = "tls_private_key_file")]
    pub tls_private_key_file: Option<PathBuf>,

    /// Requests under way, beside watches and streams; more are answered with 429
    #[arg(
        long,
        value_name = "N",
        default_value_t = 400,
        overrides_with = "max_requests_inflight"
    )]
    pub max_requests_inflight: usize,

    /// Requests of one user under way, beside watches and streams; more are answered with 429
    #[arg(
        long,
        value_name = "N",
        default_value_t = 100,
        overrides_with = "max_requests_inflight_per_user"
    )]
    pub max_requests_inflight_per_user: usize,

    /// Watches that one user may have open; more are answered with 429
    #[arg(
        long,
        value_name = "N",
        default_value_t = 500,
        overrides_with = "max_watches_per_user"
    )]
    pub max_watches_per_user: usize,

    /// Time for a request that is neither a watch nor a stream
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = go_duration, overrides_with = "request_timeout")]
    pub request_timeout: Duration,

    /// After SIGTERM: serve so long while not ready, until Service endpoints have followed
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = go_duration, overrides_with = "shutdown_delay_duration")]
    pub shutdown_delay_duration: Duration,

    /// Then: wait so long for requests and streams to end
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = go_duration, overrides_with = "shutdown_grace_period")]
    pub shutdown_grace_period: Duration,
}

/// What the flags of serving mean.
#[derive(Debug)]
pub struct ServingConfig {
    /// Address.
    pub address: IpAddr,
    /// Port.
    pub port: u16,
    /// Certificate from files; without it the program brings its own.
    pub certificate: Option<Arc<FileCertificate>>,
    /// Limits.
    pub limits: RequestLimits,
    /// The end.
    pub shutdown: ShutdownPlan,
}

impl ServingOptions {
    pub(super) fn resolve(self, faults: &mut Faults) -> ServingConfig {
        let Self {
            bind_address,
            secure_port,
            tls_cert_file,
            tls_private_key_file,
            max_requests_inflight,
            max_requests_inflight_per_user,
            max_watches_per_user,
            request_timeout,
            shutdown_delay_duration,
            shutdown_grace_period,
        } = self;
        for (flag, most) in [
            ("--max-requests-inflight", max_requests_inflight),
            (
                "--max-requests-inflight-per-user",
                max_requests_inflight_per_user,
            ),
            ("--max-watches-per-user", max_watches_per_user),
        ] {
            if most == 0 {
                faults.add(flag, "must be at least 1");
            }
        }
        if request_timeout.is_zero() {
            faults.add("--request-timeout", "must be longer than 0");
        }
        ServingConfig {
            address: bind_address,
            port: secure_port,
            certificate: certificate(tls_cert_file, tls_private_key_file, faults),
            limits: RequestLimits {
                max_inflight: max_requests_inflight,
                max_inflight_per_user: max_requests_inflight_per_user,
                max_watches_per_user,
                timeout: request_timeout,
            },
            shutdown: ShutdownPlan {
                delay: shutdown_delay_duration,
                grace: shutdown_grace_period,
            },
        }
    }
}

fn certificate(
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    faults: &mut Faults,
) -> Option<Arc<FileCertificate>> {
    let (cert, key) = match (cert, key) {
        (None, None) => return None,
        (Some(cert), Some(key)) => (cert, key),
        (Some(_), None) => {
            faults.add(
                "--tls-private-key-file",
                "must be given together with --tls-cert-file",
            );
            return None;
        }
        (None, Some(_)) => {
            faults.add(
                "--tls-cert-file",
                "must be given together with --tls-private-key-file",
            );
            return None;
        }
    };
    let there = [("--tls-cert-file", &cert), ("--tls-private-key-file", &key)]
        .map(|(flag, path)| fault::read(faults, flag, path).is_some());
    if there != [true, true] {
        return None;
    }
    match FileCertificate::load(cert.clone(), key.clone()) {
        Ok(pair) => Some(Arc::new(pair)),
        Err(error) => {
            let problem = format!("{} and {}: {error}", cert.display(), key.display());
            faults.add("--tls-cert-file and --tls-private-key-file", problem);
            None
        }
    }
}

/// Reads a duration for clap.
pub(super) fn go_duration(text: &str) -> Result<Duration, String> {
    duration::parse(text).ok_or_else(|| "it must be a duration such as 30s or 1m30s".to_owned())
}
