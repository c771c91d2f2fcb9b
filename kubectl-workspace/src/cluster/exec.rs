//! Credential plugins: programs that print credentials (KEP-541; `client-go/plugin/pkg/client/auth/exec/exec.go`).
//!
//! A plugin may prompt. Its input is our standard input when that is a terminal, and else the terminal that the
//! process has: as a ProxyCommand our standard input carries the bytes of a connection, of which a plugin must take
//! none. Entry point: [`run`].

use std::fs::File;
use std::io::IsTerminal;
use std::process::{Command, Stdio};

use k8s_openapi::jiff::Timestamp;
use kube::config::{ExecConfig, ExecInteractiveMode};
use serde::Deserialize;
use serde_json::json;

/// What a plugin printed.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Secret {
    /// A bearer token.
    Token(String),
    /// A client certificate and its key, PEM.
    Certificate {
        /// The chain.
        certificate: String,
        /// The key.
        key: String,
    },
}

/// A secret, and until when it serves.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Credential {
    pub(super) secret: Secret,
    pub(super) until: Option<Timestamp>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
    expiration_timestamp: Option<String>,
}

/// Runs the plugin. It blocks.
pub(super) fn run(exec: &ExecConfig) -> Result<Credential, String> {
    let name = exec.command.as_deref().unwrap_or_default();
    if name.is_empty() {
        return Err("the kubeconfig's exec has no command".into());
    }
    let version = exec.api_version.as_deref().unwrap_or_default();
    let input = input(exec.interactive_mode.as_ref(), name)?;
    let mut command = Command::new(name);
    command
        .args(exec.args.iter().flatten())
        .envs(
            exec.env
                .iter()
                .flatten()
                .filter_map(|pair| Some((pair.get("name")?, pair.get("value")?))),
        )
        .env("KUBERNETES_EXEC_INFO", info(exec, version, input.is_some()))
        .stdin(input.unwrap_or_else(Stdio::null))
        .stderr(Stdio::inherit());
    let output = command.output().map_err(|e| {
        let hint = exec.install_hint.as_deref().unwrap_or_default().trim();
        format!("the credential plugin {name:?} cannot be run: {e}. {hint}")
            .trim_end()
            .to_owned()
    })?;
    if !output.status.success() {
        return Err(format!(
            "the credential plugin {name:?} failed ({}): what it wrote above says why",
            output.status
        ));
    }
    read(&output.stdout, version).map_err(|why| format!("the credential plugin {name:?} {why}"))
}

/// `None`: it must not prompt.
fn input(mode: Option<&ExecInteractiveMode>, name: &str) -> Result<Option<Stdio>, String> {
    if mode == Some(&ExecInteractiveMode::Never) {
        return Ok(None);
    }
    if std::io::stdin().is_terminal() {
        return Ok(Some(Stdio::inherit()));
    }
    match File::open("/dev/tty") {
        Ok(terminal) => Ok(Some(terminal.into())),
        Err(_) if mode == Some(&ExecInteractiveMode::Always) => Err(format!(
            "the credential plugin {name:?} wants to prompt and there is no terminal: run it once in a terminal, if it remembers"
        )),
        Err(_) => Ok(None),
    }
}

fn info(exec: &ExecConfig, version: &str, interactive: bool) -> String {
    let mut spec = json!({ "interactive": interactive });
    if let Some(cluster) = &exec.cluster {
        spec["cluster"] = json!(cluster);
    }
    json!({ "apiVersion": version, "kind": "ExecCredential", "spec": spec }).to_string()
}

/// What the plugin printed must be in the version that it was asked in.
fn read(printed: &[u8], version: &str) -> Result<Credential, String> {
    let answer: Answer = serde_json::from_slice(printed)
        .map_err(|e| format!("did not print an ExecCredential: {e}"))?;
    if answer.kind != "ExecCredential" || answer.api_version != version {
        return Err(format!(
            "printed {} {} and was asked for ExecCredential {version}",
            answer.kind, answer.api_version
        ));
    }
    let status = answer.status.ok_or("printed no status")?;
    let given = |text: Option<String>| text.filter(|t| !t.is_empty());
    let pair = (
        given(status.client_certificate_data),
        given(status.client_key_data),
    );
    let secret = match (given(status.token), pair) {
        (_, (Some(_), None) | (None, Some(_))) => {
            return Err("printed a client certificate or its key, and not both".into());
        }
        (Some(token), _) => Secret::Token(token),
        (None, (Some(certificate), Some(key))) => Secret::Certificate { certificate, key },
        (None, (None, None)) => return Err("printed neither a token nor a certificate".into()),
    };
    let until = given(status.expiration_timestamp)
        .map(|text| text.parse())
        .transpose()
        .map_err(|_| "printed an expirationTimestamp that is no RFC 3339 time")?;
    Ok(Credential { secret, until })
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "client.authentication.k8s.io/v1";

    fn printed(status: &str) -> Result<Credential, String> {
        let text = format!(r#"{{"apiVersion":"{V1}","kind":"ExecCredential","status":{status}}}"#);
        read(text.as_bytes(), V1)
    }

    #[test]
    fn a_token_or_a_certificate_and_until_when() {
        let token = printed(r#"{"token":"t","expirationTimestamp":"2026-01-01T00:00:00Z"}"#)
            .ok()
            .unwrap();
        assert!(token.secret == Secret::Token("t".into()));
        assert_eq!(token.until.unwrap().to_string(), "2026-01-01T00:00:00Z");
        let pair = printed(r#"{"clientCertificateData":"c","clientKeyData":"k"}"#)
            .ok()
            .unwrap();
        assert!(matches!(pair.secret, Secret::Certificate { .. }) && pair.until.is_none());
    }

    #[test]
    fn what_is_no_credential_is_said_without_showing_it() {
        let cases = [
            (printed("null"), "no status"),
            (printed("{}"), "neither"),
            (printed(r#"{"clientCertificateData":"SECRET"}"#), "not both"),
            (
                printed(r#"{"token":"SECRET","expirationTimestamp":"x"}"#),
                "expirationTimestamp",
            ),
            (read(br#"{"token":"SECRET"}"#, V1), "ExecCredential"),
            (read(b"SECRET", V1), "ExecCredential"),
        ];
        for (result, expected) in cases {
            let error = result.err().unwrap();
            assert!(
                error.contains(expected) && !error.contains("SECRET"),
                "{error}"
            );
        }
        let old = r#"{"apiVersion":"client.authentication.k8s.io/v1alpha1","kind":"ExecCredential","status":{"token":"t"}}"#;
        assert!(read(old.as_bytes(), V1).err().unwrap().contains("v1alpha1"));
    }

    fn script(line: &str, mode: ExecInteractiveMode) -> ExecConfig {
        ExecConfig {
            api_version: Some(V1.into()),
            command: Some("sh".into()),
            args: Some(vec!["-c".into(), line.into()]),
            interactive_mode: Some(mode),
            ..ExecConfig::default()
        }
    }

    #[test]
    fn a_plugin_is_told_the_version_and_its_failure_is_ours() {
        let line = r#"echo "$KUBERNETES_EXEC_INFO" | sed 's/"spec":.*/"status":{"token":"t"}}/'"#;
        let credential = run(&script(line, ExecInteractiveMode::Never)).ok().unwrap();
        assert!(credential.secret == Secret::Token("t".into()));
        let error = run(&script("exit 3", ExecInteractiveMode::Never))
            .err()
            .unwrap();
        assert!(error.contains("exit status: 3"), "{error}");
        let missing = ExecConfig {
            command: Some("/nowhere/plugin".into()),
            install_hint: Some("Install it from example.org.".into()),
            ..script("", ExecInteractiveMode::Never)
        };
        let error = run(&missing).err().unwrap();
        assert!(error.contains("Install it from example.org"), "{error}");
    }
}
