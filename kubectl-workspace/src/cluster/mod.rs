//! From kubectl's flags and the kubeconfig to requests. Entry point: [`Cluster::connect`].

mod credentials;
mod error;
mod exec;
mod kubeconfig;
mod proxy;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER, WARNING};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::client::Body;
use kube::config::ExecInteractiveMode;
use kube::{Client, Config};
use serde_json::Value;

use crate::cli::ClusterFlags;
use crate::target::{Target, TargetError, Typed};
use credentials::Credentials;
use exec::Secret;
use kubeconfig::Chosen;

pub use error::{ClusterError, Refusal, chain};

/// kubectl has none; a server that says nothing for this long is not there.
const CONNECT_TIME: Duration = Duration::from_secs(30);
/// The longest answer that is read: a list, or a picture.
const MAX_BODY: usize = 64 << 20;

/// A cluster that can be talked to.
#[derive(Clone)]
pub struct Cluster {
    inner: Arc<Inner>,
}

struct Inner {
    config: Config,
    credentials: Credentials,
    /// The client of the last secret: connections are used again while it is the same.
    client: Mutex<Option<(Option<Secret>, Client)>>,
    namespace_flag: Option<String>,
    context: Option<String>,
    request_timeout: Option<Duration>,
}

impl Cluster {
    /// What the flags and the kubeconfig say; nothing is sent yet.
    pub fn connect(flags: &ClusterFlags) -> Result<Self, ClusterError> {
        Ok(Self::of(kubeconfig::load(flags)?, flags))
    }

    /// The same for work that must not ask its user anything.
    pub fn connect_without_prompts(flags: &ClusterFlags) -> Result<Self, ClusterError> {
        let mut chosen = kubeconfig::load(flags)?;
        if let Some(exec) = &mut chosen.exec {
            exec.interactive_mode = Some(ExecInteractiveMode::Never);
        }
        Ok(Self::of(chosen, flags))
    }

    fn of(mut chosen: Chosen, flags: &ClusterFlags) -> Self {
        chosen.config.connect_timeout = Some(CONNECT_TIME);
        // a console is silent for hours
        (chosen.config.read_timeout, chosen.config.write_timeout) = (None, None);
        // who asks decides what is asked again
        chosen.config.default_retry = false;
        let inner = Inner {
            credentials: Credentials::new(chosen.exec, chosen.token_file),
            config: chosen.config,
            client: Mutex::new(None),
            namespace_flag: flags.namespace.clone(),
            context: chosen.context,
            request_timeout: flags.request_timeout.filter(|time| !time.is_zero()),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The workspace that was typed.
    pub fn target(&self, typed: Typed) -> Result<Target, TargetError> {
        let default = &self.inner.config.default_namespace;
        typed.resolve(self.inner.namespace_flag.as_deref(), default)
    }

    /// The namespace of commands that name no workspace.
    pub fn namespace(&self) -> Result<String, TargetError> {
        let default = &self.inner.config.default_namespace;
        crate::target::namespace(self.inner.namespace_flag.as_deref(), default)
    }

    /// Name of the context in use, if there is one.
    pub fn context(&self) -> Option<&str> {
        self.inner.context.as_deref()
    }

    /// What tells this cluster from others: its address and its authorities.
    pub fn identity(&self) -> (String, &[Vec<u8>]) {
        let config = &self.inner.config;
        let authorities = config.root_cert.as_deref().unwrap_or_default();
        (config.cluster_url.to_string(), authorities)
    }

    /// The workspace as it is now.
    pub async fn get(&self, target: &Target) -> Result<Value, ClusterError> {
        self.json(Method::GET, &target.path(), "application/json", None)
            .await
    }

    /// A request whose answer is JSON.
    pub async fn json(
        &self,
        method: Method,
        path: &str,
        accept: &str,
        body: Option<&Value>,
    ) -> Result<Value, ClusterError> {
        let bytes = self.bytes(method, path, accept, body).await?;
        serde_json::from_slice(&bytes).map_err(|e| ClusterError::Answer(e.to_string()))
    }

    /// A request, whose whole answer must come within `--request-timeout`.
    pub async fn bytes(
        &self,
        method: Method,
        path: &str,
        accept: &str,
        body: Option<&Value>,
    ) -> Result<Vec<u8>, ClusterError> {
        let exchange = async {
            let response = self
                .send(|| {
                    let request = Request::builder()
                        .method(method.clone())
                        .uri(path)
                        .header(ACCEPT, accept);
                    match body {
                        None => request.body(Body::empty()),
                        Some(json) => request
                            .header(CONTENT_TYPE, "application/json")
                            .body(Body::from(json.to_string().into_bytes())),
                    }
                })
                .await?;
            if response.status().is_success() {
                return collect(response.into_body()).await;
            }
            Err(ClusterError::Refused(refusal(response).await?))
        };
        match self.inner.request_timeout {
            None => exchange.await,
            Some(time) => tokio::time::timeout(time, exchange)
                .await
                .map_err(|_| ClusterError::Timeout(time))?,
        }
    }

    /// Sends a request with fresh credentials, and again with fresher ones when they are not accepted.
    pub async fn send(
        &self,
        request: impl Fn() -> http::Result<Request<Body>>,
    ) -> Result<Response<Body>, ClusterError> {
        let secret = self.inner.credentials.current().await?;
        let response = self.send_with(secret.as_ref(), &request).await?;
        let refused = response.status() == StatusCode::UNAUTHORIZED;
        if refused && self.inner.credentials.refuse(secret.as_ref()).await {
            let secret = self.inner.credentials.current().await?;
            return self.send_with(secret.as_ref(), &request).await;
        }
        Ok(response)
    }

    async fn send_with(
        &self,
        secret: Option<&Secret>,
        request: impl Fn() -> http::Result<Request<Body>>,
    ) -> Result<Response<Body>, ClusterError> {
        let client = self.client(secret)?;
        let request = request().map_err(|e| ClusterError::Answer(e.to_string()))?;
        let response = client.send(request).await;
        let response = response.map_err(|e| self.unreachable(&e))?;
        for warning in warnings(response.headers()) {
            crate::say::note(&format!("Warning: {warning}"));
        }
        Ok(response)
    }

    /// An error of the connection, with the server's name.
    pub fn unreachable(&self, error: &dyn std::error::Error) -> ClusterError {
        let config = &self.inner.config;
        let server = match &config.proxy_url {
            None => config.cluster_url.to_string(),
            Some(proxy) => format!(
                "{} through the proxy {}",
                config.cluster_url,
                proxy.host().unwrap_or_default()
            ),
        };
        ClusterError::Unreachable {
            server,
            why: chain(error),
        }
    }

    fn client(&self, secret: Option<&Secret>) -> Result<Client, ClusterError> {
        let mut last = self
            .inner
            .client
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some((of, client)) = last.as_ref()
            && of.as_ref() == secret
        {
            return Ok(client.clone());
        }
        let mut config = self.inner.config.clone();
        credentials::put(&mut config, secret);
        let client = Client::try_from(config).map_err(|e| ClusterError::Config(chain(&e)))?;
        *last = Some((secret.cloned(), client.clone()));
        Ok(client)
    }
}

/// Names of the kubeconfig's contexts.
pub fn contexts(flags: &ClusterFlags) -> Result<Vec<String>, ClusterError> {
    kubeconfig::contexts(flags)
}

/// `299 - "text"`, as kube-apiserver sends them (RFC 9111 §5.5).
fn warnings(headers: &HeaderMap) -> Vec<String> {
    let texts = headers.get_all(WARNING).into_iter().filter_map(|value| {
        let text = value.to_str().ok()?.strip_prefix("299 ")?;
        let (_, quoted) = text.split_once(" \"")?;
        Some(
            quoted
                .strip_suffix('"')?
                .replace("\\\"", "\"")
                .replace("\\\\", "\\"),
        )
    });
    texts.collect()
}

/// What an answer that says no says.
pub async fn refusal(response: Response<Body>) -> Result<Refusal, ClusterError> {
    let code = response.status().as_u16();
    let retry_after = response
        .headers()
        .get(RETRY_AFTER)
        .and_then(|v| v.to_str().ok())
        .and_then(|v| v.parse().ok());
    let body = collect(response.into_body()).await?;
    Ok(Refusal::read(code, retry_after, &body))
}

/// A body, as far as it has a reasonable length.
async fn collect(body: Body) -> Result<Vec<u8>, ClusterError> {
    let collected = http_body_util::Limited::new(body, MAX_BODY).collect().await;
    Ok(collected
        .map_err(|e| ClusterError::Answer(e.to_string()))?
        .to_bytes()
        .to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_read_as_they_were_meant() {
        let mut headers = HeaderMap::new();
        for value in [
            r#"299 - "unknown field \"spec.x\"""#,
            "199 - \"no\"",
            "nonsense",
        ] {
            headers.append(WARNING, value.parse().unwrap());
        }
        assert_eq!(warnings(&headers), [r#"unknown field "spec.x""#]);
    }
}
