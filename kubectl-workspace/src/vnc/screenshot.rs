//! `kubectl workspace vnc --screenshot FILE`: a picture of the display, whole or not at all. Entry point: [`screenshot`].

use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use http::Method;

use crate::cluster::Cluster;
use crate::say;
use crate::target::Target;

/// How every PNG begins (ISO/IEC 15948 §5.2).
const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";

/// Fetches the picture and writes it.
pub(super) async fn screenshot(
    cluster: &Cluster,
    target: &Target,
    file: &Path,
) -> anyhow::Result<u8> {
    let path = format!("{}/screenshot", target.path());
    let accept = "image/png, application/json;q=0.5";
    let picture = cluster.bytes(Method::GET, &path, accept, None).await?;
    if !picture.starts_with(SIGNATURE) {
        bail!("the server's answer is no PNG: is there a proxy in between that changes answers?");
    }
    if file == Path::new("-") {
        say::bytes(&picture)?;
        return Ok(0);
    }
    write(file, &picture).with_context(|| format!("cannot write {}", file.display()))?;
    say::note(&format!(
        "Wrote {} ({} bytes).",
        file.display(),
        picture.len()
    ));
    Ok(0)
}

/// Beside the file first: an old picture stays until the new one is whole.
fn write(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    // devices and pipes cannot be replaced, only written to
    if file.metadata().is_ok_and(|found| !found.is_file()) {
        return std::fs::write(file, bytes);
    }
    let dir = match file.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    let name = file.file_name().ok_or(std::io::ErrorKind::InvalidInput)?;
    let mut beside = name.to_owned();
    beside.push(format!(".{}.part", std::process::id()));
    let beside = dir.join(beside);
    let written = std::fs::File::create_new(&beside)
        .and_then(|mut part| part.write_all(bytes))
        .and_then(|()| std::fs::rename(&beside, file));
    if written.is_err() {
        // what is left of it helps nobody
        let _ = std::fs::remove_file(&beside);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_replaces_the_old_one_whole() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("demo.png");
        for text in ["one", "two"] {
            write(&file, text.as_bytes()).unwrap();
            assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(write(&dir.path().join("no/where.png"), b"x").is_err());
        assert!(write(Path::new("/dev/null"), b"x").is_ok());
    }
}
