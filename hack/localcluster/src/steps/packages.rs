//! Debian's packages are installed.

use async_trait::async_trait;

use super::{Context, Found, Step};
use crate::checks::packages;

pub(super) struct Packages;

#[async_trait]
impl Step for Packages {
    fn name(&self) -> &'static str {
        "installing Debian packages"
    }

    async fn look(&self, _: &Context) -> anyhow::Result<Found> {
        Ok(if packages::missing().is_empty() {
            Found::Done
        } else {
            Found::ToDo
        })
    }

    async fn run(&self, _: &Context) -> anyhow::Result<()> {
        let missing = packages::missing();
        for package in &missing {
            eprintln!("  {} ({})", package.name, package.reason);
        }
        Ok(packages::install(&missing)?)
    }
}
