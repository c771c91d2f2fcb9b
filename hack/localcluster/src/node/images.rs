//! Images of the node: the pause image and a busybox image, made here; and the import of any archive.

use std::fs;
use std::path::{Path, PathBuf};

use oci_archive::{Archive, Image, Layer, Meta, Reference};

use super::error::{NodeError, io_error};
use super::tool::output;
use crate::proc::CommandLine;

/// The registry in the names of our images. It does not exist, so that nothing is ever pulled by mistake.
pub const REGISTRY: &str = "images.kubeworkspaces.test";
/// What a pod's namespaces are held by.
pub const PAUSE: &str = "images.kubeworkspaces.test/pause:1";
/// A shell and small tools, for tests and samples.
pub const BUSYBOX: &str = "images.kubeworkspaces.test/busybox:1";
/// Ends at once when told to, reaps what a pod with a shared process namespace leaves behind, and sleeps.
const PAUSE_SCRIPT: &str = "trap 'exit 0' TERM INT; while :; do sleep 2147483647 & wait $!; done";

/// Writes both images into `dir` and returns their archives.
///
/// # Errors
/// When busybox does not run or the archives cannot be written.
pub fn write_own(busybox: &Path, dir: &Path) -> Result<[PathBuf; 2], NodeError> {
    fs::create_dir_all(dir).map_err(io_error("create", dir))?;
    let applets = output(&CommandLine::new("busybox", busybox).arg("--list"))?;
    let archives = [dir.join("pause.tar"), dir.join("busybox.tar")];
    pause(busybox)?.write(&archives[0])?;
    shell(busybox, applets.lines())?.write(&archives[1])?;
    Ok(archives)
}

fn pause(busybox: &Path) -> Result<Image, oci_archive::Error> {
    let mut layer = Layer::new();
    layer.file("bin/busybox", busybox, Meta::EXECUTABLE)?;
    let mut image = Image::new(PAUSE.parse::<Reference>()?);
    image.config.entrypoint = ["/bin/busybox", "sh", "-c", PAUSE_SCRIPT]
        .map(str::to_owned)
        .to_vec();
    image.config.env = vec!["PATH=/bin".to_owned()];
    image.config.user = "65534:65534".to_owned();
    // `sleep` is found by its name.
    layer.symlink("bin/sleep", "busybox")?;
    image.layers.push(layer);
    Ok(image)
}

fn shell<'a>(
    busybox: &Path,
    applets: impl Iterator<Item = &'a str>,
) -> Result<Image, oci_archive::Error> {
    let mut layer = Layer::new();
    layer.file("bin/busybox", busybox, Meta::EXECUTABLE)?;
    for applet in applets.filter(|applet| *applet != "busybox") {
        layer.symlink(Path::new("bin").join(applet), "busybox")?;
    }
    layer.bytes(
        "etc/passwd",
        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n",
        Meta::READABLE,
    )?;
    layer.bytes("etc/group", "root:x:0:\nnogroup:x:65534:\n", Meta::READABLE)?;
    layer.dir(
        "root",
        Meta {
            mode: 0o700,
            ..Meta::EXECUTABLE
        },
    )?;
    layer.dir(
        "tmp",
        Meta {
            mode: 0o1777,
            ..Meta::EXECUTABLE
        },
    )?;
    let mut image = Image::new(BUSYBOX.parse::<Reference>()?);
    image.config.cmd = vec!["/bin/sh".to_owned()];
    image.config.env = vec!["PATH=/bin".to_owned()];
    image.layers.push(layer);
    Ok(image)
}

/// Imports an archive unless the node has exactly this image under this name; says whether it did.
///
/// # Errors
/// When the archive is none, or containerd refuses it.
pub fn import(ctr: &CommandLine, archive: &Path) -> Result<bool, NodeError> {
    let wanted = Archive::open(archive)?;
    let list = output(&ctr.clone().args(["images", "list"]))?;
    if has_image(&list, &wanted.name, &wanted.manifest.to_string()) {
        return Ok(false);
    }
    // `--index-name`-less import takes the name from the archive's annotation.
    output(&ctr.clone().args(["images", "import"]).arg(archive))?;
    Ok(true)
}

/// Whether `ctr images list` (REF TYPE DIGEST …) shows this name with this digest.
fn has_image(list: &str, name: &str, digest: &str) -> bool {
    list.lines().any(|line| {
        let mut columns = line.split_ascii_whitespace();
        columns.next() == Some(name) && columns.nth(1) == Some(digest)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_counts_as_imported_only_with_its_digest() {
        let list = "REF TYPE DIGEST SIZE PLATFORMS LABELS\n\
                    a.test/x:1 application/vnd.oci.image.manifest.v1+json sha256:aa 1 MiB linux/amd64 -\n";
        for (name, digest, want) in [
            ("a.test/x:1", "sha256:aa", true),
            ("a.test/x:1", "sha256:bb", false),
            ("a.test/x:2", "sha256:aa", false),
        ] {
            assert_eq!(has_image(list, name, digest), want, "{name} {digest}");
        }
    }

    #[test]
    fn our_images_are_wellformed() {
        let temp = tempfile::tempdir().unwrap();
        let busybox = temp.path().join("busybox");
        fs::write(&busybox, "not run here").unwrap();
        for (image, name) in [
            (pause(&busybox), PAUSE),
            (
                shell(&busybox, ["busybox", "sh", "ls"].into_iter()),
                BUSYBOX,
            ),
        ] {
            let path = temp.path().join("image.tar");
            image.unwrap().write(&path).unwrap();
            let archive = Archive::open(&path).unwrap();
            assert_eq!(archive.name, name);
            archive.verify().unwrap();
            assert!(name.starts_with(REGISTRY));
        }
    }
}
