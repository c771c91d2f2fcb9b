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
    /// Streams and churn on that cluster for as long as --long makes it
    Soak,
    /// Whole clusters, made, killed and ended; a cluster that exists, with a registry
    Long,
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
    /// The suite of a test file: `e2e`, `soak` and `long` are those of the files that are called so or `e2e_…`; all
    /// others are integration tests.
    fn suite(&self) -> Suite {
        let first = self.name.split('_').next();
        [Suite::E2e, Suite::Soak, Suite::Long]
            .into_iter()
            .find(|suite| first == Some(suite.name()))
            .unwrap_or(Suite::Integration)
    }

    /// Whether plain `cargo test` leaves it out (`test = false`), as one that needs a whole cluster has to be.
    fn is_whole_cluster(&self) -> bool {
        self.suite() != Suite::Integration
    }
}

impl Suite {
    /// What CI runs, in the order in which failures are cheapest to find.
    /// Of the soak that is a minute.
    pub(crate) const GATE: [Self; 5] = [
        Self::Lint,
        Self::Unit,
        Self::Integration,
        Self::E2e,
        Self::Soak,
    ];
    /// All, in the same order.
    pub(crate) const ALL: [Self; 6] = [
        Self::Lint,
        Self::Unit,
        Self::Integration,
        Self::E2e,
        Self::Soak,
        Self::Long,
    ];

    /// Its name, as it is typed.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Lint => "lint",
            Self::Unit => "unit",
            Self::Integration => "integration",
            Self::E2e => "e2e",
            Self::Soak => "soak",
            Self::Long => "long",
        }
    }

    /// Whether it needs the cluster of hack/up.
    pub(crate) fn needs_cluster(self) -> bool {
        matches!(self, Self::E2e | Self::Soak)
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
            .chain(clippy_whole_cluster(targets))
            .collect(),
            Self::Unit => vec![cargo(&[
                "test",
                "--workspace",
                "--locked",
                "--lib",
                "--bins",
            ])],
            Self::Integration | Self::E2e | Self::Soak | Self::Long => {
                with_programs(tests(targets.iter().filter(|t| t.suite() == self)))
            }
        }
    }
}

/// `--all-targets` leaves out tests that plain `cargo test` does not run.
fn clippy_whole_cluster(targets: &[TestTarget]) -> Option<Run> {
    let mut run = tests(targets.iter().filter(|t| t.is_whole_cluster())).pop()?;
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
        let names = [
            "e2e",
            "e2e_console",
            "e2egg",
            "reads",
            "soak",
            "soak_streams",
            "long_kills",
        ];
        let targets = names.map(target);
        let holds = |suite: Suite, name: &str| {
            let runs = suite.runs(&targets);
            runs.iter().any(|r| r.args.iter().any(|a| a == name))
        };
        for (name, want) in names.into_iter().zip([
            Suite::E2e,
            Suite::E2e,
            Suite::Integration,
            Suite::Integration,
            Suite::Soak,
            Suite::Soak,
            Suite::Long,
        ]) {
            for suite in [Suite::Integration, Suite::E2e, Suite::Soak, Suite::Long] {
                assert_eq!(holds(suite, name), suite == want, "{name} in {suite:?}");
            }
        }
    }

    #[test]
    fn clippy_sees_the_tests_that_plain_cargo_test_leaves_out() {
        let target = |name: &str| TestTarget {
            package: "p".into(),
            name: name.into(),
        };
        let runs = Suite::Lint.runs(&["e2e_a", "soak", "long_b", "reads"].map(target));
        let last = &runs.last().unwrap().args;
        assert_eq!(last[0], "clippy");
        for (name, want) in [
            ("e2e_a", true),
            ("soak", true),
            ("long_b", true),
            ("reads", false),
        ] {
            assert_eq!(last.iter().any(|arg| arg == name), want, "{name}");
        }
    }

    #[test]
    fn a_suite_without_files_runs_nothing_rather_than_everything() {
        assert_eq!(Suite::Integration.runs(&[]), []);
    }
}
