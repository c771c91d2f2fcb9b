//! From kubectl's flags and the kubeconfig to a client. Entry point: [`Cluster::connect`].

use std::time::Duration;

use http::Request;
use http_body_util::BodyExt;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;

use crate::cli::ClusterFlags;
use crate::target::{Target, TargetError, Typed};

/// kubectl has none; a server that says nothing for this long is not there.
const CONNECT_TIME: Duration = Duration::from_secs(30);
/// A workspace is some KiB.
const MAX_BODY: usize = 8 << 20;

/// A cluster that can be talked to.
#[derive(Clone)]
pub struct Cluster {
    /// Sends requests with the user's credentials.
    pub client: Client,
    namespace_flag: Option<String>,
    default_namespace: String,
    request_timeout: Option<Duration>,
}

/// Why a request was not answered as hoped.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The kubeconfig or a flag.
    #[error("the kubeconfig cannot be used: {0}")]
    Config(String),
    /// The server cannot be reached.
    #[error("cannot reach the API server: {0}")]
    Unreachable(String),
    /// The request took too long.
    #[error("the API server did not answer within {0:?} (--request-timeout)")]
    Timeout(Duration),
    /// The server said no, in its words.
    #[error("{message}")]
    Status {
        /// HTTP code.
        code: u16,
        /// The message of the Status.
        message: String,
    },
    /// The answer cannot be read.
    #[error("the API server's answer cannot be read: {0}")]
    Answer(String),
}

impl Cluster {
    /// A client for what the flags and the kubeconfig say; nothing is sent yet.
    pub async fn connect(flags: &ClusterFlags) -> Result<Self, ClusterError> {
        let config = config(flags).await?;
        let default_namespace = config.default_namespace.clone();
        let client = Client::try_from(config).map_err(|e| ClusterError::Config(chain(&e)))?;
        Ok(Self {
            client,
            namespace_flag: flags.namespace.clone(),
            default_namespace,
            request_timeout: flags.request_timeout.filter(|time| !time.is_zero()),
        })
    }

    /// The workspace that was typed.
    pub fn target(&self, typed: Typed) -> Result<Target, TargetError> {
        typed.resolve(self.namespace_flag.as_deref(), &self.default_namespace)
    }

    /// The workspace as it is now.
    pub async fn get(&self, target: &Target) -> Result<Value, ClusterError> {
        self.json(Request::get(target.path()).body(Body::empty()))
            .await
    }

    /// A JSON merge patch of the workspace.
    pub async fn patch(&self, target: &Target, patch: &Value) -> Result<Value, ClusterError> {
        let uri = format!("{}?fieldManager=kubectl-workspace", target.path());
        let body = Body::from(patch.to_string().into_bytes());
        self.json(
            Request::patch(uri)
                .header("content-type", "application/merge-patch+json")
                .body(body),
        )
        .await
    }

    async fn json(&self, request: http::Result<Request<Body>>) -> Result<Value, ClusterError> {
        let request = request.map_err(|e| ClusterError::Answer(e.to_string()))?;
        let exchange = async {
            let response = self
                .client
                .send(request)
                .await
                .map_err(|e| ClusterError::Unreachable(chain(&e)))?;
            let code = response.status();
            let body = body(response.into_body()).await?;
            if !code.is_success() {
                return Err(status_error(code.as_u16(), &body));
            }
            serde_json::from_slice(&body).map_err(|e| ClusterError::Answer(e.to_string()))
        };
        match self.request_timeout {
            None => exchange.await,
            Some(time) => tokio::time::timeout(time, exchange)
                .await
                .map_err(|_| ClusterError::Timeout(time))?,
        }
    }
}

/// A body, as far as it has a reasonable length.
pub async fn body(body: Body) -> Result<Vec<u8>, ClusterError> {
    let collected = http_body_util::Limited::new(body, MAX_BODY).collect().await;
    Ok(collected
        .map_err(|e| ClusterError::Answer(e.to_string()))?
        .to_bytes()
        .to_vec())
}

/// The message of a `metav1.Status`, or the text that a proxy sent in its place.
pub fn status_error(code: u16, body: &[u8]) -> ClusterError {
    let status: Option<Value> = serde_json::from_slice(body).ok();
    let message = status
        .as_ref()
        .and_then(|s| s["message"].as_str())
        .map(str::to_owned);
    let message =
        message.unwrap_or_else(|| format!("HTTP {code}: {}", String::from_utf8_lossy(body).trim()));
    ClusterError::Status { code, message }
}

async fn config(flags: &ClusterFlags) -> Result<Config, ClusterError> {
    let wrong = |e: &dyn std::error::Error| ClusterError::Config(chain(e));
    let kubeconfig = match &flags.kubeconfig {
        Some(file) => Kubeconfig::read_from(file),
        None => Kubeconfig::read(),
    };
    let mut kubeconfig = kubeconfig.map_err(|e| wrong(&e))?;
    if let Some(context) = &flags.context {
        kubeconfig.current_context = Some(context.clone());
    }
    let ClusterFlags {
        context,
        cluster,
        user,
        ..
    } = flags.clone();
    let options = KubeConfigOptions {
        context,
        cluster,
        user,
    };
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .map_err(|e| wrong(&e))?;
    override_server(&mut config, flags)?;
    override_identity(&mut config, flags);
    config.connect_timeout = Some(CONNECT_TIME);
    // a console is silent for hours
    (config.read_timeout, config.write_timeout) = (None, None);
    Ok(config)
}

fn override_server(config: &mut Config, flags: &ClusterFlags) -> Result<(), ClusterError> {
    if let Some(server) = &flags.server {
        let url = server
            .parse()
            .map_err(|_| ClusterError::Config(format!("--server {server:?} is no URL")))?;
        config.cluster_url = url;
    }
    if let Some(file) = &flags.certificate_authority {
        if flags.insecure_skip_tls_verify {
            return Err(ClusterError::Config(
                "--certificate-authority and --insecure-skip-tls-verify exclude each other".into(),
            ));
        }
        std::fs::metadata(file)
            .map_err(|e| ClusterError::Config(format!("--certificate-authority {file:?}: {e}")))?;
        config.root_cert_file = Some(file.clone());
        config.accept_invalid_certs = false;
    }
    config.accept_invalid_certs |= flags.insecure_skip_tls_verify;
    if let Some(name) = &flags.tls_server_name {
        config.tls_server_name = Some(name.clone());
    }
    Ok(())
}

fn override_identity(config: &mut Config, flags: &ClusterFlags) {
    let auth = &mut config.auth_info;
    if let Some(token) = &flags.token {
        (auth.token, auth.token_file, auth.exec) = (Some(token.clone().into()), None, None);
    }
    if flags.impersonate.is_some() {
        auth.impersonate = flags.impersonate.clone();
    }
    if !flags.impersonate_groups.is_empty() {
        auth.impersonate_groups = Some(flags.impersonate_groups.clone());
    }
    if flags.impersonate_uid.is_some() {
        auth.impersonate_uid = flags.impersonate_uid.clone();
    }
}

/// An error with its causes, of which the last is mostly the one that helps.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeconfig() -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = r#"{"apiVersion":"v1","kind":"Config","current-context":"a",
            "contexts":[{"name":"a","context":{"cluster":"c","user":"u","namespace":"t1"}},{"name":"b","context":{"cluster":"d","user":"u"}}],
            "clusters":[{"name":"c","cluster":{"server":"http://127.0.0.1:1"}},{"name":"d","cluster":{"server":"http://127.0.0.1:2","proxy-url":"http://127.0.0.1:3"}}],
            "users":[{"name":"u","user":{"token":"t"}}]}"#;
        std::fs::write(file.path(), text).unwrap();
        file
    }

    async fn configured(edit: impl FnOnce(&mut ClusterFlags)) -> Result<Config, ClusterError> {
        let file = kubeconfig();
        let mut flags = ClusterFlags {
            kubeconfig: Some(file.path().into()),
            ..ClusterFlags::default()
        };
        edit(&mut flags);
        config(&flags).await
    }

    #[tokio::test]
    async fn flags_win_over_the_kubeconfig() {
        let plain = configured(|_| {}).await.unwrap();
        assert_eq!(
            (
                plain.cluster_url.to_string().as_str(),
                plain.default_namespace.as_str()
            ),
            ("http://127.0.0.1:1/", "t1")
        );
        let b = configured(|f| f.context = Some("b".into())).await.unwrap();
        assert_eq!(
            (b.cluster_url.port_u16(), b.proxy_url.unwrap().port_u16()),
            (Some(2), Some(3))
        );
        let server = configured(|f| f.server = Some("http://127.0.0.1:9".into()))
            .await
            .unwrap();
        assert_eq!(server.cluster_url.port_u16(), Some(9));
        let ann = configured(|f| {
            f.impersonate = Some("ann".into());
            f.impersonate_groups = vec!["g".into(), "h".into()];
            f.impersonate_uid = Some("7".into());
        });
        let auth = ann.await.unwrap().auth_info;
        assert_eq!(
            (auth.impersonate.as_deref(), auth.impersonate_uid.as_deref()),
            (Some("ann"), Some("7"))
        );
        assert_eq!(auth.impersonate_groups.unwrap(), ["g", "h"]);
    }

    #[tokio::test]
    async fn a_flag_that_cannot_be_meant_is_named() {
        let missing = configured(|f| f.certificate_authority = Some("/nowhere".into()))
            .await
            .err()
            .unwrap();
        assert!(missing.to_string().contains("--certificate-authority"));
        let context = configured(|f| f.context = Some("zz".into()))
            .await
            .err()
            .unwrap();
        assert!(context.to_string().contains("zz"), "{context}");
    }

    #[test]
    fn a_refusal_is_told_in_the_servers_words() {
        let status = status_error(
            403,
            br#"{"kind":"Status","message":"forbidden: no","code":403}"#,
        );
        assert_eq!(status.to_string(), "forbidden: no");
        assert_eq!(
            status_error(502, b"bad gateway\n").to_string(),
            "HTTP 502: bad gateway"
        );
    }
}
