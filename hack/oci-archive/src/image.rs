//! An image and how it becomes one file.

use std::{
    collections::BTreeMap,
    io::{self, BufWriter, Read, Write},
    path::Path,
};

use serde::Serialize;
use tar::{Builder, Header};

use crate::{
    Digest, Error, Layer, Platform, Reference, RunConfig,
    blob::LayerBlob,
    error::file,
    spec::{
        CONFIG_TYPE, Descriptor, INDEX_FILE, INDEX_TYPE, ImageConfig, Index, LAYOUT, LAYOUT_FILE,
        MANIFEST_TYPE, Manifest, NAME_ANNOTATION, REF_ANNOTATION, RootFs,
    },
};

/// How layers are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// As they are: quickest to write and import on the same machine.
    #[default]
    None,
    /// With gzip: a third of the size, for archives that travel.
    Gzip,
}

/// An image that is to be written.
#[derive(Clone, Debug)]
pub struct Image {
    /// Its name.
    pub reference: Reference,
    /// How its containers run.
    pub config: RunConfig,
    /// Its layers, lowest first.
    pub layers: Vec<Layer>,
    /// The machine it is for; this one's architecture when none is said.
    pub platform: Option<Platform>,
    /// How layers are stored.
    pub compression: Compression,
    /// The time of every entry, in seconds since 1970.
    pub mtime: u64,
}

/// What has been written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The digest of the manifest: the identity of the image.
    pub manifest: Digest,
    /// The digest of the configuration, which kubelet shows as the image id.
    pub config: Digest,
}

impl Image {
    /// An image without layers and settings.
    pub fn new(reference: Reference) -> Self {
        Self {
            reference,
            config: RunConfig::default(),
            layers: Vec::new(),
            platform: None,
            compression: Compression::default(),
            mtime: 0,
        }
    }

    /// Writes the archive. The file appears whole or not at all.
    ///
    /// # Errors
    /// When a source cannot be read or the archive cannot be written.
    pub fn write(&self, path: &Path) -> Result<Written, Error> {
        let folder = path
            .parent()
            .filter(|p| !p.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let blobs = self
            .layers
            .iter()
            .map(|l| LayerBlob::new(l, self.compression, self.mtime, folder));
        let blobs = blobs.collect::<Result<Vec<_>, _>>()?;
        let platform = self
            .platform
            .clone()
            .map_or_else(|| Platform::linux(std::env::consts::ARCH), Ok)?;
        let documents = Documents::new(self, platform, &blobs).map_err(file("describe", path))?;
        let temporary = tempfile::Builder::new()
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
            .tempfile_in(folder)
            .map_err(file("create a temporary file in", folder))?;
        documents
            .write(blobs, BufWriter::new(temporary.as_file()))
            .map_err(file("write", path))?;
        temporary
            .persist(path)
            .map_err(|e| file("write", path)(e.error))?;
        Ok(Written {
            manifest: Digest::of(&documents.manifest),
            config: Digest::of(&documents.config),
        })
    }
}

/// The JSON documents of an image, as the bytes that are hashed.
struct Documents {
    config: Vec<u8>,
    manifest: Vec<u8>,
    index: Vec<u8>,
}

impl Documents {
    fn new(image: &Image, platform: Platform, layers: &[LayerBlob]) -> io::Result<Self> {
        let config = json(&ImageConfig {
            created: rfc3339(image.mtime),
            platform: platform.clone(),
            config: image.config.clone(),
            rootfs: RootFs {
                kind: "layers".into(),
                diff_ids: layers.iter().map(|l| l.diff_id.clone()).collect(),
            },
        })?;
        let manifest = json(&Manifest {
            schema_version: 2,
            media_type: MANIFEST_TYPE.into(),
            config: Descriptor::new(CONFIG_TYPE, Digest::of(&config), config.len() as u64),
            layers: layers
                .iter()
                .map(|l| Descriptor::new(l.media_type, l.digest.clone(), l.size))
                .collect(),
        })?;
        let descriptor = Descriptor {
            annotations: BTreeMap::from([
                (NAME_ANNOTATION.into(), image.reference.to_string()),
                (REF_ANNOTATION.into(), image.reference.tag().into()),
            ]),
            platform: Some(platform),
            ..Descriptor::new(MANIFEST_TYPE, Digest::of(&manifest), manifest.len() as u64)
        };
        let index = json(&Index {
            schema_version: 2,
            media_type: INDEX_TYPE.into(),
            manifests: vec![descriptor],
        })?;
        Ok(Self {
            config,
            manifest,
            index,
        })
    }

    /// The index comes first, so that the image's identity is found without reading the layers.
    fn write(&self, layers: Vec<LayerBlob>, out: impl Write) -> io::Result<()> {
        let mut tar = Builder::new(out);
        add(&mut tar, LAYOUT_FILE, LAYOUT.len() as u64, LAYOUT)?;
        add(
            &mut tar,
            INDEX_FILE,
            self.index.len() as u64,
            self.index.as_slice(),
        )?;
        for document in [&self.manifest, &self.config] {
            add_blob(
                &mut tar,
                &Digest::of(document),
                document.len() as u64,
                document.as_slice(),
            )?;
        }
        let mut written = std::collections::BTreeSet::new();
        for layer in layers {
            if written.insert(layer.digest.clone()) {
                add_blob(&mut tar, &layer.digest, layer.size, layer.content)?;
            }
        }
        tar.into_inner()?.flush()
    }
}

fn add_blob(
    tar: &mut Builder<impl Write>,
    digest: &Digest,
    size: u64,
    content: impl Read,
) -> io::Result<()> {
    let path = digest
        .blob_path()
        .ok_or_else(|| io::Error::other(format!("malformed digest {digest}")))?;
    add(tar, &path, size, content)
}

fn add(tar: &mut Builder<impl Write>, path: &str, size: u64, content: impl Read) -> io::Result<()> {
    let mut header = Header::new_gnu();
    header.set_mode(0o644);
    header.set_size(size);
    tar.append_data(&mut header, path, content)
}

fn json(value: &impl Serialize) -> io::Result<Vec<u8>> {
    Ok(serde_json::to_vec(value)?)
}

/// Seconds since 1970 as RFC 3339 in UTC, by Howard Hinnant's `civil_from_days`.
fn rfc3339(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let (day, month) = (
        day_of_year - (153 * shifted + 2) / 5 + 1,
        if shifted < 10 {
            shifted + 3
        } else {
            shifted - 9
        },
    );
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest % 3600 / 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::rfc3339;

    #[test]
    fn times_are_written_in_utc() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
        ] {
            assert_eq!(rfc3339(seconds), text);
        }
    }
}
