//! The server's own flags, beside those that every aggregated API server has.

use std::time::Duration;

use apiserver_generic::{duration, options::GenericOptions};
use apiservice::registration::ServiceReference;
use clap::{ArgAction, Args, Parser, ValueEnum};

use crate::streams::limits::LimitOptions;

/// Workspaces as a Kubernetes API: aggregated API server and controller
///
/// Registers kubeworkspaces.io/v1alpha1 with kube-apiserver, identifies callers by the front proxy's
/// client certificate, asks kube-apiserver about RBAC, and turns Workspaces into VirtualMachines,
/// StatefulSets and Deployments.
#[derive(Clone, Debug, Parser)]
#[command(name = "workspaces-apiserver", version, max_term_width = 110, after_help = EXAMPLES)]
pub struct Options {
    /// Flags of every aggregated API server.
    #[command(flatten)]
    pub generic: GenericOptions,
    /// Flags of this one.
    #[command(flatten)]
    pub workspaces: WorkspacesOptions,
}

const EXAMPLES: &str = "\
Examples:
  # In a cluster, as deploy/base does it
  workspaces-apiserver --secure-port=8443 --certificates=self-managed --register=true

  # Beside a cluster, for development
  workspaces-apiserver --kubeconfig=admin.kubeconfig --namespace=kubeworkspaces-system \\
    --secure-port=8443 --service-port=8443 --register=true

  # With certificates from files, and an APIService that somebody else keeps
  workspaces-apiserver --certificates=files --tls-cert-file=tls.crt --tls-private-key-file=tls.key";

/// Flags of this server.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Workspaces")]
pub struct WorkspacesOptions {
    /// Where the serving certificate comes from
    ///
    /// Without this flag: files if --tls-cert-file is given, else self-managed
    #[arg(long, value_enum, overrides_with = "certificates")]
    pub certificates: Option<CertificateMode>,

    /// Whether to keep the APIService v1alpha1.kubeworkspaces.io (needs self-managed certificates)
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = false, overrides_with = "register")]
    pub register: bool,

    /// The server's own namespace: its Service, Leases and certificates are there
    #[arg(
        long,
        value_name = "NAME",
        env = "POD_NAMESPACE",
        default_value = "kubeworkspaces-system",
        overrides_with = "namespace"
    )]
    pub namespace: String,

    /// The Service through which kube-apiserver reaches us
    #[arg(
        long,
        value_name = "NAME",
        default_value = "workspaces-apiserver",
        overrides_with = "service_name"
    )]
    pub service_name: String,

    /// Port of that Service
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 443,
        overrides_with = "service_port"
    )]
    pub service_port: u16,

    /// Whether to run the controller (one replica at a time does)
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = true, overrides_with = "controller")]
    pub controller: bool,

    /// Name of this replica, which no other has at the same time
    #[arg(
        long,
        value_name = "NAME",
        env = "POD_NAME",
        default_value = "workspaces-apiserver",
        overrides_with = "replica"
    )]
    pub replica: String,

    /// UID of this replica's Pod: a container that is restarted in place has the same
    #[arg(
        long,
        value_name = "UID",
        env = "POD_UID",
        overrides_with = "replica_uid"
    )]
    pub replica_uid: Option<String>,

    /// Origins of web pages that may open streams; an upgrade with any other Origin gets 403
    #[arg(long, value_name = "ORIGIN", value_delimiter = ',')]
    pub allowed_origins: Vec<String>,

    /// Whether portforward and proxy reach every port, and not only those that a workspace declares (portforward: and 22)
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = false, overrides_with = "allow_undeclared_ports")]
    pub allow_undeclared_ports: bool,

    /// Whether ports of guests are dialled over the pod network first
    ///
    /// Without it KubeVirt's portforward leads to them: for a server that is not on that network
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = true, overrides_with = "pod_network")]
    pub pod_network: bool,

    /// A console or display on which nothing passes ends after this time; 0 means never
    #[arg(long, value_name = "DURATION", default_value = "6h", value_parser = go_duration, overrides_with = "stream_idle_timeout")]
    pub stream_idle_timeout: Duration,

    /// The longest life of a stream: bounds what authorization cannot see, such as expired tokens
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = go_duration, overrides_with = "stream_max_duration")]
    pub stream_max_duration: Duration,

    /// How long open streams may go on while kube-apiserver cannot be asked whether they are allowed
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = go_duration, overrides_with = "authorization_grace")]
    pub authorization_grace: Duration,

    /// How long an app behind workspaces/proxy may take to begin its answer; more is answered with 504
    ///
    /// While a request's body is on its way, the time begins anew with each piece
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = go_duration, overrides_with = "proxy_response_timeout")]
    pub proxy_response_timeout: Duration,

    /// Streams that one user may have open on this replica; more are answered with 429
    #[arg(
        long,
        value_name = "N",
        default_value_t = 500,
        overrides_with = "max_streams_per_user"
    )]
    pub max_streams_per_user: usize,

    /// Streams that one user may begin to open on this replica in a second; more are answered with 429
    #[arg(
        long,
        value_name = "N",
        default_value_t = 20,
        overrides_with = "max_stream_setups_per_user"
    )]
    pub max_stream_setups_per_user: u32,

    /// Streams to one workspace that may be open on this replica; more are answered with 429
    #[arg(
        long,
        value_name = "N",
        default_value_t = 100,
        overrides_with = "max_streams_per_workspace"
    )]
    pub max_streams_per_workspace: usize,
}

/// Where the serving certificate comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CertificateMode {
    /// An authority of our own, in a Secret that all replicas share
    SelfManaged,
    /// --tls-cert-file and --tls-private-key-file, which somebody else renews
    Files,
}

impl Options {
    /// Problems of these flags together, a sentence each.
    pub fn faults(&self) -> Vec<String> {
        let Self {
            generic,
            workspaces,
        } = self;
        let files = generic.serving.tls_cert_file.is_some();
        let mut faults = Vec::new();
        match self.certificate_mode() {
            CertificateMode::Files if !files => faults.push("--certificates=files needs --tls-cert-file and --tls-private-key-file".to_owned()),
            CertificateMode::Files if workspaces.register => faults.push(
                "--register=true needs --certificates=self-managed: with certificates from files, whoever makes them keeps the APIService and its caBundle".to_owned(),
            ),
            CertificateMode::SelfManaged if files => faults.push("--tls-cert-file has no use with --certificates=self-managed: leave one of them out".to_owned()),
            CertificateMode::Files | CertificateMode::SelfManaged => {}
        }
        faults.extend(workspaces.stream_faults());
        faults
    }

    /// The mode that the flags mean.
    pub fn certificate_mode(&self) -> CertificateMode {
        let files = self.generic.serving.tls_cert_file.is_some();
        let default = if files {
            CertificateMode::Files
        } else {
            CertificateMode::SelfManaged
        };
        self.workspaces.certificates.unwrap_or(default)
    }
}

impl WorkspacesOptions {
    fn stream_faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.stream_max_duration.is_zero() {
            faults.push("--stream-max-duration must be longer than 0".to_owned());
        }
        if self.proxy_response_timeout.is_zero() {
            faults.push("--proxy-response-timeout must be longer than 0".to_owned());
        }
        for (flag, zero) in [
            ("--max-streams-per-user", self.max_streams_per_user == 0),
            (
                "--max-stream-setups-per-user",
                self.max_stream_setups_per_user == 0,
            ),
            (
                "--max-streams-per-workspace",
                self.max_streams_per_workspace == 0,
            ),
        ] {
            if zero {
                faults.push(format!("{flag} must be at least 1"));
            }
        }
        faults
    }

    /// The limits of streams.
    pub fn stream_limits(&self) -> LimitOptions {
        LimitOptions {
            per_user: self.max_streams_per_user,
            set_ups_per_second: self.max_stream_setups_per_user,
            per_workspace: self.max_streams_per_workspace,
        }
    }

    /// Where kube-apiserver reaches us.
    pub fn service(&self) -> ServiceReference {
        ServiceReference {
            namespace: self.namespace.clone(),
            name: self.service_name.clone(),
            port: self.service_port,
        }
    }

    /// DNS names of the serving certificate; kube-apiserver checks the first.
    pub fn dns_names(&self) -> Vec<String> {
        let (name, namespace) = (&self.service_name, &self.namespace);
        vec![
            format!("{name}.{namespace}.svc"),
            format!("{name}.{namespace}.svc.cluster.local"),
            format!("{name}.{namespace}"),
        ]
    }
}

fn go_duration(text: &str) -> Result<Duration, String> {
    duration::parse(text).ok_or_else(|| "it must be a duration such as 30s or 1h30m".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(args: &[&str]) -> Options {
        Options::try_parse_from([&["workspaces-apiserver"], args].concat()).unwrap()
    }

    #[test]
    fn flags_that_do_not_go_together_are_named() {
        let files = ["--tls-cert-file=a", "--tls-private-key-file=b"];
        let none = [
            "--max-streams-per-user=0",
            "--max-stream-setups-per-user=0",
            "--max-streams-per-workspace=0",
            "--stream-max-duration=0s",
            "--proxy-response-timeout=0s",
        ];
        let table: [(&[&str], usize); 7] = [
            (&none, 5),
            (&[], 0),
            (&["--register=true"], 0),
            (&files, 0),
            (&["--certificates=files"], 1),
            (
                &[
                    "--tls-cert-file=a",
                    "--tls-private-key-file=b",
                    "--register=true",
                ],
                1,
            ),
            (
                &[
                    "--tls-cert-file=a",
                    "--tls-private-key-file=b",
                    "--certificates=self-managed",
                ],
                1,
            ),
        ];
        for (args, expected) in table {
            assert_eq!(options(args).faults().len(), expected, "{args:?}");
        }
    }

    #[test]
    fn unknown_flags_are_fatal_and_those_of_kcp_are_not() {
        assert!(Options::try_parse_from(["x", "--nonsense"]).is_err());
        options(&[
            "--shard-external-url=https://x",
            "--cache-kubeconfig=/y",
            "-v=4",
            "--v=2",
        ]);
    }
}
