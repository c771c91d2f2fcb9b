//! An archive says what went in, the same input gives the same bytes, and no altered byte goes unnoticed.

#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::{fs, io::Write as _, path::Path};

use oci_archive::{Archive, Compression, Image, Layer, Meta, Owners, Platform, Reference};

fn image(folder: &Path) -> Image {
    let tree = folder.join("tree");
    fs::create_dir_all(tree.join("etc")).unwrap();
    fs::write(tree.join("etc/passwd"), "root:x:0:0::/:/bin/sh\n").unwrap();
    let mut files = Layer::new();
    files
        .bytes("bin/tool", "#!/bin/sh\n".repeat(1000), Meta::EXECUTABLE)
        .unwrap();
    files.symlink("bin/sh", "tool").unwrap();
    let mut image = Image::new("local.test/tools/demo:1".parse::<Reference>().unwrap());
    image.platform = Some(Platform::linux("x86_64").unwrap());
    image.config.entrypoint = vec!["/bin/tool".into()];
    image.config.cmd = vec!["run".into()];
    image.config.env = vec!["PATH=/bin".into()];
    image.config.user = "107:107".into();
    image.config.working_dir = "/tmp".into();
    image.layers = vec![Layer::tree(&tree, Owners::Root).unwrap(), files];
    image
}

#[test]
fn what_went_in_comes_out_for_either_compression() {
    for compression in [Compression::None, Compression::Gzip] {
        let folder = tempfile::tempdir().unwrap();
        let image = Image {
            compression,
            ..image(folder.path())
        };
        let path = folder.path().join("image.tar");
        let written = image.write(&path).unwrap();
        let archive = Archive::open(&path).unwrap();
        assert_eq!(archive.name, "local.test/tools/demo:1");
        assert_eq!(archive.manifest, written.manifest);
        let contents = archive.verify().unwrap();
        assert_eq!(contents.config, image.config);
        assert_eq!(contents.platform.architecture, "amd64");
        assert_eq!(contents.layers.len(), 2);
    }
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for compression in [Compression::None, Compression::Gzip] {
        let bytes = |folder: &Path| {
            let path = folder.join("image.tar");
            Image {
                compression,
                ..image(folder)
            }
            .write(&path)
            .unwrap();
            fs::read(path).unwrap()
        };
        assert_eq!(bytes(one.path()), bytes(two.path()));
    }
}

#[test]
fn a_ready_tar_is_a_layer_with_or_without_gzip() {
    let folder = tempfile::tempdir().unwrap();
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(2);
    builder
        .append_data(&mut header, "f", b"hi".as_slice())
        .unwrap();
    let tar = builder.into_inner().unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&tar).unwrap();
    fs::write(folder.path().join("plain.tar"), &tar).unwrap();
    fs::write(folder.path().join("packed.tgz"), gzip.finish().unwrap()).unwrap();
    let layers = ["plain.tar", "packed.tgz"].map(|name| {
        let mut image = Image::new("local.test/a:1".parse().unwrap());
        image.layers = vec![Layer::tar(folder.path().join(name))];
        let path = folder.path().join("out.tar");
        image.write(&path).unwrap();
        Archive::open(&path).unwrap().verify().unwrap().layers
    });
    assert_eq!(layers[0], layers[1]);
    assert_eq!(layers[0], [oci_archive::Digest::of(&tar)]);
}

#[test]
fn a_changed_byte_in_any_blob_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image.tar");
    image(folder.path()).write(&path).unwrap();
    let whole = fs::read(&path).unwrap();
    for needle in [
        "#!/bin/sh",
        "root:x:0",
        "\"Entrypoint\"",
        "\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.manifest",
    ] {
        let mut bytes = whole.clone();
        let at = bytes
            .windows(needle.len())
            .position(|w| w == needle.as_bytes())
            .unwrap();
        bytes[at + 2] ^= 1;
        fs::write(&path, bytes).unwrap();
        let error = Archive::open(&path)
            .unwrap()
            .verify()
            .unwrap_err()
            .to_string();
        assert!(error.contains("is missing or altered"), "{needle}: {error}");
    }
}

#[test]
fn what_is_no_archive_of_ours_is_said_to_be_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.tar");
    fs::write(&path, tar::Builder::new(Vec::new()).into_inner().unwrap()).unwrap();
    assert!(
        Archive::open(&path)
            .unwrap_err()
            .to_string()
            .contains("not an OCI-layout archive")
    );
    assert!(
        Archive::open(&folder.path().join("absent"))
            .unwrap_err()
            .to_string()
            .starts_with("read ")
    );
}

#[test]
fn a_failed_write_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut image = Image::new("local.test/a:1".parse().unwrap());
    let mut layer = Layer::new();
    layer
        .file("f", folder.path().join("absent"), Meta::READABLE)
        .unwrap();
    image.layers.push(layer);
    assert!(
        image
            .write(&folder.path().join("out.tar"))
            .unwrap_err()
            .to_string()
            .contains("absent")
    );
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
