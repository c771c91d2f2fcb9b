//! Trust from the ConfigMap `kube-system/extension-apiserver-authentication`, which kube-apiserver
//! keeps for its extensions (`kubernetes/pkg/controlplane/controller/clusterauthenticationtrust`).
//!
//! Entry point: [`ConfigMapTrust`]. [`ConfigMapTrust::look_up`] reads it once at start,
//! [`ConfigMapTrust::follow`] keeps up with it. What is missing or broken later leaves the last
//! good trust in place: certificates must not stop working because somebody deletes a ConfigMap.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{StreamExt as _, TryStreamExt as _};
use http::HeaderName;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    runtime::{WatchStreamExt as _, watcher},
};
use tokio_util::sync::CancellationToken;

use super::{BundleError, CaBundle, RequestHeader, Trust, TrustStore};

const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";
/// How long a server that starts waits for kube-apiserver, and between two questions.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(500);

/// The ConfigMap cannot be read or understood.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    /// kube-apiserver refused or was not reached.
    #[error(
        "cannot read ConfigMap {NAMESPACE}/{NAME}: {0}; if it is forbidden, bind this server's \
         account: kubectl create rolebinding -n {NAMESPACE} ROLEBINDING_NAME \
         --role=extension-apiserver-authentication-reader --serviceaccount=YOUR_NS:YOUR_SA"
    )]
    Read(#[from] Box<kube::Error>),
    /// kube-apiserver did not answer.
    #[error("cannot read ConfigMap {NAMESPACE}/{NAME}: no answer within {0:?}")]
    Late(Duration),
    /// A CA bundle in it is broken.
    #[error("key {key} of ConfigMap {NAMESPACE}/{NAME}: {source}")]
    Bundle {
        /// The key.
        key: &'static str,
        /// Why.
        source: BundleError,
    },
    /// A list in it is broken.
    #[error("key {key} of ConfigMap {NAMESPACE}/{NAME} is no JSON list of strings: {source}")]
    List {
        /// The key.
        key: &'static str,
        /// Why.
        source: serde_json::Error,
    },
    /// A header name in it is none.
    #[error("key {key} of ConfigMap {NAMESPACE}/{NAME}: {name:?} is no header name")]
    Header {
        /// The key.
        key: &'static str,
        /// The name.
        name: String,
    },
}

/// Which parts are looked up: those that no flag gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The client CA.
    pub client_ca: bool,
    /// Everything about front proxies.
    pub request_header: bool,
}

/// Keeps a [`TrustStore`] in step with the ConfigMap.
pub struct ConfigMapTrust {
    api: Api<ConfigMap>,
    store: Arc<TrustStore>,
    missing: Missing,
}

impl ConfigMapTrust {
    /// Reads with `client`, which needs the role `extension-apiserver-authentication-reader`.
    pub fn new(client: kube::Client, store: Arc<TrustStore>, missing: Missing) -> Self {
        Self {
            api: Api::namespaced(client, NAMESPACE),
            store,
            missing,
        }
    }

    /// Reads it once; kube-apiserver may be busy for a moment. A cluster without it is no failure: it
    /// may come later.
    ///
    /// # Errors
    /// When it cannot be read or understood.
    pub async fn look_up(&self) -> Result<(), LookupError> {
        match self.read().await? {
            Some(map) => self.take(&map),
            None => {
                tracing::warn!("there is no ConfigMap {NAMESPACE}/{NAME} (yet)");
                Ok(())
            }
        }
    }

    async fn read(&self) -> Result<Option<ConfigMap>, LookupError> {
        let began = Instant::now();
        loop {
            let found = match tokio::time::timeout(PATIENCE, self.api.get_opt(NAME)).await {
                Ok(found) => found.map_err(|e| LookupError::Read(Box::new(e))),
                Err(_) => return Err(LookupError::Late(PATIENCE)),
            };
            match found {
                Err(LookupError::Read(error))
                    if is_passing(&error) && began.elapsed() < PATIENCE =>
                {
                    tokio::time::sleep(PAUSE).await;
                }
                found => return found,
            }
        }
    }

    /// Follows it until `stop`.
    pub async fn follow(self, stop: CancellationToken) {
        let config = watcher::Config::default().fields(&format!("metadata.name={NAME}"));
        let mut events = watcher(self.api.clone(), config)
            .default_backoff()
            .applied_objects()
            .boxed();
        while let Some(next) = stop.run_until_cancelled(events.try_next()).await {
            match next {
                Ok(Some(map)) => {
                    if let Err(error) = self.take(&map) {
                        tracing::warn!(%error, "keeping the last trust");
                    }
                }
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(%error, "cannot watch ConfigMap {NAMESPACE}/{NAME}; trying again");
                }
            }
        }
    }

    fn take(&self, map: &ConfigMap) -> Result<(), LookupError> {
        let empty = BTreeMap::new();
        let found = parse(map.data.as_ref().unwrap_or(&empty))?;
        self.store.update(|trust| merge(trust, found, self.missing));
        Ok(())
    }
}

/// Whether kube-apiserver answers, but not now.
fn is_passing(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 429 | 500 | 503 | 504))
}

/// Replaces the parts that are looked up; what is not there any more is kept.
fn merge(trust: &mut Trust, found: Trust, missing: Missing) {
    if missing.client_ca && found.client_ca.is_some() {
        trust.client_ca = found.client_ca;
    }
    if missing.request_header && found.request_header.is_some() {
        trust.request_header = found.request_header;
    }
}

fn parse(data: &BTreeMap<String, String>) -> Result<Trust, LookupError> {
    let client_ca = bundle(data, "client-ca-file")?.map(Arc::new);
    let ca = bundle(data, "requestheader-client-ca-file")?;
    let request_header = match ca {
        None => None,
        Some(ca) => Some(Arc::new(RequestHeader {
            ca,
            allowed_names: list(data, "requestheader-allowed-names")?,
            username_headers: header_names(data, "requestheader-username-headers")?,
            uid_headers: header_names(data, "requestheader-uid-headers")?,
            group_headers: header_names(data, "requestheader-group-headers")?,
            extra_prefixes: list(data, "requestheader-extra-headers-prefix")?
                .iter()
                .map(|prefix| prefix.to_ascii_lowercase())
                .collect(),
        })),
    };
    Ok(Trust {
        client_ca,
        request_header,
    })
}

fn bundle(
    data: &BTreeMap<String, String>,
    key: &'static str,
) -> Result<Option<CaBundle>, LookupError> {
    match data.get(key).map(|text| text.trim()) {
        None | Some("") => Ok(None),
        Some(pem) => CaBundle::from_pem(pem.as_bytes())
            .map(Some)
            .map_err(|source| LookupError::Bundle { key, source }),
    }
}

fn list(data: &BTreeMap<String, String>, key: &'static str) -> Result<Vec<String>, LookupError> {
    match data.get(key).map(|text| text.trim()) {
        None | Some("") => Ok(Vec::new()),
        Some(text) => {
            let list: Option<Vec<String>> =
                serde_json::from_str(text).map_err(|source| LookupError::List { key, source })?;
            Ok(list.unwrap_or_default())
        }
    }
}

fn header_names(
    data: &BTreeMap<String, String>,
    key: &'static str,
) -> Result<Vec<HeaderName>, LookupError> {
    list(data, key)?
        .into_iter()
        .map(|name| {
            HeaderName::from_bytes(name.as_bytes()).map_err(|_| LookupError::Header { key, name })
        })
        .collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::test_pki::Ca;

    fn data(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let own = |(k, v): &(&str, &str)| ((*k).to_owned(), (*v).to_owned());
        pairs.iter().map(own).collect()
    }

    #[test]
    fn the_config_map_of_kube_apiserver_is_understood() {
        let (client, front) = (Ca::new("client"), Ca::new("front"));
        let trust = parse(&data(&[
            ("client-ca-file", &client.pem()),
            ("requestheader-client-ca-file", &front.pem()),
            ("requestheader-allowed-names", r#"["front-proxy-client"]"#),
            ("requestheader-username-headers", r#"["X-Remote-User"]"#),
            ("requestheader-group-headers", r#"["X-Remote-Group"]"#),
            (
                "requestheader-extra-headers-prefix",
                r#"["X-Remote-Extra-"]"#,
            ),
        ]))
        .unwrap();
        assert_eq!(trust.client_ca.as_ref().unwrap().len(), 1);
        let front = trust.request_header.unwrap();
        assert_eq!(front.allowed_names, ["front-proxy-client"]);
        assert_eq!(front.username_headers, ["x-remote-user"]);
        assert!(front.uid_headers.is_empty());
        assert_eq!(front.extra_prefixes, ["x-remote-extra-"]);
    }

    #[test]
    fn what_is_broken_is_named() {
        let front = Ca::new("front").pem();
        for (key, value, expected) in [
            ("client-ca-file", "rubbish", "client-ca-file"),
            ("requestheader-allowed-names", "front", "no JSON list"),
            (
                "requestheader-group-headers",
                r#"["a b"]"#,
                "\"a b\" is no header name",
            ),
        ] {
            let pairs = [
                ("requestheader-client-ca-file", front.as_str()),
                (key, value),
            ];
            let error = parse(&data(&pairs)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert_eq!(
            parse(&data(&[("client-ca-file", " ")])).unwrap(),
            Trust::default()
        );
    }

    #[test]
    fn flags_win_and_what_disappears_is_kept() {
        let full = |names: [&str; 2]| {
            parse(&data(&[
                ("client-ca-file", &Ca::new(names[0]).pem()),
                ("requestheader-client-ca-file", &Ca::new(names[1]).pem()),
            ]))
            .unwrap()
        };
        let flags = full(["a", "b"]);
        let mut trust = flags.clone();
        let only_client = Missing {
            client_ca: true,
            request_header: false,
        };
        let found = full(["c", "d"]);
        merge(&mut trust, found.clone(), only_client);
        assert_eq!(trust.client_ca, found.client_ca);
        assert_eq!(trust.request_header, flags.request_header);
        let kept = trust.clone();
        let all = Missing {
            client_ca: true,
            request_header: true,
        };
        merge(&mut trust, Trust::default(), all);
        assert_eq!(trust, kept);
    }
}
