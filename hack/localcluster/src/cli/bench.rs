//! `bench`: runs one benchmark. Each prints a table for people and, as its last line, a JSON object with `ratios`.

use std::process::{Command, ExitCode, Stdio};

use anyhow::Context as _;
use clap::Args;

use super::suites::TestTarget;
use super::test::targets_of_kind;

/// What `hack/bench` is told.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  hack/bench               which there are
  hack/bench relay         one of them; its last line is JSON

A ratio compares us with the peer beside us in the same run; the text of the benchmark says which way round.")]
pub(crate) struct BenchArgs {
    /// Which; none lists them
    name: Option<String>,
    /// Arguments for the benchmark itself, after --
    #[arg(last = true)]
    args: Vec<String>,
}

impl BenchArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let benches = benches()?;
        let Some(name) = self.name else {
            anyhow::ensure!(!benches.is_empty(), "there is no benchmark yet");
            benches.iter().for_each(|b| println!("{}", b.name));
            return Ok(ExitCode::SUCCESS);
        };
        let known = || {
            benches
                .iter()
                .map(|b| b.name.as_str())
                .collect::<Vec<_>>()
                .join(", ")
        };
        let bench = benches.iter().find(|b| b.name == name);
        let bench = bench
            .with_context(|| format!("there is no benchmark {name}; there are: {}", known()))?;
        let mut cargo = Command::new("cargo");
        cargo.args([
            "bench",
            "--quiet",
            "--locked",
            "--package",
            &bench.package,
            "--bench",
            &bench.name,
            "--",
        ]);
        let status = cargo
            .args(&self.args)
            .current_dir(super::top())
            .status()
            .context("cannot run cargo")?;
        Ok(if status.success() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

fn benches() -> anyhow::Result<Vec<TestTarget>> {
    let mut cargo = Command::new("cargo");
    cargo
        .args(["metadata", "--format-version=1", "--no-deps", "--locked"])
        .current_dir(super::top());
    let output = cargo
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    let metadata = serde_json::from_slice(&output.stdout).context("cargo metadata is not JSON")?;
    Ok(targets_of_kind(&metadata, "bench"))
}
