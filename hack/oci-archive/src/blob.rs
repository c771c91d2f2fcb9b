//! Blobs on their way into an archive: hashed, perhaps compressed, kept in temporary files since layers can be large.

use std::{
    fs::File,
    io::{self, BufReader, BufWriter, Read, Seek as _, Write},
    path::Path,
};

use flate2::{Compression as Level, read::MultiGzDecoder, write::GzEncoder};

use crate::{
    Compression, Digest, Error, Layer,
    digest::Hashing,
    error::file,
    spec::{LAYER_GZIP_TYPE, LAYER_TYPE},
};

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// A layer in its final form.
pub(crate) struct LayerBlob {
    pub(crate) content: File,
    pub(crate) media_type: &'static str,
    pub(crate) digest: Digest,
    pub(crate) size: u64,
    /// The digest of the uncompressed tar, which the image's configuration lists.
    pub(crate) diff_id: Digest,
}

impl LayerBlob {
    /// Writes a layer into a nameless file in `folder`.
    pub(crate) fn new(
        layer: &Layer,
        compression: Compression,
        mtime: u64,
        folder: &Path,
    ) -> Result<Self, Error> {
        let temporary =
            tempfile::tempfile_in(folder).map_err(file("create a temporary file in", folder))?;
        let sink = Hashing::new(BufWriter::new(temporary));
        let (sink, diff_id, media_type) = match compression {
            Compression::None => {
                let mut tar = Hashing::new(sink);
                layer.write(mtime, &mut tar)?;
                let (sink, diff_id, _) = tar.finish();
                (sink, diff_id, LAYER_TYPE)
            }
            Compression::Gzip => {
                let mut tar = Hashing::new(GzEncoder::new(sink, Level::default()));
                layer.write(mtime, &mut tar)?;
                let (gzip, diff_id, _) = tar.finish();
                (
                    gzip.finish().map_err(file("compress into", folder))?,
                    diff_id,
                    LAYER_GZIP_TYPE,
                )
            }
        };
        let (buffered, digest, size) = sink.finish();
        let mut content = buffered
            .into_inner()
            .map_err(|e| file("write into", folder)(e.into_error()))?;
        content.rewind().map_err(file("read back from", folder))?;
        Ok(Self {
            content,
            media_type,
            digest,
            size,
            diff_id,
        })
    }
}

/// A reader of a file that takes gzip off when it is there.
pub(crate) fn open_maybe_gzip(path: &Path) -> Result<Box<dyn Read>, Error> {
    let mut content = BufReader::new(File::open(path).map_err(file("read", path))?);
    let mut magic = Vec::new();
    content
        .by_ref()
        .take(2)
        .read_to_end(&mut magic)
        .map_err(file("read", path))?;
    content.rewind().map_err(file("read", path))?;
    if magic == GZIP_MAGIC {
        Ok(Box::new(MultiGzDecoder::new(content)))
    } else {
        Ok(Box::new(content))
    }
}

/// Copies everything into nowhere and says what it was.
pub(crate) fn measure(mut from: impl Read) -> io::Result<(Digest, u64)> {
    let mut sink = Hashing::new(io::sink());
    io::copy(&mut from, &mut sink)?;
    sink.flush()?;
    let (_, digest, size) = sink.finish();
    Ok((digest, size))
}
