//! The test suites and what each runs: values, so that a table test holds them.

/// A suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Suite {
    /// Formatting, clippy, dependency edges, licences, generated files: what a reviewer should not have to say
    Lint,
    /// Pure decisions: seconds
    Unit,
    /// Against a real control plane, made and ended by the tests
    Integration,
    /// Against the cluster of hack/up, with real guests
    E2e,
}

/// A command line of a suite, run at the top of the checkout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) program: &'static str,
    pub(crate) args: Vec<String>,
}

/// A test file: its package and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TestTarget {
    pub(crate) package: String,
    pub(crate) name: String,
}

impl TestTarget {
    /// End-to-end tests are those whose files are called `e2e` or `e2e_…`.
    fn is_e2e(&self) -> bool {
        self.name == "e2e" || self.name.starts_with("e2e_")
    }
}

impl Suite {
    /// All, in the order in which failures are cheapest to find.
    pub(crate) const ALL: [Self; 4] = [Self::Lint, Self::Unit, Self::Integration, Self::E2e];

    /// Its name, as it is typed.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Lint => "lint",
            Self::Unit => "unit",
            Self::Integration => "integration",
            Self::E2e => "e2e",
        }
    }

    /// Whether it needs the cluster of hack/up.
    pub(crate) fn needs_cluster(self) -> bool {
        self == Self::E2e
    }

    /// What it runs.
    pub(crate) fn runs(self, targets: &[TestTarget]) -> Vec<Run> {
        match self {
            Self::Lint => vec![
                cargo(&["fmt", "--all", "--check"]),
                cargo(&[
                    "clippy",
                    "--workspace",
                    "--all-targets",
                    "--locked",
                    "--",
                    "-D",
                    "warnings",
                ]),
                script("hack/lib/check-edges", &[]),
                script("hack/lib/deny", &[]),
                script("hack/gen", &["--check"]),
            ]
            .into_iter()
            .chain(clippy_e2e(targets))
            .collect(),
            Self::Unit => vec![cargo(&[
                "test",
                "--workspace",
                "--locked",
                "--lib",
                "--bins",
            ])],
            Self::Integration => with_programs(tests(targets.iter().filter(|t| !t.is_e2e()))),
            Self::E2e => with_programs(tests(targets.iter().filter(|t| t.is_e2e()))),
        }
    }
}

/// `--all-targets` leaves out tests that plain `cargo test` does not run.
fn clippy_e2e(targets: &[TestTarget]) -> Option<Run> {
    let mut run = tests(targets.iter().filter(|t| t.is_e2e())).pop()?;
    let rest = run.args.split_off(3);
    run.args = ["clippy", "--locked"].map(str::to_owned).into();
    run.args.extend(rest);
    run.args.extend(["--", "-D", "warnings"].map(str::to_owned));
    Some(run)
}

/// The tests start our own programs, which `cargo test` of another package does not build.
fn with_programs(tests: Vec<Run>) -> Vec<Run> {
    if tests.is_empty() {
        return tests;
    }
    let build = cargo(&["build", "--workspace", "--locked", "--bins"]);
    std::iter::once(build).chain(tests).collect()
}

/// One cargo command for all, so that cargo builds what it can at the same time.
fn tests<'a>(targets: impl Iterator<Item = &'a TestTarget>) -> Vec<Run> {
    let mut args: Vec<String> = ["test", "--locked", "--no-fail-fast"]
        .map(str::to_owned)
        .into();
    let before = args.len();
    for target in targets {
        args.extend([
            "--package".to_owned(),
            target.package.clone(),
            "--test".to_owned(),
            target.name.clone(),
        ]);
    }
    if args.len() == before {
        Vec::new()
    } else {
        vec![Run {
            program: "cargo",
            args,
        }]
    }
}

fn cargo(args: &[&str]) -> Run {
    script("cargo", args)
}

fn script(program: &'static str, args: &[&str]) -> Run {
    Run {
        program,
        args: args.iter().map(|a| (*a).to_owned()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_test_file_is_in_exactly_one_suite() {
        let target = |name: &str| TestTarget {
            package: "p".into(),
            name: name.into(),
        };
        let targets = ["e2e", "e2e_console", "e2egg", "reads"].map(target);
        let holds = |suite: Suite, name: &str| {
            suite
                .runs(&targets)
                .iter()
                .any(|r| r.args.iter().any(|a| a == name))
        };
        for (name, e2e) in [
            ("e2e", true),
            ("e2e_console", true),
            ("e2egg", false),
            ("reads", false),
        ] {
            assert_eq!(holds(Suite::E2e, name), e2e, "{name}");
            assert_eq!(holds(Suite::Integration, name), !e2e, "{name}");
        }
    }

    #[test]
    fn a_suite_without_files_runs_nothing_rather_than_everything() {
        assert_eq!(Suite::Integration.runs(&[]), []);
    }
}
