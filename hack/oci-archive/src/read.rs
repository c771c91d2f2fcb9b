//! Reads an archive back: its identity quickly, or all of it with every digest checked.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use serde::de::DeserializeOwned;

use crate::{
    Digest, Error, Platform, RunConfig,
    blob::measure,
    error::file,
    spec::{
        Descriptor, INDEX_FILE, ImageConfig, Index, LAYER_GZIP_TYPE, LAYER_TYPE, Manifest,
        NAME_ANNOTATION,
    },
};

/// No document of an image is larger; what is would only be a way to fill memory.
const DOCUMENT_LIMIT: u64 = 4 << 20;

/// What an archive of one image says about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Archive {
    /// The name it gets on import.
    pub name: String,
    /// The digest of its manifest.
    pub manifest: Digest,
    path: PathBuf,
}

/// A whole archive, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Contents {
    /// How its containers run.
    pub config: RunConfig,
    /// The machine it is for.
    pub platform: Platform,
    /// The digests of its layers as stored, lowest first.
    pub layers: Vec<Digest>,
}

impl Archive {
    /// Reads the index alone, which our writer puts first.
    ///
    /// # Errors
    /// When the file is not an archive of exactly one named image.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let bad = |problem: String| Error::Archive {
            path: path.to_owned(),
            problem,
        };
        let content = File::open(path).map_err(file("read", path))?;
        let mut tar = tar::Archive::new(io::BufReader::new(content));
        for entry in tar.entries().map_err(file("read", path))? {
            let entry = entry.map_err(file("read", path))?;
            if entry.path_bytes().as_ref() != INDEX_FILE.as_bytes() {
                continue;
            }
            let index: Index = document(entry).map_err(|e| bad(format!("{INDEX_FILE}: {e}")))?;
            let [only] = index.manifests.as_slice() else {
                return Err(bad(format!(
                    "{} images in it, and only one is expected",
                    index.manifests.len()
                )));
            };
            let name = only.annotations.get(NAME_ANNOTATION).cloned();
            let name = name.ok_or_else(|| bad(format!("its image has no {NAME_ANNOTATION}")))?;
            return Ok(Self {
                name,
                manifest: only.digest.clone(),
                path: path.to_owned(),
            });
        }
        Err(bad(format!(
            "no {INDEX_FILE} in it: not an OCI-layout archive"
        )))
    }

    /// Reads everything and compares each size and digest, the uncompressed layers' included.
    ///
    /// # Errors
    /// Says the first thing that is missing or differs.
    pub fn verify(&self) -> Result<Contents, Error> {
        let bad = |problem: String| Error::Archive {
            path: self.path.clone(),
            problem,
        };
        let blobs = self.blobs().map_err(file("read", &self.path))?;
        let find = |digest: &Digest| {
            blobs
                .get(digest)
                .ok_or_else(|| bad(format!("blob {digest} is missing or altered")))
        };
        let manifest: Manifest =
            parse(find(&self.manifest)?).map_err(|e| bad(format!("manifest: {e}")))?;
        let config_blob = find(&manifest.config.digest)?;
        let config: ImageConfig =
            parse(config_blob).map_err(|e| bad(format!("configuration: {e}")))?;
        let diff_ids = &config.rootfs.diff_ids;
        if diff_ids.len() != manifest.layers.len() {
            return Err(bad(format!(
                "{} layers, but {} diff ids",
                manifest.layers.len(),
                diff_ids.len()
            )));
        }
        check_size(&manifest.config, config_blob).map_err(bad)?;
        for (layer, diff_id) in manifest.layers.iter().zip(diff_ids) {
            let blob = find(&layer.digest)?;
            check_size(layer, blob)
                .and_then(|()| check_diff(layer, blob, diff_id))
                .map_err(bad)?;
        }
        let layers = manifest
            .layers
            .into_iter()
            .map(|layer| layer.digest)
            .collect();
        Ok(Contents {
            config: config.config,
            platform: config.platform,
            layers,
        })
    }

    /// Every blob under the digest that it really has.
    fn blobs(&self) -> io::Result<BTreeMap<Digest, Blob>> {
        let mut tar = tar::Archive::new(io::BufReader::new(File::open(&self.path)?));
        let mut blobs = BTreeMap::new();
        for entry in tar.entries()? {
            let (digest, blob) = Blob::read(entry?)?;
            blobs.insert(digest, blob);
        }
        Ok(blobs)
    }
}

/// What is kept of a blob after it has been hashed.
struct Blob {
    size: u64,
    /// The digest of what gzip hides, for blobs that are gzip.
    unpacked: Option<Digest>,
    /// The bytes, for blobs that can be documents.
    bytes: Vec<u8>,
}

impl Blob {
    fn read(mut entry: impl Read) -> io::Result<(Digest, Self)> {
        let mut bytes = Vec::new();
        entry
            .by_ref()
            .take(DOCUMENT_LIMIT)
            .read_to_end(&mut bytes)?;
        if (bytes.len() as u64) < DOCUMENT_LIMIT && !bytes.starts_with(&[0x1f, 0x8b]) {
            return Ok((
                Digest::of(&bytes),
                Self {
                    size: bytes.len() as u64,
                    unpacked: None,
                    bytes,
                },
            ));
        }
        let mut spool = tempfile::tempfile()?;
        io::copy(&mut bytes.as_slice().chain(entry), &mut spool)?;
        let (digest, size) = measure(rewound(&spool)?)?;
        let unpacked = if bytes.starts_with(&[0x1f, 0x8b]) {
            Some(measure(flate2::read::MultiGzDecoder::new(rewound(&spool)?))?.0)
        } else {
            None
        };
        Ok((
            digest,
            Self {
                size,
                unpacked,
                bytes: Vec::new(),
            },
        ))
    }
}

fn rewound(mut spool: &File) -> io::Result<io::BufReader<&File>> {
    io::Seek::rewind(&mut spool)?;
    Ok(io::BufReader::new(spool))
}

fn document<T: DeserializeOwned>(from: impl Read) -> Result<T, serde_json::Error> {
    serde_json::from_reader(from.take(DOCUMENT_LIMIT))
}

fn parse<T: DeserializeOwned>(blob: &Blob) -> Result<T, serde_json::Error> {
    serde_json::from_slice(&blob.bytes)
}

fn check_size(descriptor: &Descriptor, blob: &Blob) -> Result<(), String> {
    let Descriptor { digest, size, .. } = descriptor;
    if *size == blob.size {
        Ok(())
    } else {
        Err(format!("blob {digest} has {} bytes, not {size}", blob.size))
    }
}

fn check_diff(layer: &Descriptor, blob: &Blob, diff_id: &Digest) -> Result<(), String> {
    let really = match layer.media_type.as_str() {
        LAYER_TYPE => &layer.digest,
        LAYER_GZIP_TYPE => blob
            .unpacked
            .as_ref()
            .ok_or_else(|| format!("layer {} is not gzip", layer.digest))?,
        other => {
            return Err(format!(
                "layer {} has the unknown media type {other}",
                layer.digest
            ));
        }
    };
    if really == diff_id {
        Ok(())
    } else {
        Err(format!(
            "layer {} holds {really}, not {diff_id}",
            layer.digest
        ))
    }
}
