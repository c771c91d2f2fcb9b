//! `test`: runs suites one after the other and says how each went.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::Context as _;
use clap::{Args, ValueEnum as _};
use localcluster::harness::STATE_VARIABLE;
use localcluster::progress::seconds;
use localcluster::state::State;
use localcluster::steps::compile::Profile;

use super::suites::{Run, Suite, TestTarget};

/// Tells tests that take a scale (durations, sizes) to run at full size.
const LONG: &str = "KUBEWORKSPACES_LONG";

/// What `hack/test` is told.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  hack/test                  everything that CI runs; brings up the cluster if it is not up
  hack/test unit             seconds
  hack/test unit integration no root needed
  hack/test soak             the soak for a minute; with --long for ten
  hack/test --long           everything at full size, long included: before an issue is called resolved")]
pub(crate) struct TestArgs {
    /// Which suites [default: lint unit integration e2e soak; with --long all]
    #[arg(value_enum)]
    suites: Vec<Suite>,
    /// At full size, and with the tests that are too long for CI
    #[arg(long)]
    long: bool,
}

impl TestArgs {
    pub(crate) async fn run(self, state: &State) -> anyhow::Result<ExitCode> {
        let top = super::top();
        let targets = test_targets(&top)?;
        let suites = match (self.suites.is_empty(), self.long) {
            (false, _) => self.suites.clone(),
            (true, false) => Suite::GATE.to_vec(),
            (true, true) => Suite::ALL.to_vec(),
        };
        let mut results = Vec::new();
        for suite in suites {
            let begun = Instant::now();
            let verdict = self.run_suite(suite, &targets, &top, state);
            let verdict = verdict.unwrap_or_else(|error| {
                eprintln!("{error:#}");
                Verdict::Failed
            });
            results.push((suite, verdict, seconds(begun.elapsed())));
        }
        for (suite, verdict, time) in &results {
            println!("{:<12} {:<15} {time}", suite.name(), verdict.words());
        }
        let failed = results
            .iter()
            .any(|(_, verdict, _)| *verdict == Verdict::Failed);
        Ok(if failed {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        })
    }
}

impl TestArgs {
    /// All commands of a suite, even after one that failed: each finds faults of its own.
    fn run_suite(
        &self,
        suite: Suite,
        targets: &[TestTarget],
        top: &Path,
        state: &State,
    ) -> anyhow::Result<Verdict> {
        let runs = suite.runs(targets);
        if runs.is_empty() {
            return Ok(Verdict::Nothing);
        }
        if suite.needs_cluster() {
            let profile = profile(state, self.long);
            bring_up(top, state, profile)?;
        }
        let passed = runs
            .iter()
            .map(|run| run_one(run, top, state, self.long))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let all = passed.iter().all(|passed| *passed);
        Ok(if all {
            Verdict::Passed
        } else {
            Verdict::Failed
        })
    }
}

/// How a suite went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Nothing,
    Passed,
    Failed,
}

impl Verdict {
    fn words(self) -> &'static str {
        match self {
            Self::Nothing => "nothing to run",
            Self::Passed => "passed",
            Self::Failed => "FAILED",
        }
    }
}

fn run_one(run: &Run, top: &Path, state: &State, long: bool) -> anyhow::Result<bool> {
    let Run { program, args } = run;
    eprintln!("$ {program} {}", args.join(" "));
    let mut command = Command::new(if program.contains('/') {
        top.join(program)
    } else {
        program.into()
    });
    command.args(args).current_dir(top).stdin(Stdio::null());
    command.env(STATE_VARIABLE, state.root());
    if long {
        command.env(LONG, "1");
    }
    Ok(command
        .status()
        .with_context(|| format!("cannot run {program}"))?
        .success())
}

/// Tests against a cluster of their own use the programs that the suites before them have compiled; one that is up is
/// tested as it is.
fn profile(state: &State, long: bool) -> Option<Profile> {
    match (long, state.kubeconfig().exists()) {
        (true, _) => Some(Profile::Release),
        (false, true) => None,
        (false, false) => Some(Profile::Debug),
    }
}

/// A second `up` is quick, so it is simply run: what it says is what the reader needs to know.
pub(super) fn bring_up(top: &Path, state: &State, profile: Option<Profile>) -> anyhow::Result<()> {
    let mut up = Command::new(top.join("hack/up"));
    let profile = profile.and_then(|profile| profile.to_possible_value());
    let status = up
        .args(profile.map(|profile| format!("--profile={}", profile.get_name())))
        .env(STATE_VARIABLE, state.root())
        .current_dir(top)
        .status()
        .context("cannot run hack/up")?;
    anyhow::ensure!(
        status.success(),
        "hack/up failed, so the tests against the cluster cannot run"
    );
    Ok(())
}

/// The test files of the workspace, from `cargo metadata`.
fn test_targets(top: &Path) -> anyhow::Result<Vec<TestTarget>> {
    let mut cargo = Command::new("cargo");
    cargo
        .args(["metadata", "--format-version=1", "--no-deps", "--locked"])
        .current_dir(top);
    let output = cargo
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    anyhow::ensure!(
        output.status.success(),
        "cargo metadata failed ({})",
        output.status
    );
    let metadata = serde_json::from_slice(&output.stdout).context("cargo metadata is not JSON")?;
    Ok(targets_of_kind(&metadata, "test"))
}

/// The targets of one kind in the output of `cargo metadata`.
pub(super) fn targets_of_kind(metadata: &serde_json::Value, kind: &str) -> Vec<TestTarget> {
    let list = |value: &serde_json::Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let mut found = Vec::new();
    for package in list(&metadata["packages"]) {
        for target in list(&package["targets"]) {
            if list(&target["kind"]).iter().any(|k| k == kind) {
                found.push(TestTarget {
                    package: text(&package["name"]),
                    name: text(&target["name"]),
                });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_for_a_quick_run_is_made_of_what_is_compiled_already() {
        let temp = tempfile::tempdir().unwrap();
        let state = State::at(temp.path());
        assert_eq!(profile(&state, false), Some(Profile::Debug));
        std::fs::write(state.kubeconfig(), "").unwrap();
        assert_eq!(profile(&state, false), None);
        assert_eq!(profile(&state, true), Some(Profile::Release));
    }

    #[test]
    fn test_files_are_found_with_their_packages() {
        let metadata = serde_json::json!({"packages": [
            {"name": "a", "targets": [{"name": "a", "kind": ["lib"]}, {"name": "reads", "kind": ["test"]}]},
            {"name": "b", "targets": [{"name": "relay", "kind": ["bench"]}]},
        ]});
        let named = |package: &str, name: &str| TestTarget {
            package: package.into(),
            name: name.into(),
        };
        assert_eq!(targets_of_kind(&metadata, "test"), [named("a", "reads")]);
        assert_eq!(targets_of_kind(&metadata, "bench"), [named("b", "relay")]);
    }
}
