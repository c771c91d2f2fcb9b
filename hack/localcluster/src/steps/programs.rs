//! The programs are there, and kubectl is where PATH will find it.

use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::Context as _;
use async_trait::async_trait;

use super::node::all_run;
use super::{Context, Found, Step};
use crate::assets::{Assets, Binary};
use crate::node::packages::Packages;

pub(super) struct Programs {
    wanted: &'static [Binary],
    /// Whether what the node takes from Debian is wanted too.
    node: bool,
}

impl Programs {
    /// All of a cluster.
    pub(super) fn cluster() -> Self {
        Self {
            wanted: &Binary::CLUSTER,
            node: true,
        }
    }

    /// What is needed to use one that exists.
    pub(super) fn client() -> Self {
        Self {
            wanted: &[Binary::Kubectl],
            node: false,
        }
    }
}

#[async_trait]
impl Step for Programs {
    fn name(&self) -> &'static str {
        "getting the programs"
    }

    async fn look(&self, context: &Context) -> anyhow::Result<Found> {
        let link = context.state.bin().join("kubectl");
        let there = |b: &Binary| context.places.find(*b).is_some();
        let done = self.wanted.iter().all(there)
            && link.read_link().ok() == context.places.find(Binary::Kubectl)
            // Debian's updates are for the next node.
            && (!self.node || all_run(&context.state)?);
        Ok(if done { Found::Done } else { Found::ToDo })
    }

    async fn run(&self, context: &Context) -> anyhow::Result<()> {
        let (wanted, node, places) = (self.wanted, self.node, context.places.clone());
        let get = move || -> anyhow::Result<Assets> {
            let assets = Assets::ensure(wanted, &places)?;
            if node {
                Packages::in_cache(places.base()).node()?;
            }
            Ok(assets)
        };
        let assets = tokio::task::spawn_blocking(get).await??;
        context.state.create()?;
        let link = context.state.bin().join("kubectl");
        point(&link, assets.path(Binary::Kubectl)?)
            .with_context(|| format!("cannot make {}", link.display()))
    }
}

/// Makes `link` lead to `target`, whatever it was before.
pub(super) fn point(link: &Path, target: &Path) -> io::Result<()> {
    match std::fs::remove_file(link) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    symlink(target, link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_follows_the_newest_program() {
        let temp = tempfile::tempdir().unwrap();
        let link = temp.path().join("kubectl");
        for target in ["/old/kubectl", "/new/kubectl"] {
            point(&link, Path::new(target)).unwrap();
            assert_eq!(link.read_link().unwrap(), Path::new(target));
        }
    }
}
