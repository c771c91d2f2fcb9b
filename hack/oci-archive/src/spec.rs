//! The documents of an OCI image, as serde writes and reads them. Source: image-spec `config.md`, `manifest.md`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Digest, Error};

pub(crate) const LAYOUT_FILE: &str = "oci-layout";
pub(crate) const LAYOUT: &[u8] = br#"{"imageLayoutVersion":"1.0.0"}"#;
pub(crate) const INDEX_FILE: &str = "index.json";
pub(crate) const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";
pub(crate) const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const CONFIG_TYPE: &str = "application/vnd.oci.image.config.v1+json";
pub(crate) const LAYER_TYPE: &str = "application/vnd.oci.image.layer.v1.tar";
pub(crate) const LAYER_GZIP_TYPE: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
/// The full name, read by containerd's importer.
pub(crate) const NAME_ANNOTATION: &str = "io.containerd.image.name";
/// The tag, read by everybody else.
pub(crate) const REF_ANNOTATION: &str = "org.opencontainers.image.ref.name";

/// How containers of an image run: the `config` object of an image configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct RunConfig {
    /// `UID`, `UID:GID` or names that the image's `/etc/passwd` knows; empty is root.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// `NAME=value`, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// The program and its fixed arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub entrypoint: Vec<String>,
    /// Further arguments, which a Pod's `args` replace.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cmd: Vec<String>,
    /// The working directory; empty is `/`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub working_dir: String,
    /// Free labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// The machine that an image is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    /// Go's name of the architecture.
    pub architecture: String,
    /// Always `linux` here.
    pub os: String,
}

impl Platform {
    /// Linux on the architecture with this name of Go's or of the kernel's.
    ///
    /// # Errors
    /// [`Error::Architecture`] when it is neither.
    pub fn linux(architecture: &str) -> Result<Self, Error> {
        let architecture = match architecture {
            "amd64" | "x86_64" => "amd64",
            "arm64" | "aarch64" => "arm64",
            other => return Err(Error::Architecture(other.to_owned())),
        };
        Ok(Self {
            architecture: architecture.into(),
            os: "linux".into(),
        })
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ImageConfig {
    pub(crate) created: String,
    #[serde(flatten)]
    pub(crate) platform: Platform,
    pub(crate) config: RunConfig,
    pub(crate) rootfs: RootFs,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RootFs {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) diff_ids: Vec<Digest>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Manifest {
    pub(crate) schema_version: u8,
    pub(crate) media_type: String,
    pub(crate) config: Descriptor,
    pub(crate) layers: Vec<Descriptor>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Index {
    pub(crate) schema_version: u8,
    pub(crate) media_type: String,
    pub(crate) manifests: Vec<Descriptor>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    pub(crate) media_type: String,
    pub(crate) digest: Digest,
    pub(crate) size: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) annotations: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) platform: Option<Platform>,
}

impl Descriptor {
    pub(crate) fn new(media_type: &str, digest: Digest, size: u64) -> Self {
        Self {
            media_type: media_type.into(),
            digest,
            size,
            annotations: BTreeMap::new(),
            platform: None,
        }
    }
}
