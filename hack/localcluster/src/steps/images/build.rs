//! Images are built whose inputs have changed.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;

use super::recipe::{Image, Named, named};
use crate::lock::hold;
use crate::steps::compile::{Profile, program};
use crate::steps::{Context, Found, Step};

/// How long another run may take that builds all of them.
const LOCK_LIMIT: Duration = Duration::from_secs(15 * 60);

pub(in crate::steps) struct Build;

#[async_trait]
impl Step for Build {
    fn name(&self) -> &'static str {
        "building images"
    }

    async fn look(&self, context: &Context) -> anyhow::Result<Found> {
        Ok(if stale(context)?.is_empty() {
            Found::Done
        } else {
            Found::ToDo
        })
    }

    async fn run(&self, context: &Context) -> anyhow::Result<()> {
        let lock = context.build_dir().join("lock");
        let who = "another run that is building images of this checkout";
        let _lock = tokio::task::spawn_blocking(move || hold(&lock, who, LOCK_LIMIT)).await??;
        empty(context)?;
        for image in stale(context)? {
            build(&image, context).await?;
        }
        empty(context)
    }
}

/// Those whose archive is missing or was made of something else.
fn stale(context: &Context) -> anyhow::Result<Vec<Named>> {
    let mut stale = Vec::new();
    for image in Image::wanted(&context.target) {
        let image = named(*image, context)?;
        let noted = fs::read_to_string(note(&image, context)).unwrap_or_default();
        if noted != image.inputs || !image.archive(context).is_file() {
            stale.push(image);
        }
    }
    Ok(stale)
}

/// Removes what a killed run was making.
fn empty(context: &Context) -> anyhow::Result<()> {
    let dir = context.temporary("images")?;
    fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))
}

/// The script makes the archive whole or not at all, and ends with this process; what it was made of is noted
/// afterwards.
async fn build(image: &Named, context: &Context) -> anyhow::Result<()> {
    let (archive, note) = (image.archive(context), note(image, context));
    if let Some(dir) = archive.parent() {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    eprintln!("  {}", image.name());
    let script = context.top.join(image.image.script());
    let mut command = tokio::process::Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "--"])
        .arg(&script)
        .args(image.image.args(&archive, &image.name(), context.profile)?)
        .env("OCI_ARCHIVE", program("oci-archive", Profile::Release)?)
        .env("BINARIES", programs(context)?)
        .env("TMPDIR", context.temporary("images")?)
        .current_dir(&context.top)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let status = command
        .status()
        .await
        .with_context(|| format!("cannot run {}", script.display()))?;
    anyhow::ensure!(
        status.success(),
        "{} failed ({status})",
        image.image.script()
    );
    fs::write(&note, &image.inputs).with_context(|| format!("cannot write {}", note.display()))
}

fn note(image: &Named, context: &Context) -> PathBuf {
    image.archive(context).with_extension("inputs")
}

fn programs(context: &Context) -> anyhow::Result<PathBuf> {
    let any = program("localvirt", context.profile)?;
    Ok(any.parent().map(PathBuf::from).unwrap_or_default())
}
