use std::path::Path;

use clap::Parser;

use super::*;
use crate::test_pki::Ca;

#[derive(Parser, Debug)]
struct Program {
    #[command(flatten)]
    generic: GenericOptions,
}

fn parse(args: &[&str]) -> Result<GenericOptions, clap::Error> {
    let program = Program::try_parse_from(std::iter::once("server").chain(args.iter().copied()));
    program.map(|program| program.generic)
}

fn resolve(args: &[&str]) -> Result<GenericConfig, String> {
    parse(args)
        .unwrap()
        .resolve()
        .map_err(|faults| faults.to_string())
}

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        let (client, front) = (Ca::new("client"), Ca::new("front"));
        let server = client.server();
        files.write("client.crt", &client.pem());
        files.write("front.crt", &front.pem());
        files.write("tls.crt", &server.cert_pem);
        files.write("tls.key", &server.key_pem);
        files.write("kubeconfig", "{}");
        files
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }
}

#[test]
fn defaults_are_those_of_go_servers() {
    let config = resolve(&[]).unwrap();
    assert_eq!(
        (config.serving.address.to_string(), config.serving.port),
        ("0.0.0.0".into(), 443)
    );
    assert_eq!(config.serving.limits.timeout.as_secs(), 60);
    assert!(config.serving.certificate.is_none() && config.audit_log.is_none());
    assert_eq!(
        config.authentication.missing,
        crate::authn::Missing {
            client_ca: true,
            request_header: true
        }
    );
    assert_eq!(config.authorization.paths.len(), 3);
}

#[test]
fn what_kcp_operator_passes_is_understood() {
    let files = Files::new();
    let args = [
        format!("--client-ca-file={}", files.path("client.crt")),
        format!("--tls-private-key-file={}", files.path("tls.key")),
        format!("--tls-cert-file={}", files.path("tls.crt")),
        "--bind-address=0.0.0.0".into(),
        "--secure-port=6443".into(),
        format!("--requestheader-client-ca-file={}", files.path("front.crt")),
        "--requestheader-allowed-names=kcp-front-proxy,kcp-root-shard-proxy".into(),
        "--requestheader-username-headers=X-Remote-User".into(),
        "--requestheader-group-headers=X-Remote-Group".into(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".into(),
        format!("--kubeconfig={}", files.path("kubeconfig")),
        "--shard-external-url=https://127.0.0.1:6443".into(),
        "--cache-kubeconfig=/etc/cache-server/kubeconfig/kubeconfig".into(),
        "-v=4".into(),
    ];
    let config = resolve(&args.each_ref().map(String::as_str)).unwrap();
    assert_eq!(config.serving.port, 6443);
    assert!(config.serving.certificate.is_some());
    let front = config.authentication.trust.request_header.unwrap();
    assert_eq!(
        front.allowed_names,
        ["kcp-front-proxy", "kcp-root-shard-proxy"]
    );
    assert_eq!(front.username_headers, ["x-remote-user"]);
    assert_eq!(front.extra_prefixes, ["x-remote-extra-"]);
    assert_eq!(
        config.authentication.missing,
        crate::authn::Missing {
            client_ca: false,
            request_header: false
        }
    );
    assert_eq!(
        config.authentication.kubeconfig.as_deref(),
        Some(Path::new(&files.path("kubeconfig")))
    );
    assert!(config.log_filter.starts_with("debug"));
}

#[test]
fn what_the_upstream_conformance_test_passes_is_understood() {
    let args = [
        "--audit-log-path=-",
        "--audit-log-maxage=0",
        "--audit-log-maxbackup=0",
    ];
    assert_eq!(
        resolve(&args).unwrap().audit_log.as_deref(),
        Some(Path::new("-"))
    );
}

#[test]
fn scalars_count_by_their_last_value_and_lists_grow() {
    let options = parse(&[
        "--secure-port=1",
        "--secure-port",
        "2",
        "--v=1",
        "-v=3",
        "--requestheader-allowed-names=a,b",
        "--requestheader-allowed-names=c",
        "--requestheader-group-headers=X-G",
        "--authentication-skip-lookup",
        "--authentication-skip-lookup=false",
    ])
    .unwrap();
    assert_eq!((options.serving.secure_port, options.logging.v), (2, 3));
    assert_eq!(
        options.authentication.requestheader_allowed_names,
        ["a", "b", "c"]
    );
    assert_eq!(options.authentication.requestheader_group_headers, ["X-G"]);
    assert!(!options.authentication.authentication_skip_lookup);
    assert!(
        parse(&["--authentication-skip-lookup"])
            .unwrap()
            .authentication
            .authentication_skip_lookup
    );
}

#[test]
fn what_is_not_understood_is_refused() {
    for args in [
        ["--no-such-flag"],
        ["--secure-port=x"],
        ["--request-timeout=5"],
        ["--authentication-skip-lookup=perhaps"],
        ["stray"],
    ] {
        assert!(parse(&args).is_err(), "{args:?}");
    }
}

#[test]
fn every_fault_is_said_with_its_flag_and_file() {
    let files = Files::new();
    files.write("empty", "");
    let (empty, nowhere) = (files.path("empty"), files.path("nowhere"));
    let text = resolve(&[
        &format!("--client-ca-file={empty}"),
        &format!("--requestheader-client-ca-file={nowhere}"),
        &format!("--kubeconfig={nowhere}"),
        &format!("--tls-cert-file={}", files.path("tls.crt")),
        "--requestheader-group-headers=a b",
        "--authorization-always-allow-paths=healthz",
        "--max-requests-inflight=0",
    ])
    .unwrap_err();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 7, "{text}");
    for fault in [
        format!("--client-ca-file: {empty}: there is no certificate in it"),
        format!("--requestheader-client-ca-file: {nowhere}: cannot be read: No such file"),
        format!("--kubeconfig: {nowhere}: cannot be read"),
        "--tls-private-key-file: must be given together with --tls-cert-file".to_owned(),
        "--requestheader-group-headers: \"a b\" is no header name".to_owned(),
        "--authorization-always-allow-paths: \"healthz\" is no path".to_owned(),
        "--max-requests-inflight: must be at least 1".to_owned(),
    ] {
        assert!(
            lines.iter().any(|line| line.starts_with(&fault)),
            "{fault}\n{text}"
        );
    }
}

#[test]
fn a_pair_that_does_not_match_and_one_ca_for_all_are_refused() {
    let files = Files::new();
    files.write("other.key", &Ca::new("x").server().key_pem);
    let (cert, other) = (files.path("tls.crt"), files.path("other.key"));
    let text = resolve(&[
        &format!("--tls-cert-file={cert}"),
        &format!("--tls-private-key-file={other}"),
        &format!("--client-ca-file={}", files.path("client.crt")),
        &format!(
            "--requestheader-client-ca-file={}",
            files.path("client.crt")
        ),
    ])
    .unwrap_err();
    assert!(
        text.contains(&cert) && text.contains("do not work together"),
        "{text}"
    );
    assert!(
        text.contains("--requestheader-allowed-names: the client CA"),
        "{text}"
    );
}
