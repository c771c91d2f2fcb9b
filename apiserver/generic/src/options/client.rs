//! Clients of kube-apiserver, from a kubeconfig or the Pod's own ServiceAccount.

use std::path::{Path, PathBuf};

use kube::config::{KubeConfigOptions, Kubeconfig};

/// No client can be made.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig is broken.
    #[error("kubeconfig {path}: {source}")]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<kube::config::KubeconfigError>,
    },
    /// There is no kubeconfig, and this is no Pod.
    #[error("no --kubeconfig is given and this is not a Pod with a ServiceAccount: {0}")]
    InCluster(#[from] Box<kube::config::InClusterError>),
    /// The configuration does not make a client.
    #[error("cannot make a client for {url}: {source}")]
    Client {
        /// kube-apiserver.
        url: String,
        /// Why.
        source: Box<kube::Error>,
    },
}

/// A client by `kubeconfig`, or else by the Pod's ServiceAccount. Tokens in files are read again as
/// they rotate.
///
/// It asks once: an answer of 429, 503 or 504 is the caller's to judge. kube's own policy would ask up
/// to 16 times, past every deadline of ours, and repeat a guarded write whose first try may have been
/// carried out: then the answer is a conflict with ourselves.
///
/// # Errors
/// When neither makes a client.
pub async fn client(kubeconfig: Option<&Path>) -> Result<kube::Client, ClientError> {
    let config = match kubeconfig {
        Some(path) => from_file(path).await?,
        None => kube::Config::incluster().map_err(Box::new)?,
    };
    let url = config.cluster_url.to_string();
    from_config(config).map_err(|source| ClientError::Client {
        url,
        source: Box::new(source),
    })
}

fn from_config(mut config: kube::Config) -> Result<kube::Client, kube::Error> {
    config.default_retry = false;
    kube::Client::try_from(config)
}

async fn from_file(path: &Path) -> Result<kube::Config, ClientError> {
    let fault = |source| ClientError::Kubeconfig {
        path: path.to_owned(),
        source: Box::new(source),
    };
    let kubeconfig = Kubeconfig::read_from(path).map_err(fault)?;
    let options = KubeConfigOptions::default();
    kube::Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .map_err(fault)
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use http::Response;
    use hyper::{server::conn::http1, service::service_fn};
    use hyper_util::rt::TokioIo;
    use tokio::net::TcpListener;

    use super::*;

    /// A kube-apiserver that answers everything with this code, and counts.
    async fn refusing(code: u16) -> (String, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(AtomicUsize::new(0));
        let counting = asked.clone();
        tokio::spawn(async move {
            while let Ok((io, _)) = listener.accept().await {
                let counting = counting.clone();
                let service = service_fn(move |_| {
                    counting.fetch_add(1, Ordering::SeqCst);
                    let answer = Response::builder().status(code).header("retry-after", "0");
                    async move { answer.body(http_body_util::Empty::<bytes::Bytes>::new()) }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(io), service));
            }
        });
        (url, asked)
    }

    #[tokio::test]
    async fn every_refusal_is_the_callers_to_judge() {
        for code in [429, 503, 504] {
            let (url, asked) = refusing(code).await;
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("kubeconfig");
            let config = serde_json::json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
                "clusters": [{"name": "c", "cluster": {"server": url}}],
                "users": [{"name": "c", "user": {"token": "t"}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}]});
            std::fs::write(&path, config.to_string()).unwrap();
            let client = client(Some(&path)).await.unwrap();
            let request = http::Request::put("/api/v1/namespaces/a/configmaps/b");
            let request = request.body(b"{}".to_vec()).unwrap();
            let answer = client.request::<serde_json::Value>(request).await;
            assert!(answer.is_err());
            assert_eq!(asked.load(Ordering::SeqCst), 1, "{code}");
        }
    }
}
