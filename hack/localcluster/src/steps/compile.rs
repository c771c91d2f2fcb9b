//! Our programs are compiled, and those for people are where PATH will find them.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::Context as _;
use async_trait::async_trait;

use super::{Context, Found, Step, Target, programs::point};

/// The packages whose programs go into images and onto PATH.
const PACKAGES: [&str; 2] = ["localvirt", "kubectl-workspace"];
/// What writes the images: it compresses and digests gigabytes, for which a debug build is too slow.
const ARCHIVER: &str = "oci-archive";
/// The server's package and program.
pub(super) const SERVER: &str = "workspaces-apiserver";
/// What people find on PATH, and the program that it is. kubectl completes a plugin through an executable of the second
/// name, and only through that.
const FOR_PATH: [(&str, &str); 2] = [
    ("kubectl-workspace", "kubectl-workspace"),
    ("kubectl_complete-workspace", "kubectl-workspace"),
];

/// How much the compiler tries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Profile {
    /// Small and quick programs
    #[default]
    Release,
    /// Quick builds, with checks for overflow
    Debug,
}

pub(super) struct Compile;

#[async_trait]
impl Step for Compile {
    fn name(&self) -> &'static str {
        "compiling our programs"
    }

    /// Only cargo knows whether there is something to compile, and finds out quickly.
    async fn look(&self, _: &Context) -> anyhow::Result<Found> {
        Ok(Found::ToDo)
    }

    async fn run(&self, context: &Context) -> anyhow::Result<()> {
        for (profile, packages) in builds(&context.target, context.profile) {
            cargo(context, profile, &packages).await?;
        }
        context.state.create()?;
        for (name, is) in FOR_PATH {
            let link = context.state.bin().join(name);
            point(&link, &program(is, context.profile)?)
                .with_context(|| format!("cannot make {}", link.display()))?;
        }
        Ok(())
    }
}

/// What cargo is called for: one call for each profile, so that it compiles what it can at the same time.
fn builds(target: &Target, profile: Profile) -> Vec<(Profile, Vec<&'static str>)> {
    let server = match target {
        // For quick rebuilds, whatever the rest is.
        Target::Dev => Profile::Debug,
        Target::Local | Target::Existing { .. } => profile,
    };
    let packages = PACKAGES.map(|package| (package, profile));
    let all = packages
        .into_iter()
        .chain([(ARCHIVER, Profile::Release), (SERVER, server)]);
    let of = |wanted| {
        let those = all.clone().filter(move |(_, profile)| *profile == wanted);
        (wanted, those.map(|(package, _)| package).collect())
    };
    let mut builds = vec![of(Profile::Release), of(Profile::Debug)];
    builds.retain(|(_, packages): &(_, Vec<_>)| !packages.is_empty());
    builds
}

/// Cargo shows its progress itself. That of a killed run goes on to its end, and this one waits for it.
async fn cargo(context: &Context, profile: Profile, packages: &[&str]) -> anyhow::Result<()> {
    let mut cargo = tokio::process::Command::new("cargo");
    cargo.args(["build", "--locked", "--bins"]);
    cargo.args((profile == Profile::Release).then_some("--release"));
    cargo.args(packages.iter().flat_map(|name| ["--package", name]));
    cargo
        .current_dir(&context.top)
        .env("TMPDIR", context.temporary("cargo")?)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let status = cargo.status().await.context("cannot run cargo")?;
    anyhow::ensure!(status.success(), "cargo build failed ({status})");
    Ok(())
}

/// Where cargo puts a program: this one was made by cargo too, as a debug build in the same target directory.
pub(super) fn program(name: &str, profile: Profile) -> anyhow::Result<PathBuf> {
    let current = std::env::current_exe().context("cannot find this program's file")?;
    Ok(in_target(&current, name, profile))
}

fn in_target(current: &Path, name: &str, profile: Profile) -> PathBuf {
    let debug = current.parent().unwrap_or(current);
    match profile {
        Profile::Debug => debug.join(name),
        Profile::Release => debug.with_file_name("release").join(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_both_profiles_lie_beside_this_one() {
        for (profile, want) in [
            (Profile::Debug, "/t/debug/localvirt"),
            (Profile::Release, "/t/release/localvirt"),
        ] {
            let found = in_target(Path::new("/t/debug/localcluster"), "localvirt", profile);
            assert_eq!(found, Path::new(want));
        }
    }

    #[test]
    fn each_program_is_built_once_in_the_profile_that_is_asked_for() {
        use Profile::{Debug, Release};
        for (target, asked, release, debug) in [
            (
                Target::Local,
                Release,
                vec!["localvirt", "kubectl-workspace", ARCHIVER, SERVER],
                vec![],
            ),
            (
                Target::Local,
                Debug,
                vec![ARCHIVER],
                vec!["localvirt", "kubectl-workspace", SERVER],
            ),
            (
                Target::Dev,
                Release,
                vec!["localvirt", "kubectl-workspace", ARCHIVER],
                vec![SERVER],
            ),
            (
                Target::Dev,
                Debug,
                vec![ARCHIVER],
                vec!["localvirt", "kubectl-workspace", SERVER],
            ),
        ] {
            let mut want = vec![(Release, release), (Debug, debug)];
            want.retain(|(_, packages)| !packages.is_empty());
            assert_eq!(builds(&target, asked), want, "{target:?} {asked:?}");
        }
    }
}
