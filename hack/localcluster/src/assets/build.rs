//! Running `go build`, and putting what it makes into the cache whole or not at all.

use std::fs;
use std::io::{self, BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::{AssetsError, Binary, GoModule, Places, Recipe, recipe};
use crate::lock;
use crate::progress::Progress;

/// How many of the last lines of Go's output an error quotes.
const TAIL: usize = 30;
/// What builds are made in, below the cache: one that was killed leaves nothing elsewhere.
const UNFINISHED: &str = "unfinished";
/// How long another run may take that builds everything.
const LOCK_LIMIT: Duration = Duration::from_secs(60 * 60);

/// Builds `wanted` into the cache, except those that another run has built meanwhile.
pub(super) fn build(wanted: &[Binary], places: &Places) -> Result<(), AssetsError> {
    make_dir(&places.bin())?;
    let who = "another run that is building into the same cache";
    let _lock = lock::hold(&places.cache().join("lock"), who, LOCK_LIMIT)?;
    empty(&places.cache().join(UNFINISHED))?;
    for binary in wanted.iter().filter(|b| places.find(**b).is_none()) {
        build_one(*binary, places)?;
    }
    Ok(())
}

fn build_one(binary: Binary, places: &Places) -> Result<(), AssetsError> {
    let recipe = recipe(binary);
    let source = places.cache().join("src").join(recipe.module.name);
    write_module(recipe.module, &source)?;
    let finished = places.bin().join(binary.file_name());
    // In a directory of this run: the Go of one that was killed may still be at work.
    let dir = tempfile::tempdir_in(places.cache().join(UNFINISHED))
        .map_err(|e| fault(&places.cache().join(UNFINISHED), e))?;
    let unfinished = dir.path().join(binary.file_name());
    run_go(binary, go_build(&recipe, &source, &unfinished))?;
    fs::rename(&unfinished, &finished).map_err(|e| fault(&finished, e))
}

/// The command. The user's own Go settings that would change the result are overridden; GOPROXY, GOCACHE and such
/// stay theirs.
fn go_build(recipe: &Recipe, source: &Path, output: &Path) -> Command {
    let mut go = Command::new("go");
    go.current_dir(source)
        .env("CGO_ENABLED", if recipe.cgo { "1" } else { "0" })
        .env("GOFLAGS", "")
        .env("GOWORK", "off")
        .env("GOTMPDIR", output.parent().unwrap_or(Path::new("/tmp")))
        .env_remove("GOOS")
        .env_remove("GOARCH")
        .args([
            "build",
            "-v",
            "-mod=readonly",
            "-trimpath",
            "-buildvcs=false",
            "-tags",
            recipe.tags,
        ])
        .args(["-ldflags", &recipe.ldflags, "-o"])
        .arg(output)
        .arg(recipe.package);
    go
}

/// Runs Go, which with `-v` names each package that it compiles.
fn run_go(binary: Binary, mut go: Command) -> Result<(), AssetsError> {
    let name = binary.file_name();
    let mut progress = Progress::begin(format!("building {name} from its Go module"));
    let mut child = go
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(AssetsError::NoGo)?;
    let mut lines = Vec::new();
    for line in child
        .stderr
        .take()
        .into_iter()
        .flat_map(|out| BufReader::new(out).lines().map_while(Result::ok))
    {
        progress.detail(&format!("{} packages compiled, now {line}", lines.len()));
        lines.push(line);
    }
    let status = child.wait().map_err(AssetsError::NoGo)?;
    if !status.success() {
        let tail = lines[lines.len().saturating_sub(TAIL)..].join("\n");
        return Err(AssetsError::Build { name, status, tail });
    }
    progress.done();
    Ok(())
}

fn write_module(module: &GoModule, dir: &Path) -> Result<(), AssetsError> {
    for (name, content) in module.files {
        let path = dir.join(name);
        path.parent().map_or(Ok(()), make_dir)?;
        fs::write(&path, content).map_err(|e| fault(&path, e))?;
    }
    Ok(())
}

/// Makes `dir`, without what a killed run left in it.
fn empty(dir: &Path) -> Result<(), AssetsError> {
    match fs::remove_dir_all(dir) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(fault(dir, e)),
        _ => make_dir(dir),
    }
}

fn make_dir(path: &Path) -> Result<(), AssetsError> {
    fs::create_dir_all(path).map_err(|e| fault(path, e))
}

fn fault(path: &Path, source: io::Error) -> AssetsError {
    AssetsError::Io {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::ffi::OsStr;

    use super::*;

    fn described(binary: Binary) -> (Vec<String>, HashMap<String, Option<String>>) {
        let go = go_build(&recipe(binary), Path::new("/src"), Path::new("/out"));
        let text = |s: &OsStr| s.to_string_lossy().into_owned();
        (
            go.get_args().map(text).collect(),
            go.get_envs().map(|(k, v)| (text(k), v.map(text))).collect(),
        )
    }

    #[test]
    fn only_runc_is_built_with_c() {
        for binary in Binary::CLUSTER {
            let want = if binary == Binary::Runc { "1" } else { "0" };
            assert_eq!(
                described(binary).1["CGO_ENABLED"].as_deref(),
                Some(want),
                "{binary:?}"
            );
        }
    }

    #[test]
    fn a_build_takes_the_pinned_modules_whatever_the_user_has_set() {
        let (args, env) = described(Binary::Ctr);
        assert!(args.contains(&"-mod=readonly".to_owned()));
        assert_eq!(env["GOFLAGS"].as_deref(), Some(""));
        assert_eq!(env["GOOS"], None);
        assert_eq!(
            args.last().unwrap(),
            "github.com/containerd/containerd/v2/cmd/ctr"
        );
    }

    #[test]
    fn a_failed_build_quotes_go_and_leaves_no_program() {
        let temp = tempfile::tempdir().unwrap();
        let mut go = Command::new("/bin/sh");
        go.args(["-c", "echo first >&2; echo pkg/x.go:1: broken >&2; exit 1"])
            .current_dir(temp.path());
        let message = run_go(Binary::Etcd, go).unwrap_err().to_string();
        assert!(
            message.starts_with("building etcd failed (exit status: 1)"),
            "{message}"
        );
        assert!(message.ends_with("pkg/x.go:1: broken"), "{message}");
    }
}
