//! Images are imported into the node.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;
use async_trait::async_trait;
use oci_archive::Archive;
use serde::{Deserialize, Serialize};

use super::recipe::{Image, named};
use crate::proc::{Identity, Ledger};
use crate::root::elevate;
use crate::steps::{Context, Found, Step};

pub(in crate::steps) struct Import;

/// What was imported, and into which node: a new one has nothing. Asking containerd would need root each time.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Imported {
    node: Option<Identity>,
    /// Names and digests.
    images: BTreeMap<String, String>,
}

#[async_trait]
impl Step for Import {
    fn name(&self) -> &'static str {
        "importing images into the node"
    }

    async fn look(&self, context: &Context) -> anyhow::Result<Found> {
        let (wanted, noted) = (wanted(context)?, Imported::load(context));
        Ok(if noted.covers(&wanted) {
            Found::Done
        } else {
            Found::ToDo
        })
    }

    async fn run(&self, context: &Context) -> anyhow::Result<()> {
        let archives = Image::wanted(&context.target)
            .iter()
            .map(|image| Ok(named(*image, context)?.archive(context)))
            .collect::<anyhow::Result<Vec<_>>>()?;
        import(context, &archives).await?;
        wanted(context)?.store(context)
    }
}

impl Imported {
    /// A file that cannot be read counts as none: importing again is safe.
    fn load(context: &Context) -> Self {
        let text = fs::read(path(context)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    fn store(&self, context: &Context) -> anyhow::Result<()> {
        let path = path(context);
        fs::write(&path, serde_json::to_vec_pretty(self)?)
            .with_context(|| format!("cannot write {}", path.display()))
    }

    fn covers(&self, wanted: &Self) -> bool {
        wanted.node.is_some()
            && self.node == wanted.node
            && wanted
                .images
                .iter()
                .all(|(name, digest)| self.images.get(name) == Some(digest))
    }
}

fn path(context: &Context) -> PathBuf {
    context.state.config().join("imported-images.json")
}

/// What the node should have.
fn wanted(context: &Context) -> anyhow::Result<Imported> {
    let node = Ledger::in_dir(context.state.run()).get("node")?;
    let mut images = BTreeMap::new();
    for image in Image::wanted(&context.target) {
        let archive = Archive::open(&named(*image, context)?.archive(context))?;
        images.insert(archive.name, archive.manifest.to_string());
    }
    Ok(Imported {
        node: node.map(|record| record.process),
        images,
    })
}

/// Imports OCI archives into the node of `context`; those that it has already are left alone.
pub async fn import(context: &Context, archives: &[PathBuf]) -> anyhow::Result<()> {
    let mut words = context.root_command("root-import");
    words.extend(
        archives
            .iter()
            .map(|archive| archive.clone().into_os_string()),
    );
    let what = "importing images into the node";
    Ok(tokio::task::spawn_blocking(move || elevate(what, &words)).await??)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imported(start: u64, images: &[(&str, &str)]) -> Imported {
        let node = serde_json::json!({"pid": 7, "start": start, "boot": "b"});
        Imported {
            node: Some(serde_json::from_value(node).unwrap()),
            images: images
                .iter()
                .map(|(name, digest)| ((*name).to_owned(), (*digest).to_owned()))
                .collect(),
        }
    }

    #[test]
    fn an_import_counts_for_its_node_and_its_digest_only() {
        let noted = imported(1, &[("a", "x"), ("old", "o")]);
        assert!(noted.covers(&imported(1, &[("a", "x")])));
        assert!(!noted.covers(&imported(1, &[("a", "y")])));
        assert!(!noted.covers(&imported(1, &[("b", "x")])));
        assert!(!noted.covers(&imported(2, &[("a", "x")])));
        assert!(!Imported::default().covers(&Imported::default()));
    }
}
