//! Writes container images as OCI-layout archives, without a container engine, and reads them back.
//!
//! [`Image`] is what goes in: a [`Reference`], a [`RunConfig`] and [`Layer`]s. [`Image::write`] makes the one file
//! that `ctr images import`, `podman load` or `skopeo` take. The same input gives the same bytes on every machine:
//! entries are sorted, times are fixed, owners are said. [`Archive`] is the way back and checks every digest.
//!
//! ```no_run
//! use oci_archive::{Image, Layer, Meta, Reference};
//! # fn main() -> Result<(), oci_archive::Error> {
//! let mut layer = Layer::new();
//! layer.file("bin/pause", "target/pause", Meta::EXECUTABLE)?;
//! let mut image = Image::new("local.test/pause:1".parse::<Reference>()?);
//! image.config.entrypoint = vec!["/bin/pause".into()];
//! image.layers.push(layer);
//! let written = image.write("pause.tar".as_ref())?;
//! println!("{}", written.manifest);
//! # Ok(()) }
//! ```
//!
//! Source: the OCI image-spec v1.1 (`image-layout.md`, `layer.md`, `config.md`); the annotation that names an image
//! on import is containerd's (`core/images/archive/importer.go`).

mod blob;
mod digest;
mod error;
mod image;
mod layer;
mod read;
mod reference;
mod spec;
mod tree;
mod write;

pub use digest::Digest;
pub use error::Error;
pub use image::{Compression, Image, Written};
pub use layer::{Layer, Meta};
pub use read::{Archive, Contents};
pub use reference::Reference;
pub use spec::{Platform, RunConfig};
pub use tree::Owners;
