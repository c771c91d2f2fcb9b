//! A user's private key, from the text that they sent to the signature that logs them in.
//!
//! The SSH library is given the public half and asks for signatures ([`russh::Signer`]); the private
//! half is here alone, behind a pointer, read and used inside [`scrubbed`] on a thread that may
//! block, and gone when the login is over.

use std::sync::Arc;

use apiservice::v1alpha1::HostKey;
use russh::keys::{
    Algorithm, Error as KeyError, HashAlg, PrivateKey, PublicKey, agent::AgentIdentity,
    decode_secret_key, signature::Signer as _, ssh_encoding::Encode as _,
    ssh_key::private::KeypairData,
};

use super::{hello::Hello, secret::scrubbed};

/// Why a key cannot be used, in the caller's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadKey {
    /// It has a passphrase.
    #[error(
        "the private key is encrypted; take the passphrase off a copy (ssh-keygen -p), or use kubectl workspace ssh, where the key never leaves you"
    )]
    Encrypted,
    /// The public half.
    #[error("privateKey holds a public key; send the private one, the file without .pub")]
    Public,
    /// The secret is in a device.
    #[error(
        "the key lives in a security key and cannot be sent; use kubectl workspace ssh, which asks your own ssh for it"
    )]
    Hardware,
    /// A type that guests no longer accept.
    #[error("keys of this type are not supported; use an ed25519, ecdsa or rsa key")]
    Type,
    /// Not a key.
    #[error(
        "privateKey is no private key in OpenSSH or PEM form, or it is cut; send the whole file with its BEGIN and END lines"
    )]
    Unreadable,
    /// The library refused to sign.
    #[error("the private key cannot sign: it is damaged")]
    Damaged,
}

impl From<russh::SendError> for BadKey {
    /// The session that asked for a signature is gone; whoever waits for the login is told why.
    fn from(_: russh::SendError) -> Self {
        Self::Damaged
    }
}

/// A private key that can sign.
#[derive(Clone)]
pub struct UserKey {
    private: Arc<Held>,
    public: PublicKey,
}

/// Dropped inside [`scrubbed`], since dropping moves secrets too.
struct Held(Option<Box<PrivateKey>>);

impl Drop for Held {
    fn drop(&mut self) {
        let key = self.0.take();
        scrubbed(move || drop(key));
    }
}

impl UserKey {
    /// Reads the key of a first message, which is wiped.
    ///
    /// # Errors
    /// What is wrong with it.
    pub async fn read(hello: Hello) -> Result<(String, Self), BadKey> {
        let reading = tokio::task::spawn_blocking(move || {
            let key = scrubbed(|| parse(hello.private_key()).map(Box::new));
            key.map(|key| (hello.user.clone(), Self::hold(key)))
        });
        reading.await.unwrap_or(Err(BadKey::Unreadable))
    }

    fn hold(key: Box<PrivateKey>) -> Self {
        Self {
            public: key.public_key().clone(),
            private: Arc::new(Held(Some(key))),
        }
    }

    /// The public half.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// The public half's fingerprint, which a user finds with `ssh-keygen -l`.
    pub fn fingerprint(&self) -> String {
        self.public.fingerprint(HashAlg::Sha256).to_string()
    }

    /// Whether the hash of signatures has to be agreed upon.
    pub fn is_rsa(&self) -> bool {
        matches!(self.public.algorithm(), Algorithm::Rsa { .. })
    }

    /// Appends the signature of `data` to it, as RFC 4252 §7 wants it.
    async fn sign(&self, hash: Option<HashAlg>, data: Vec<u8>) -> Result<Vec<u8>, BadKey> {
        let held = self.private.clone();
        let signing = tokio::task::spawn_blocking(move || {
            let key = held.0.as_ref().ok_or(BadKey::Damaged)?;
            scrubbed(|| signed(key, hash, data)).ok_or(BadKey::Damaged)
        });
        signing.await.unwrap_or(Err(BadKey::Damaged))
    }
}

impl russh::Signer for UserKey {
    type Error = BadKey;

    async fn auth_sign(
        &mut self,
        _: &AgentIdentity,
        hash: Option<HashAlg>,
        data: Vec<u8>,
    ) -> Result<Vec<u8>, BadKey> {
        self.sign(hash, data).await
    }
}

fn signed(key: &PrivateKey, hash: Option<HashAlg>, mut data: Vec<u8>) -> Option<Vec<u8>> {
    let signature = match key.key_data() {
        KeypairData::Rsa(pair) => (pair, hash).try_sign(&data).ok()?,
        pair => pair.try_sign(&data).ok()?,
    };
    let mut blob = Vec::new();
    signature.encode(&mut blob).ok()?;
    blob.encode(&mut data).ok()?;
    Some(data)
}

/// All forms that OpenSSH and OpenSSL write, unencrypted.
fn parse(text: &str) -> Result<PrivateKey, BadKey> {
    let text = text.trim();
    if is_public(text) {
        return Err(BadKey::Public);
    }
    if text.contains("BEGIN ENCRYPTED PRIVATE KEY") || text.contains("Proc-Type: 4,ENCRYPTED") {
        return Err(BadKey::Encrypted);
    }
    if text.contains("BEGIN DSA PRIVATE KEY") {
        return Err(BadKey::Type);
    }
    let key = decode_secret_key(text, None).map_err(|error| match error {
        KeyError::KeyIsEncrypted => BadKey::Encrypted,
        KeyError::UnsupportedKeyType { .. } | KeyError::UnknownAlgorithm(_) => BadKey::Type,
        _ => BadKey::Unreadable,
    })?;
    match key.key_data() {
        KeypairData::Ed25519(_) | KeypairData::Ecdsa(_) | KeypairData::Rsa(_) => Ok(key),
        KeypairData::Encrypted(_) => Err(BadKey::Encrypted),
        KeypairData::SkEcdsaSha2NistP256(_) | KeypairData::SkEd25519(_) => Err(BadKey::Hardware),
        _ => Err(BadKey::Type),
    }
}

fn is_public(text: &str) -> bool {
    let pem = text.contains("PUBLIC KEY-----");
    let line = ["ssh-", "ecdsa-", "sk-"]
        .iter()
        .any(|p| text.starts_with(p));
    pem || line
}

/// A guest's key as we keep it. `None`: of no type that we know.
pub(super) fn host_key(key: &PublicKey) -> Option<HostKey> {
    HostKey::of_blob(&key.to_bytes().ok()?)
}
