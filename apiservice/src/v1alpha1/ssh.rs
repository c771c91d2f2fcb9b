//! What is pinned of a guest's SSH server: its host keys, and the root disk that they belong to.
//!
//! A host key travels as the wire's key blob (RFC 4253 §6.6), which names its own algorithm; the
//! fingerprint is OpenSSH's (`ssh-keygen -l`).

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, STANDARD_NO_PAD},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The pinned host keys of a guest. They are written by the server at the first contact; no request
/// can change them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SshStatus {
    /// The root disk that the keys belong to; another one has keys of its own.
    pub root: RootIdentity,
    /// The host keys, one for each algorithm.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["algorithm"]))]
    pub host_keys: Vec<HostKey>,
    /// When they were found (RFC 3339).
    pub pinned_at: String,
}

/// Which root disk a guest runs on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RootIdentity {
    /// `PersistentVolumeClaim`, or `VirtualMachineInstance` or `Pod` for a root that is new at every
    /// start.
    pub kind: RootKind,
    /// UID of that object.
    pub uid: String,
}

/// What a root disk lives as long as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum RootKind {
    /// A disk that outlives stops and starts.
    PersistentVolumeClaim,
    /// A disk that is made anew whenever the machine starts.
    VirtualMachineInstance,
    /// The file system of a container.
    Pod,
}

/// A public key by which a guest's SSH server proves who it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostKey {
    /// The key's type, as known_hosts files spell it.
    pub algorithm: HostKeyAlgorithm,
    /// The public key in base64, as known_hosts files spell it.
    pub key: String,
    /// `SHA256:` and the hash in base64, as `ssh-keygen -l` prints it.
    pub fingerprint: String,
}

/// The types of host keys that are understood, in the order of preference.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[allow(missing_docs)]
pub enum HostKeyAlgorithm {
    #[serde(rename = "ssh-ed25519")]
    Ed25519,
    #[serde(rename = "ecdsa-sha2-nistp256")]
    EcdsaP256,
    #[serde(rename = "ecdsa-sha2-nistp384")]
    EcdsaP384,
    #[serde(rename = "ecdsa-sha2-nistp521")]
    EcdsaP521,
    #[serde(rename = "ssh-rsa")]
    Rsa,
}

impl HostKeyAlgorithm {
    /// All of them, the preferred one first.
    pub const ALL: [Self; 5] = [
        Self::Ed25519,
        Self::EcdsaP256,
        Self::EcdsaP384,
        Self::EcdsaP521,
        Self::Rsa,
    ];

    /// As known_hosts files and key blobs spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ed25519 => "ssh-ed25519",
            Self::EcdsaP256 => "ecdsa-sha2-nistp256",
            Self::EcdsaP384 => "ecdsa-sha2-nistp384",
            Self::EcdsaP521 => "ecdsa-sha2-nistp521",
            Self::Rsa => "ssh-rsa",
        }
    }

    fn named(name: &[u8]) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|known| known.as_str().as_bytes() == name)
    }
}

impl HostKey {
    /// From the wire's key blob. `None`: it is of no type that we know.
    pub fn of_blob(blob: &[u8]) -> Option<Self> {
        let length = blob.first_chunk::<4>()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let name = blob.get(4..)?.get(..length)?;
        Some(Self {
            algorithm: HostKeyAlgorithm::named(name)?,
            key: STANDARD.encode(blob),
            fingerprint: fingerprint(blob),
        })
    }

    /// The key that `key` holds, if all three fields say the same.
    pub fn is_consistent(&self) -> bool {
        let blob = STANDARD.decode(&self.key).unwrap_or_default();
        Self::of_blob(&blob).as_ref() == Some(self)
    }
}

fn fingerprint(blob: &[u8]) -> String {
    format!("SHA256:{}", STANDARD_NO_PAD.encode(Sha256::digest(blob)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its fingerprint is what `ssh-keygen -l` says of it.
    const KEY: &str = "AAAAC3NzaC1lZDI1NTE5AAAAIK2pr+Bfus1hvPof4Wb/plZCzSbqadHH0u+/f4ODtKnE";

    #[test]
    fn a_key_says_its_own_algorithm() {
        let key = HostKey::of_blob(&STANDARD.decode(KEY).unwrap()).unwrap();
        assert_eq!(key.algorithm, HostKeyAlgorithm::Ed25519);
        assert_eq!(key.key, KEY);
        assert_eq!(
            key.fingerprint,
            "SHA256:wX9j+SP2h7N0y1ZKQdM3E2rXGeJIBFZbmJjfvWeAgd0"
        );
        assert!(key.is_consistent());
        for broken in [
            HostKey {
                algorithm: HostKeyAlgorithm::Rsa,
                ..key.clone()
            },
            HostKey {
                key: format!("{KEY}AAAA"),
                ..key.clone()
            },
            HostKey {
                fingerprint: "SHA256:x".into(),
                ..key
            },
        ] {
            assert!(!broken.is_consistent(), "{broken:?}");
        }
    }

    #[test]
    fn blobs_that_are_no_keys_are_none() {
        for blob in [
            &b""[..],
            b"\0\0\0",
            b"\0\0\0\x07ssh-dss",
            b"\0\0\0\x0bssh-ed",
            b"\xff\xff\xff\xffssh-rsa",
        ] {
            assert_eq!(HostKey::of_blob(blob), None, "{blob:?}");
        }
    }

    #[test]
    fn algorithms_are_spelled_alike_everywhere() {
        for algorithm in HostKeyAlgorithm::ALL {
            let json = serde_json::to_value(algorithm).unwrap();
            assert_eq!(json, algorithm.as_str());
        }
    }
}
