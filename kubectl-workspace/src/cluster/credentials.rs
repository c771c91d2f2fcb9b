//! The credentials that change while the program runs: a token file is read for each connection, a credential plugin
//! runs when what it printed has expired or was refused. Entry point: [`Credentials::current`].

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::jiff::Timestamp;
use kube::Config;
use kube::config::ExecConfig;

use super::error::ClusterError;
use super::exec::{self, Credential, Secret};

/// A credential that ends this soon is not used for a new connection.
const MARGIN: Duration = Duration::from_secs(10);

/// Where credentials come from.
#[derive(Clone)]
pub(super) struct Credentials {
    exec: Option<ExecConfig>,
    token_file: Option<PathBuf>,
    /// What the plugin printed last. Held while it runs, by a thread that may block, so that it
    /// runs once for all who wait.
    printed: Arc<Mutex<Option<Credential>>>,
}

impl Credentials {
    pub(super) fn new(exec: Option<ExecConfig>, token_file: Option<PathBuf>) -> Self {
        Self {
            exec,
            token_file,
            printed: Arc::default(),
        }
    }

    /// What to use for a connection now; `None` leaves the kubeconfig as it is.
    pub(super) async fn current(&self) -> Result<Option<Secret>, ClusterError> {
        if let Some(file) = &self.token_file {
            let token = tokio::fs::read_to_string(file).await.map_err(|e| {
                ClusterError::Config(format!("the token file {}: {e}", file.display()))
            })?;
            return Ok(Some(Secret::Token(token.trim().to_owned())));
        }
        let Some(exec) = self.exec.clone() else {
            return Ok(None);
        };
        let printed = self.printed.clone();
        let run = move || {
            let mut printed = printed.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(credential) = printed.as_ref().filter(|c| serves(c, Timestamp::now())) {
                return Ok(credential.secret.clone());
            }
            let credential = exec::run(&exec)?;
            let secret = credential.secret.clone();
            *printed = Some(credential);
            Ok(secret)
        };
        match tokio::task::spawn_blocking(run).await {
            Ok(Ok(secret)) => Ok(Some(secret)),
            Ok(Err(why)) => Err(ClusterError::Credentials(why)),
            Err(e) => Err(ClusterError::Credentials(e.to_string())),
        }
    }

    /// The server did not accept it. Answers whether another one can be had.
    pub(super) async fn refuse(&self, refused: Option<&Secret>) -> bool {
        let (Some(_), Some(refused)) = (&self.exec, refused.cloned()) else {
            return false;
        };
        let printed = self.printed.clone();
        let forget = move || {
            let mut printed = printed.lock().unwrap_or_else(PoisonError::into_inner);
            printed.take_if(|credential| credential.secret == refused);
        };
        tokio::task::spawn_blocking(forget).await.is_ok()
    }
}

fn serves(credential: &Credential, now: Timestamp) -> bool {
    credential
        .until
        .is_none_or(|until| now.checked_add(MARGIN).is_ok_and(|soon| soon < until))
}

/// Puts a secret where the client looks for it.
pub(super) fn put(config: &mut Config, secret: Option<&Secret>) {
    let user = &mut config.auth_info;
    match secret {
        None => {}
        Some(Secret::Token(token)) => user.token = Some(token.clone().into()),
        Some(Secret::Certificate { certificate, key }) => {
            user.client_certificate_data = Some(STANDARD.encode(certificate));
            user.client_key_data = Some(STANDARD.encode(key).into());
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::config::ExecInteractiveMode;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_credential_serves_until_shortly_before_its_end() {
        let credential = |until| Credential {
            secret: Secret::Token("t".into()),
            until,
        };
        let now = at("2026-01-01T00:00:00Z");
        assert!(serves(&credential(None), now));
        assert!(serves(&credential(Some(at("2026-01-01T00:00:11Z"))), now));
        assert!(!serves(&credential(Some(at("2026-01-01T00:00:10Z"))), now));
        assert!(!serves(&credential(Some(at("2025-12-31T23:59:59Z"))), now));
    }

    #[tokio::test]
    async fn a_token_file_is_read_each_time() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let credentials = Credentials::new(None, Some(file.path().into()));
        for token in ["one", "two\n"] {
            std::fs::write(file.path(), token).unwrap();
            let secret = credentials.current().await.ok().unwrap();
            assert!(secret == Some(Secret::Token(token.trim().into())));
        }
    }

    /// A plugin that counts its runs in a file.
    fn counting(dir: &std::path::Path, expiry: &str) -> Credentials {
        let line = format!(
            r#"echo x >> {0}/runs; n=$(wc -l < {0}/runs); echo '{{"apiVersion":"v","kind":"ExecCredential","status":{{"token":"t'$n'"{expiry}}}}}'"#,
            dir.display()
        );
        let exec = ExecConfig {
            api_version: Some("v".into()),
            command: Some("sh".into()),
            args: Some(vec!["-c".into(), line]),
            interactive_mode: Some(ExecInteractiveMode::Never),
            ..ExecConfig::default()
        };
        Credentials::new(Some(exec), None)
    }

    async fn token(credentials: &Credentials) -> String {
        match credentials.current().await.ok().unwrap() {
            Some(Secret::Token(token)) => token,
            _ => panic!("no token"),
        }
    }

    #[tokio::test]
    async fn a_plugin_runs_once_until_its_token_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let credentials = counting(dir.path(), "");
        let many = (0..8).map(|_| token(&credentials));
        assert_eq!(futures::future::join_all(many).await, ["t1"; 8]);
        assert!(credentials.refuse(Some(&Secret::Token("t1".into()))).await);
        assert_eq!(token(&credentials).await, "t2");
        // who was refused with the old one does not throw the new one away
        assert!(credentials.refuse(Some(&Secret::Token("t1".into()))).await);
        assert_eq!(token(&credentials).await, "t2");
        assert!(!Credentials::new(None, None).refuse(None).await);
    }

    #[tokio::test]
    async fn a_token_that_has_expired_is_asked_for_again() {
        let dir = tempfile::tempdir().unwrap();
        let credentials = counting(
            dir.path(),
            r#","expirationTimestamp":"2020-01-01T00:00:00Z""#,
        );
        assert_eq!(token(&credentials).await, "t1");
        assert_eq!(token(&credentials).await, "t2");
    }
}
