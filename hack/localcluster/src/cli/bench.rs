//! `bench`: runs one benchmark. Each prints a table for people and, as its last line, a JSON object whose `ratios`
//! compare us with the peer beside us.
//!
//! To add one: a row in [`BENCHES`], and a `[[bench]]` of the same name with `harness = false` in `tests/Cargo.toml`.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context as _;
use clap::Args;
use localcluster::harness::STATE_VARIABLE;
use localcluster::progress::Progress;
use localcluster::state::State;
use localcluster::steps::compile::Profile;
use serde_json::Value;

/// The package that holds them.
const PACKAGE: &str = "kubeworkspaces-tests";

/// A benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bench {
    /// Its name, and that of its file.
    name: &'static str,
    /// What it measures, and which way round its ratios are.
    about: &'static str,
    /// The packages whose programs it starts: built for release first.
    starts: &'static [&'static str],
    /// Folders below `tests/` with Go programs of the same names that it starts: built first too.
    peers: &'static [&'static str],
    /// Whether it needs the cluster of hack/up.
    needs_cluster: bool,
}

/// All, in the order in which they are listed.
const BENCHES: [Bench; 1] = [Bench {
    name: "relay",
    about: "processor time, memory and latency of relayed streams, over those of a Go relay on gorilla/websocket: below \
            1 is less",
    starts: &["workspaces-apiserver", "relay-ends"],
    peers: &["relay-peer"],
    needs_cluster: false,
}];

/// What `hack/bench` is told.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  hack/bench               which there are
  hack/bench NAME          one of them; its last line is JSON
  hack/bench NAME -- ARGS  with arguments of its own

A ratio compares us with the peer beside us in the same run; the text of the benchmark says which way round.")]
pub(crate) struct BenchArgs {
    /// Which; none lists them
    name: Option<String>,
    /// Arguments for the benchmark itself, after --
    #[arg(last = true)]
    args: Vec<String>,
}

impl BenchArgs {
    pub(crate) fn run(self, state: &State) -> anyhow::Result<ExitCode> {
        let Self { name, args } = self;
        let Some(name) = name else {
            print!("{}", list(&BENCHES));
            return Ok(ExitCode::SUCCESS);
        };
        let bench = find(&BENCHES, &name)?;
        let top = super::top();
        if bench.needs_cluster {
            super::test::bring_up(&top, state, Some(Profile::Release))?;
        }
        for peer in bench.peers {
            build_peer(&top, peer)?;
        }
        let mut last = None;
        for mut cargo in commands(bench, &args) {
            cargo.current_dir(&top).stdin(Stdio::null());
            cargo.env(STATE_VARIABLE, state.root());
            last = run(cargo, &mut std::io::stdout())?;
        }
        check(last.as_deref().unwrap_or_default())
            .with_context(|| format!("the benchmark {name} does not end as it should"))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn find<'a>(benches: &'a [Bench], name: &str) -> anyhow::Result<&'a Bench> {
    let found = benches.iter().find(|bench| bench.name == name);
    found.with_context(|| format!("there is no benchmark {name}. {}", list(benches).trim_end()))
}

/// Names and what they measure.
fn list(benches: &[Bench]) -> String {
    if benches.is_empty() {
        return "There is no benchmark yet.\n".to_owned();
    }
    let width = benches.iter().map(|b| b.name.len()).max().unwrap_or(0);
    let rows = benches
        .iter()
        .map(|Bench { name, about, .. }| format!("  {name:<width$}  {about}\n"));
    format!("There are:\n\n{}", rows.collect::<String>())
}

/// The cargo commands: what builds the programs that it starts, then the benchmark. Both are for release.
fn commands(bench: &Bench, args: &[String]) -> Vec<Command> {
    let mut all = Vec::new();
    if !bench.starts.is_empty() {
        let mut build = Command::new("cargo");
        build.args(["build", "--release", "--locked", "--bins"]);
        build.args(bench.starts.iter().flat_map(|name| ["--package", name]));
        all.push(build);
    }
    let mut run = Command::new("cargo");
    run.args(["bench", "--quiet", "--locked", "--package", PACKAGE]);
    run.args(["--bench", bench.name, "--"]).args(args);
    all.push(run);
    all
}

/// Builds a Go program of `tests/` to where the benchmark finds it: beside ours.
fn build_peer(top: &Path, name: &str) -> anyhow::Result<()> {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let output = top.join(target).join("release").join(name);
    let progress = Progress::begin(format!("building {name}, the peer, with Go"));
    let mut go = Command::new("go");
    go.current_dir(top.join("tests").join(name))
        .stdin(Stdio::null());
    go.env("GOFLAGS", "")
        .env("GOWORK", "off")
        .env("CGO_ENABLED", "0");
    go.args([
        "build",
        "-mod=readonly",
        "-trimpath",
        "-buildvcs=false",
        "-o",
    ]);
    let built = go.arg(&output).arg(".").output();
    let built =
        built.context("cannot run go: the peer needs the Go toolchain that hack/up needs too")?;
    let said = String::from_utf8_lossy(&built.stderr);
    anyhow::ensure!(
        built.status.success(),
        "cannot build {name} ({}):\n{said}",
        built.status
    );
    progress.done();
    Ok(())
}

/// Runs a command to its success, passes its lines on, and returns the last one that is not blank.
fn run(mut command: Command, output: &mut impl std::io::Write) -> anyhow::Result<Option<String>> {
    let program = Path::new(command.get_program()).display().to_string();
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {program}"))?;
    let mut last = None;
    for line in child
        .stdout
        .take()
        .into_iter()
        .flat_map(|out| BufReader::new(out).lines())
    {
        let line = line.context("the benchmark writes something that is not text")?;
        writeln!(output, "{line}")?;
        if !line.trim().is_empty() {
            last = Some(line);
        }
    }
    let status = child.wait()?;
    anyhow::ensure!(status.success(), "it failed ({status})");
    Ok(last)
}

/// The last line: one JSON object with numbers under `ratios`.
fn check(line: &str) -> anyhow::Result<()> {
    let value: Value = serde_json::from_str(line)
        .with_context(|| format!("its last line is not a JSON object: {line}"))?;
    let ratios = value["ratios"].as_object().filter(|all| !all.is_empty());
    let ratios = ratios.with_context(|| format!("its last line has no `ratios`: {line}"))?;
    for (name, ratio) in ratios {
        anyhow::ensure!(ratio.is_number(), "the ratio {name} is no number: {ratio}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BENCH: Bench = Bench {
        name: "relay",
        about: "bytes through a console",
        starts: &["workspaces-apiserver"],
        peers: &[],
        needs_cluster: false,
    };

    #[test]
    fn names_come_with_what_they_measure_and_an_unknown_one_with_all_names() {
        let benches = [
            BENCH,
            Bench {
                name: "x",
                about: "y",
                ..BENCH
            },
        ];
        let all = "There are:\n\n  relay  bytes through a console\n  x      y\n";
        assert_eq!(list(&benches), all);
        assert_eq!(find(&benches, "x").unwrap().about, "y");
        let error = find(&benches, "rely").unwrap_err().to_string();
        assert!(
            error.starts_with("there is no benchmark rely. There are:"),
            "{error}"
        );
        assert!(error.contains("bytes through a console"), "{error}");
        assert!(
            find(&[], "x")
                .unwrap_err()
                .to_string()
                .contains("no benchmark yet")
        );
    }

    #[test]
    fn programs_are_built_for_release_before_the_benchmark_runs() {
        let words = |command: &Command| {
            let words: Vec<_> = command.get_args().map(|a| a.to_string_lossy()).collect();
            words.join(" ")
        };
        let all = commands(&BENCH, &["--seconds=1".to_owned()]);
        assert_eq!(
            words(&all[0]),
            "build --release --locked --bins --package workspaces-apiserver"
        );
        assert!(words(&all[1]).ends_with("--bench relay -- --seconds=1"));
        assert_eq!(
            commands(
                &Bench {
                    starts: &[],
                    ..BENCH
                },
                &[]
            )
            .len(),
            1
        );
    }

    #[test]
    fn the_last_line_holds_ratios() {
        check(r#"{"ratios": {"throughput": 0.97, "latency": 2}, "seconds": 5}"#).unwrap();
        for (line, want) in [
            ("table only", "not a JSON object"),
            (r#"{"ratio": 1}"#, "no `ratios`"),
            (r#"{"ratios": {}}"#, "no `ratios`"),
            (r#"{"ratios": {"a": "fast"}}"#, "no number"),
        ] {
            let error = check(line).unwrap_err().to_string();
            assert!(error.contains(want), "{line}: {error}");
        }
    }

    #[test]
    fn lines_are_passed_on_and_a_failure_is_one() {
        let sh = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        };
        let mut seen = Vec::new();
        let last = run(sh("echo table; echo '{}'; echo"), &mut seen).unwrap();
        assert_eq!(last.as_deref(), Some("{}"));
        assert_eq!(seen, b"table\n{}\n\n");
        assert!(run(sh("echo x; exit 3"), &mut Vec::new()).is_err());
    }

    #[test]
    fn rows_and_bench_files_are_the_same() {
        let manifest = include_str!("../../../../tests/Cargo.toml");
        let tables = manifest.split("[[bench]]").skip(1);
        let mut files: Vec<&str> = tables
            .filter_map(|table| table.lines().find_map(|l| l.strip_prefix("name = ")))
            .map(|name| name.trim_matches('"'))
            .collect();
        let mut rows: Vec<&str> = BENCHES.iter().map(|bench| bench.name).collect();
        files.sort_unstable();
        rows.sort_unstable();
        assert_eq!(rows, files);
    }
}
