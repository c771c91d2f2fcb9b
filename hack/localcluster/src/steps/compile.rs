//! Our programs for people are compiled, and where PATH will find them.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::Context as _;
use async_trait::async_trait;

use super::{Context, Found, Step, programs::point};

/// The programs, each the only one of a package of the same name.
const PROGRAMS: [&str; 1] = ["kubectl-workspace"];

pub(super) struct Compile;

#[async_trait]
impl Step for Compile {
    fn name(&self) -> &'static str {
        "compiling the plugin"
    }

    /// Only cargo knows whether there is something to compile, and finds out quickly.
    async fn look(&self, _: &Context) -> anyhow::Result<Found> {
        Ok(Found::ToDo)
    }

    async fn run(&self, context: &Context) -> anyhow::Result<()> {
        let mut cargo = tokio::process::Command::new("cargo");
        cargo
            .args(["build", "--quiet", "--locked"])
            .args(PROGRAMS.iter().flat_map(|name| ["--package", name]));
        cargo
            .current_dir(&context.top)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let status = cargo.status().await.context("cannot run cargo")?;
        anyhow::ensure!(status.success(), "cargo build failed ({status})");
        context.state.create()?;
        let current = std::env::current_exe()?;
        for name in PROGRAMS {
            let link = context.state.bin().join(name);
            point(&link, &beside(&current, name))
                .with_context(|| format!("cannot make {}", link.display()))?;
        }
        Ok(())
    }
}

/// The program called `name` in the directory of `program`: cargo puts all of one profile into one.
fn beside(program: &Path, name: &str) -> PathBuf {
    program.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_one_profile_lie_together() {
        assert_eq!(
            beside(Path::new("/t/debug/localcluster"), "kubectl-workspace"),
            Path::new("/t/debug/kubectl-workspace")
        );
    }
}
