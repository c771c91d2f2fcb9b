//! What localvirt keeps in the cluster for itself: its CA, the APIService's trust in it, and whom it trusts.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{TryStreamExt as _, pin_mut};
use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Secret},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
    kube_aggregator::pkg::apis::apiregistration::v1::APIService,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
    runtime::{WatchStreamExt as _, watcher},
};
use serde_json::json;
use tracing::{info, warn};

use crate::{
    pki::{Authority, PkiError},
    server::trust::{CONFIG_MAP, FrontProxy, NAMESPACE, Trust},
};

/// The Secret with the CA.
const CA_SECRET: &str = "localvirt-ca";
/// The registrations; both versions mean the same.
pub const API_SERVICES: [&str; 2] = [
    "v1.subresources.kubevirt.io",
    "v1alpha3.subresources.kubevirt.io",
];
/// Pause after an object could not be patched.
const RETRY: Duration = Duration::from_secs(2);

/// Why there is no CA.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The cluster said no.
    #[error("Secret {CA_SECRET}: {0}")]
    Kube(#[from] kube::Error),
    /// It holds something else.
    #[error("Secret {CA_SECRET}: {0}")]
    Pki(#[from] PkiError),
    /// It is not all there.
    #[error(
        "Secret {CA_SECRET} lacks tls.crt or tls.key; delete it, and the launchers of before with it"
    )]
    Incomplete,
}

/// The CA of before, or a new one.
///
/// # Errors
/// When the Secret cannot be read, made, or understood.
pub async fn authority(client: &Client, namespace: &str) -> Result<Authority, SetupError> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    if let Some(secret) = secrets.get_opt(CA_SECRET).await? {
        return read(&secret);
    }
    let authority = Authority::generate()?;
    match secrets
        .create(&PostParams::default(), &secret_of(&authority))
        .await
    {
        Ok(_) => Ok(authority),
        // Made by somebody else meanwhile: theirs counts.
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {
            read(&secrets.get(CA_SECRET).await?)
        }
        Err(error) => Err(error.into()),
    }
}

fn secret_of(authority: &Authority) -> Secret {
    let data = [
        ("tls.crt", authority.certificate_pem()),
        ("tls.key", authority.key_pem()),
    ];
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    Secret {
        metadata: ObjectMeta {
            name: Some(CA_SECRET.to_owned()),
            ..ObjectMeta::default()
        },
        type_: Some("kubernetes.io/tls".into()),
        data: Some(
            data.into_iter()
                .map(|(k, v)| (k.to_owned(), bytes(v)))
                .collect::<BTreeMap<_, _>>(),
        ),
        ..Secret::default()
    }
}

fn read(secret: &Secret) -> Result<Authority, SetupError> {
    let text = |key: &str| {
        let bytes = secret.data.as_ref()?.get(key)?;
        String::from_utf8(bytes.0.clone()).ok()
    };
    match (text("tls.crt"), text("tls.key")) {
        (Some(certificate), Some(key)) => Ok(Authority::load(&certificate, &key)?),
        _ => Err(SetupError::Incomplete),
    }
}

/// Keeps the APIService's `caBundle` at our CA, whoever applies the manifest again. Runs until dropped.
pub async fn keep_ca_bundle(client: Client, authority: Arc<Authority>, name: &'static str) {
    let services: Api<APIService> = Api::all(client);
    let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let changes = watcher(services.clone(), only)
        .default_backoff()
        .applied_objects();
    pin_mut!(changes);
    loop {
        match changes.try_next().await {
            Ok(Some(service)) if trusts(&service, &authority) => {}
            Ok(Some(_)) => match patch_ca_bundle(&services, name, &authority).await {
                Ok(()) => info!("{name} trusts localvirt's CA now"),
                Err(error) => {
                    warn!(%error, "{name} could not be given localvirt's CA; kube-apiserver cannot reach localvirt");
                    tokio::time::sleep(RETRY).await;
                }
            },
            Ok(None) => return,
            Err(error) => warn!(%error, "cannot watch {name}"),
        }
    }
}

fn trusts(service: &APIService, authority: &Authority) -> bool {
    let bundle = service.spec.as_ref().and_then(|s| s.ca_bundle.as_ref());
    bundle.is_some_and(|b| b.0 == authority.certificate_pem().as_bytes())
}

async fn patch_ca_bundle(
    services: &Api<APIService>,
    name: &str,
    authority: &Authority,
) -> Result<(), kube::Error> {
    let bundle = ByteString(authority.certificate_pem().as_bytes().to_vec());
    let patch = Patch::Merge(json!({ "spec": { "caBundle": bundle } }));
    services
        .patch(name, &PatchParams::default(), &patch)
        .await
        .map(drop)
}

/// Follows what kube-apiserver says of its front proxy. What cannot be used leaves the trust of before. Runs until
/// dropped.
pub async fn follow_front_proxy(client: Client, front_proxy: Arc<FrontProxy>) {
    let maps: Api<ConfigMap> = Api::namespaced(client, NAMESPACE);
    let only = watcher::Config::default().fields(&format!("metadata.name={CONFIG_MAP}"));
    let changes = watcher(maps, only).default_backoff().applied_objects();
    pin_mut!(changes);
    loop {
        match changes.try_next().await {
            Ok(Some(map)) => match Trust::read(&map) {
                Ok(trust) => {
                    front_proxy.set(trust);
                    info!("the front proxy's CA is known");
                }
                Err(error) => warn!(%error, "the front proxy's CA stays what it was"),
            },
            Ok(None) => return,
            Err(error) => warn!(%error, "cannot watch {NAMESPACE}/{CONFIG_MAP}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ca_survives_its_secret() {
        let authority = Authority::generate().unwrap();
        let again = read(&secret_of(&authority)).unwrap();
        assert_eq!(again.certificate_pem(), authority.certificate_pem());
        assert!(matches!(
            read(&Secret::default()),
            Err(SetupError::Incomplete)
        ));
    }

    #[test]
    fn a_registration_without_our_ca_is_noticed() {
        let authority = Authority::generate().unwrap();
        let mut service = APIService {
            spec: Some(Default::default()),
            ..APIService::default()
        };
        assert!(!trusts(&service, &authority));
        service.spec.as_mut().unwrap().ca_bundle =
            Some(ByteString(authority.certificate_pem().into()));
        assert!(trusts(&service, &authority));
    }
}
