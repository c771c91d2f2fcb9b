//! The Secret that all replicas share.
//!
//! It is made empty by server-side apply (which RBAC can grant for one name) and then changed by
//! compare-and-swap, so that of several replicas that start at once one decides.

use std::collections::BTreeMap;

use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::{issue::PemPair, plan::Stored};

const AUTHORITY_CERTIFICATE: &str = "ca.crt";
const AUTHORITY_KEY: &str = "ca.key";
const NEXT_CERTIFICATE: &str = "next-ca.crt";
const NEXT_KEY: &str = "next-ca.key";
const PREVIOUS: &str = "previous-ca.crt";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

/// Reads and writes the Secret.
#[derive(Clone)]
pub struct SecretStore {
    api: Api<Secret>,
    name: String,
}

impl SecretStore {
    /// The Secret of that namespace and name.
    pub fn new(client: Client, namespace: &str, name: &str) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            name: name.to_owned(),
        }
    }

    /// The API and name, to watch the Secret.
    pub(crate) fn target(&self) -> (Api<Secret>, &str) {
        (self.api.clone(), &self.name)
    }

    /// The Secret, made empty if it does not exist.
    ///
    /// # Errors
    /// When kube-apiserver refuses or cannot be reached.
    pub async fn get_or_create(&self) -> Result<Secret, kube::Error> {
        if let Some(secret) = self.api.get_opt(&self.name).await? {
            return Ok(secret);
        }
        let empty = json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": {
            "name": self.name, "labels": {"app.kubernetes.io/part-of": "kubeworkspaces"}}});
        self.api
            .patch(
                &self.name,
                &PatchParams::apply("workspaces-apiserver"),
                &Patch::Apply(empty),
            )
            .await
    }

    /// Replaces the Secret's data if nobody else has changed it; `None` when somebody has.
    ///
    /// # Errors
    /// When kube-apiserver refuses or cannot be reached.
    pub async fn replace(
        &self,
        mut secret: Secret,
        stored: &Stored,
    ) -> Result<Option<Secret>, kube::Error> {
        secret.data = Some(encode(stored));
        match self
            .api
            .replace(&self.name, &PostParams::default(), &secret)
            .await
        {
            Ok(secret) => Ok(Some(secret)),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// What a Secret holds; keys that are missing or not text count as absent.
pub fn decode(secret: &Secret) -> Stored {
    let text = |key: &str| {
        let bytes = secret.data.as_ref()?.get(key)?;
        String::from_utf8(bytes.0.clone())
            .ok()
            .filter(|text| !text.is_empty())
    };
    let pair = |certificate: &str, key: &str| {
        Some(PemPair {
            certificate: text(certificate)?,
            key: text(key)?,
        })
    };
    Stored {
        authority: pair(AUTHORITY_CERTIFICATE, AUTHORITY_KEY),
        next: pair(NEXT_CERTIFICATE, NEXT_KEY),
        previous: text(PREVIOUS)
            .map(|bundle| split(&bundle))
            .unwrap_or_default(),
        serving: pair(CERTIFICATE, KEY),
    }
}

fn encode(stored: &Stored) -> BTreeMap<String, ByteString> {
    let mut data = BTreeMap::new();
    let mut put =
        |key: &str, text: String| data.insert(key.to_owned(), ByteString(text.into_bytes()));
    for (pair, certificate, key) in [
        (&stored.authority, AUTHORITY_CERTIFICATE, AUTHORITY_KEY),
        (&stored.next, NEXT_CERTIFICATE, NEXT_KEY),
        (&stored.serving, CERTIFICATE, KEY),
    ] {
        if let Some(pair) = pair {
            put(certificate, pair.certificate.clone());
            put(key, pair.key.clone());
        }
    }
    if !stored.previous.is_empty() {
        put(PREVIOUS, stored.previous.join("\n"));
    }
    data
}

/// The single certificates of a bundle.
fn split(bundle: &str) -> Vec<String> {
    const END: &str = "-----END CERTIFICATE-----";
    bundle
        .split_inclusive(END)
        .filter(|part| part.contains(END))
        .map(|part| format!("{}\n", part.trim()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        let pem = |n: u8| format!("-----BEGIN CERTIFICATE-----\n{n}\n-----END CERTIFICATE-----\n");
        let pair = |n: u8| PemPair {
            certificate: pem(n),
            key: format!("key{n}"),
        };
        let stored = Stored {
            authority: Some(pair(1)),
            next: Some(pair(2)),
            previous: vec![pem(3), pem(4)],
            serving: Some(pair(5)),
        };
        let secret = Secret {
            data: Some(encode(&stored)),
            ..Secret::default()
        };
        assert_eq!(decode(&secret), stored);
        assert_eq!(decode(&Secret::default()), Stored::default());
    }
}
